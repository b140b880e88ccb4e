"""Shows a cluster: etcd and five servers, a load, a primary, a backup and a witness killed in turn, every record compared.

See scripts/demo-cluster.sh."""

import argparse
import shutil
import sys
import tempfile
import threading
import time

from faults import Redis, is_answer
from processes import Cluster, Etcds

CLIENTS = 4
# Seconds of load before the first kill, and after each one.
QUIET, AFTER_KILL = 5.0, 7.0


class Router:
    """Connections to the servers, for one thread: a command goes where the last MOVED of its kind of key said."""

    def __init__(self, ports):
        self.ports, self.connections, self.place = ports, {}, {}

    def ask(self, group, *words):
        """The reply of whoever leads; asks the next server where one is gone or knows no leader."""
        while True:
            port = self.place.setdefault(group, self.ports[0])
            try:
                if port not in self.connections:
                    self.connections[port] = Redis(port, seconds=10)
                reply = self.connections[port].ask(*words)
            except OSError:
                self.connections.pop(port, None)
                self.place[group] = self.ports[(self.ports.index(port) + 1) % len(self.ports)]
                time.sleep(0.01)
                continue
            if is_answer(reply):
                return reply
            moved = reply.startswith("-MOVED")
            self.place[group] = int(reply.rsplit(":", 1)[1]) if moved else port
            time.sleep(0.0 if moved else 0.05)


class Client(threading.Thread):
    """Writes one record after the other, and reads each tenth one back."""

    def __init__(self, number, ports):
        super().__init__(daemon=True)
        self.number, self.router = number, Router(ports)
        self.acknowledged, self.times, self.wrong = {}, [], 0
        self.stopping = threading.Event()

    def run(self):
        count = 0
        while not self.stopping.is_set():
            # A hash tag for each client and third record: the same slot, and so the same group.
            tag = f"{self.number}.{count % 3}"
            key, value = f"{{{tag}}}record{count}", f"value {count} of client {self.number}"
            if self.router.ask(tag, "SET", key, value) == "+OK":
                self.acknowledged[key] = value
                self.times.append(time.monotonic())
                if count % 10 == 0 and self.router.ask(tag, "GET", key) != value.encode():
                    self.wrong += 1
            count += 1

    def pause(self, begin, end):
        """The longest time between two acknowledged writes that overlaps a time."""
        times = [begin] + list(self.times) + [end]
        return max(b - a for a, b in zip(times, times[1:]) if b > begin and a < end)


def say(text):
    print(text, flush=True)


def show(cluster):
    """Prints each group with the ports of its members."""
    for group in cluster.status()[1]["groups"]:
        roles = {}
        for replica in group["replicas"]:
            roles.setdefault(replica["role"], []).append(replica["client"].rsplit(":", 1)[1])
        members = "; ".join(f"{role} {', '.join(roles.get(role, ['-']))}" for role in ("primary", "backup", "witness"))
        say(f"  group {group['group']}: {members}")


def kill(cluster, clients, group, role):
    """Kills the process with a role of a group, and starts it again."""
    victim = cluster.node_of(group, role)
    if victim is None:
        raise SystemExit(f"furrow: group {group} has no {role}")
    begin = time.monotonic()
    victim.kill()
    time.sleep(AFTER_KILL / 2)
    longest = max(client.pause(begin, time.monotonic()) for client in clients)
    say(f"kill -9 of the {role} of group {group}, {victim.name}: the longest pause of a client is {longest:.2f} s")
    victim.start()
    cluster.wait_until_whole()
    say(f"  it is back after {time.monotonic() - begin:.1f} s")
    time.sleep(AFTER_KILL / 2)


def compare(ports, clients):
    """The acknowledged records that are gone or wrong."""
    router, lost = Router(ports), []
    for client in clients:
        for key, value in client.acknowledged.items():
            if router.ask(key[1 : key.index("}")], "GET", key) != value.encode():
                lost.append(key)
    return lost


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    options = arguments.parse_args()
    begun = time.monotonic()
    work = tempfile.mkdtemp(prefix="furrow-demo-")
    etcds = Etcds(work, members=1)
    cluster = Cluster(options.furrow, work, etcds)
    try:
        say(f"Starting etcd and five servers, each with an emulated drive of its own, in {work}")
        etcds.start()
        cluster.start()
        cluster.create()
        cluster.wait_until_whole()
        say("The cluster is whole. Each group has its keys on five servers, of which any two may be lost:")
        show(cluster)
        clients = [Client(number, cluster.ports) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(QUIET)
        written = sum(len(client.acknowledged) for client in clients)
        say(f"{CLIENTS} clients write records one after the other: {written / QUIET:.0f} a second")
        for group, role in enumerate(("primary", "backup", "witness")):
            kill(cluster, clients, group, role)
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(30)
        written, wrong = sum(len(client.acknowledged) for client in clients), sum(client.wrong for client in clients)
        say(f"Comparing each of the {written} records that were acknowledged ...")
        lost = compare(cluster.ports, clients)
        say(f"{written - len(lost)} are there with their values, {len(lost)} are lost; {wrong} reads were wrong meanwhile. {time.monotonic() - begun:.0f} s in all.")
        return 1 if lost or wrong else 0
    finally:
        cluster.end()
        etcds.end()
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
