"""Kills processes of a cluster in turn, under load, and compares every acknowledged record. See scripts/cluster.sh."""

import argparse
import json
import statistics
import sys
import threading
import time

import redis as redis_library
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from processes import Cluster, Etcds, report, stop, whole_cluster

# The longest pause of a client, and the median of the longest pauses around each kill, in seconds.
LONGEST_PAUSE = 3.0
MEDIAN_PAUSE = 1.5
CLIENTS = 6
BETWEEN_KILLS = 3.0
ROLES = ["primary", "backup", "witness", "etcd"]


class Client(threading.Thread):
    """Writes one record after the other, reads some back, and notes when each write was acknowledged."""

    def __init__(self, number, ports):
        super().__init__(daemon=True)
        self.number, self.ports = number, ports
        self.acknowledged, self.errors, self.wrong = [], [], []
        self.stopping = threading.Event()

    def run(self):
        redis = connect(self.ports)
        n = 0
        while not self.stopping.is_set():
            key = f"client{self.number}:{n}"
            try:
                redis.set(key, f"value{n}")
                self.acknowledged.append((time.monotonic(), key, f"value{n}"))
                n += 1
                if n % 5 == 0 and redis.get(key) != f"value{n - 1}":
                    self.wrong.append(key)
            except Exception as error:  # pylint: disable=broad-except
                # Whatever the library raises reaches the program. The outcome is open: the same record is written again.
                self.errors.append(f"{type(error).__name__}: {error}")
                time.sleep(0.02)
                if redis_library.VERSION[0] < 5:
                    # Debian's version knows no nodes any more once one of them is gone.
                    redis = connect(self.ports)


def connect(ports):
    end = time.monotonic() + 60
    while True:
        try:
            # The library changes the list that it gets.
            nodes = [ClusterNode("127.0.0.1", port) for port in ports]
            return RedisCluster(startup_nodes=nodes, decode_responses=True, socket_timeout=10)
        except (RedisError, RedisClusterException, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def longest_pause(clients, begin, end):
    """The longest time between two acknowledged writes of one client that overlaps a time."""
    longest = 0.0
    for client in clients:
        times = [at for at, _, _ in list(client.acknowledged)]
        for one, after in zip(times, times[1:]):
            if after > begin and one < end:
                longest = max(longest, after - one)
        if times and times[-1] < end:
            longest = max(longest, end - times[-1])
    return longest


def compare(ports, clients):
    """The acknowledged records that are not there any more."""
    redis = connect(ports)
    lost = []
    for client in clients:
        for _, key, value in client.acknowledged:
            if redis.get(key) != value:
                lost.append(key)
    return lost


def kill_in_turn(cluster, etcds, clients, kills):
    pauses = []
    for number in range(kills):
        role, group = ROLES[number % len(ROLES)], number % cluster.groups
        victim = etcds.leader() if role == "etcd" else cluster.node_of(group, role)
        if victim is None:
            raise SystemExit(f"nobody is the {role} of group {group}")
        begin = time.monotonic()
        victim.kill()
        time.sleep(BETWEEN_KILLS)
        pause = longest_pause(clients, begin, time.monotonic())
        pauses.append((role, pause))
        print(f"kill {number + 1}: {role}, {victim.name}: longest pause {pause:.2f} s", file=sys.stderr)
        victim.start()
        cluster.wait_until_whole()
    return pauses


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--kills", type=int, default=20)
    options = arguments.parse_args()
    etcds = Etcds(options.work)
    cluster = Cluster(options.furrow, options.work, etcds)
    failed = []
    with whole_cluster(cluster, etcds, failed=failed):
        clients = [Client(number, cluster.ports) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        begun = time.monotonic()
        time.sleep(2)
        pauses = kill_in_turn(cluster, etcds, clients, options.kills)
        stop(clients, 30)
        code, said = cluster.ask("finalize", "--check")
        if code != 0:
            failed.append(f"not every group is at the cluster's version: {said}")
        seconds = time.monotonic() - begun
        lost = compare(cluster.ports, clients)
        acknowledged = sum(len(client.acknowledged) for client in clients)
        longest = [pause for _, pause in pauses]
        result = {
            "acknowledged": acknowledged,
            "per_second": round(acknowledged / seconds),
            "lost": len(lost),
            "wrong_reads": sum(len(client.wrong) for client in clients),
            "errors_seen": sum(len(client.errors) for client in clients),
            "error_kinds": sorted({error[:80] for client in clients for error in client.errors})[:10],
            "longest_pause_s": round(max(longest), 2),
            "median_pause_s": round(statistics.median(longest), 2),
            "kills": len(pauses),
        }
        print(json.dumps(result, indent=2))
        if lost or result["wrong_reads"]:
            failed.append(f"{len(lost)} acknowledged records are lost, {result['wrong_reads']} reads were wrong")
        if max(longest) > LONGEST_PAUSE or statistics.median(longest) > MEDIAN_PAUSE:
            failed.append(f"pauses above {LONGEST_PAUSE} s, or a median above {MEDIAN_PAUSE} s")
    return report(failed)


if __name__ == "__main__":
    sys.exit(main())
