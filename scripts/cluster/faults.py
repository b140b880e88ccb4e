"""What a cluster must stand: a plan that changes, an older etcd, bad values there, a copied drive, full drives.

See scripts/cluster-faults.sh. Each check has a cluster of its own, and names what is wrong; none ends the others."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from processes import Cluster, Etcds, Process, free_ports, run_checks


class Redis:
    """A connection of a client that follows no redirection. An error is a text that begins with `-`."""

    def __init__(self, port, seconds=10):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))
        return self._reply()

    def _reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b":":
            return int(rest)
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        return (kind + rest).decode()


def try_ask(port, *words):
    """The reply of one server; an error's text where there is none."""
    try:
        return Redis(port).ask(*words)
    except OSError as error:
        return f"-{error}"


def is_answer(reply):
    return not (isinstance(reply, str) and reply.startswith("-"))


class EtcdValues:
    """Etcd's values, by its gateway for JSON."""

    def __init__(self, url):
        self.url = url

    def _ask(self, path, question):
        request = urllib.request.Request(f"{self.url}/v3/kv/{path}", json.dumps(question).encode())
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def with_prefix(self, prefix):
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self._ask("range", {"key": encode(prefix), "range_end": encode(end)}).get("kvs", [])
        return {decode(one["key"]).decode(): json.loads(decode(one["value"])) for one in found}

    def put(self, key, value):
        self._ask("put", {"key": encode(key), "value": encode(json.dumps(value, separators=(",", ":")))})


def encode(text):
    return base64.b64encode(text.encode()).decode()


def decode(text):
    return base64.b64decode(text)


class BreakingProxy:
    """Forwards connections to etcd, and breaks all of them once, when a node sends its sign of life."""

    def __init__(self, port):
        self.to, self.open, self.has_broken = port, [], False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            here, there = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.to))
            self.open += [here, there]
            for pair in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source, target):
        ending = [source, target]
        try:
            while part := source.recv(1 << 16):
                is_from_node = source.getsockname() == self.listener.getsockname()
                if not self.has_broken and is_from_node and b"/furrow/barn/alive/" in part:
                    self.has_broken, ending = True, list(self.open)
                    break
                target.sendall(part)
        except OSError:
            pass
        for one in ending:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Running:
    """A cluster with K = 1 over one etcd, whole when it is entered. `drive`: the parameters of all drives, or of each; `options`: more arguments of each server."""

    def __init__(self, furrow, nodes=3, groups=1, drive=None, options=()):
        self.work = tempfile.mkdtemp()
        self.etcds = Etcds(self.work, members=1)
        self.cluster = Cluster(furrow, self.work, self.etcds, nodes=nodes, groups=groups, copies=1)
        self.nodes, self.ports = self.cluster.nodes, self.cluster.ports
        self.etcd, self.values = self.etcds.members[0], EtcdValues(self.etcds.clients[0])
        drives = [drive] * nodes if isinstance(drive, str) else drive or []
        for number, (node, parameters) in enumerate(zip(self.nodes, drives)):
            node.command[node.command.index("-d") + 1] = f"emu:{self.drive(number)}?{parameters}"
        for node in self.nodes:
            node.command += options
        self.others = []

    def __enter__(self):
        self.etcds.start()
        self.cluster.start()
        self.cluster.create()
        self.cluster.wait_until_whole()
        return self

    def __exit__(self, *_):
        for process in self.nodes + self.others + self.etcds.members:
            if process.runs():
                process.kill()
        shutil.rmtree(self.work)

    def drive(self, number):
        return os.path.join(self.work, f"drive{number}.img")

    def port_of(self, node):
        return self.ports[self.nodes.index(node)]

    def write(self, key, value, ports=None, seconds=10):
        """Writes where the group is led. Gives the last reply of a server that leads, or leads no more."""
        end, reply = time.monotonic() + seconds, None
        while time.monotonic() < end:
            for port in ports or self.ports:
                told = try_ask(port, "SET", key, value)
                if told == "+OK":
                    return told
                if not told.startswith(("-MOVED", "-[Errno")):
                    reply = told
            time.sleep(0.1)
        return reply

    def read(self, key, seconds=10):
        """The value of a key, from the server that answers for it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for port in self.ports:
                told = try_ask(port, "GET", key)
                if is_answer(told):
                    return told
            time.sleep(0.1)
        return None

    def alive(self):
        """The nodes with a sign of life in etcd."""
        return list(self.values.with_prefix("/furrow/barn/alive/"))

    def preferred(self):
        """The replica that etcd plans as the primary of each group."""
        plans = self.values.with_prefix("/furrow/barn/groups/")
        return [plans[f"/furrow/barn/groups/{group}/want"]["preferred"] for group in range(self.cluster.groups)]

    def ended(self):
        """The servers that do not run, with their exit codes."""
        return {node.name: node.child.returncode for node in self.nodes if not node.runs()}


def plan_changes(furrow):
    """A plan with two new nodes: the group's log is the truth about its members, and one leader answers."""
    with Running(furrow, nodes=5) as running:
        running.write("key", "before")
        key = "/furrow/barn/groups/0/want"
        plan = running.values.with_prefix(key)[key]
        members = {member["node"] for member in plan["members"]}
        free = [name.rsplit("/", 1)[1] for name in running.values.with_prefix("/furrow/barn/nodes/")]
        free = [node for node in free if node not in members]
        for member, node in zip(plan["members"][1:], free):
            plan["last_replica"] += 1
            member["replica"], member["node"] = plan["last_replica"], node
        running.values.put(key, plan)
        time.sleep(5)
        answers = [try_ask(port, "GET", "key") for port in running.ports]
        answers = [answer for answer in answers if is_answer(answer)]
        return [] if answers == [b"before"] else [f"two leaders, or a lost record: the key is read as {answers}"]


def address_off_loopback(furrow):
    """One node's value in etcd has an address that others do not reach without TLS: the servers go on."""
    with Running(furrow) as running:
        running.write("key", "value")
        value = next(iter(running.values.with_prefix("/furrow/barn/nodes/").values()))
        value["peer"], value["client"] = "10.9.9.9:7000", "10.9.9.9:7001"
        running.values.put("/furrow/barn/nodes/11111111-2222-4333-8444-555555555555", value)
        time.sleep(3)
        return [f"servers ended: {running.ended()}"] if running.ended() else []


def older_etcd(furrow):
    """Etcd is restored from an older copy: the servers refuse what it holds, and go on."""
    with Running(furrow) as running:
        running.write("key", "value")
        running.etcds.back_up()
        time.sleep(2)
        leader = running.cluster.node_of(0, "primary")
        leader.kill()
        time.sleep(3)
        leader.start()
        running.cluster.wait_until_whole()
        time.sleep(1)
        running.etcds.restore()
        time.sleep(6)
        return [f"servers ended: {running.ended()}"] if running.ended() else []


def leader_unknown_to_etcd(furrow):
    """A leader is elected while etcd is away: a node without a replica names the new leader once etcd is back."""
    with Running(furrow, nodes=4) as running:
        running.write("key", "value")
        time.sleep(1)
        replicas = running.cluster.status()[1]["groups"][0]["replicas"]
        members = {int(replica["client"].rsplit(":", 1)[1]) for replica in replicas}
        outside = next(port for port in running.ports if port not in members)
        leader = running.cluster.node_of(0, "primary")
        running.etcd.kill()
        time.sleep(0.5)
        leader.kill()
        live = members - {running.port_of(leader)}
        if running.write("key", "again", ports=live) != "+OK":
            return ["nobody was elected"]
        time.sleep(3)
        running.etcd.start()
        time.sleep(15)
        told = try_ask(outside, "GET", "key")
        true = [port for port in live if try_ask(port, "GET", "key") == b"again"]
        is_told = any(str(told).endswith(f":{port}") for port in true)
        return [] if is_told else [f"a node answers {told}, and the leader is {true}"]


def blank_drive(furrow):
    """A drive is replaced: the new node waits until its address is free; if it ends, then not as if all was well."""
    with Running(furrow) as running:
        witness = running.cluster.node_of(0, "witness")
        drive = running.drive(running.nodes.index(witness))
        witness.kill()
        found = []
        for _ in range(6):
            os.remove(drive)
            witness.start()
            try:
                found.append(witness.child.wait(3))
            except subprocess.TimeoutExpired:
                witness.kill()
        return [f"the new node ended with {found}"] if found else []


def copied_drive(furrow):
    """A copy of a drive starts beside the first process: no panic, and it is not told to be well."""
    with Running(furrow) as running:
        running.write("key", "value")
        witness = running.cluster.node_of(0, "witness")
        drive = running.drive(running.nodes.index(witness))
        witness.child.send_signal(signal.SIGSTOP)
        shutil.copyfile(drive, drive + ".copy")
        witness.child.send_signal(signal.SIGCONT)
        for number in range(50):
            running.write(f"key{number}", "value")
        command = [word.replace(drive, drive + ".copy") for word in witness.command]
        port, peer = free_ports(2)
        command[command.index("--port") + 1], command[command.index("--peer") + 1] = str(port), f"127.0.0.1:{peer}"
        copy = Process("copy", command, os.path.join(running.work, "copy.log"))
        running.others.append(copy)
        copy.start()
        time.sleep(6)
        with open(copy.log, encoding="utf-8", errors="replace") as log:
            panics = log.read().count("panicked")
        both = copy.runs() and witness.runs()
        failures = [f"the copy panicked {panics} times"] if panics else []
        return failures + (["both processes of one node run on"] if both else [])


def full_drives(furrow):
    """Drives that fill up: growing writes are refused, the replicas stay, and a status of 0 is true."""
    with Running(furrow, drive="zones=40&zone-size=8MiB") as running:
        value, reply, number, end = os.urandom(512 << 10), "+OK", 0, time.monotonic() + 90
        while reply == "+OK" and time.monotonic() < end:
            reply = running.write(f"key{number}", value, seconds=1)
            number += 1
        if reply == "+OK":
            return ["the drives were not full in time"]
        failures = [] if "OOM" in str(reply) else [f"after {number - 1} records a write is refused with {reply}"]
        ended = [node.name for node in running.nodes if "takes no writes any more" in node.tail()]
        if ended:
            failures.append(f"the replica of {ended} ended; the status is {running.cluster.status()[0]}")
        return failures


def joins_again(furrow):
    """Etcd's connection breaks once while a node joins: the node joins a little later."""
    with Running(furrow) as running:
        backup = running.cluster.node_of(0, "backup")
        backup.end()
        time.sleep(12)
        proxy = BreakingProxy(int(running.etcds.clients[0].rsplit(":", 1)[1]))
        backup.command[backup.command.index("--join") + 1] = proxy.url
        backup.start()
        time.sleep(30)
        if not proxy.has_broken:
            return ["the connection was not broken: the check shows nothing"]
        status = running.cluster.status()[0]
        return [f"30 s after the node started, with its log and its drive, the status is {status}"] if status else []


def backup_away(furrow):
    """One backup of K = 1 is away: writes go on (issue 18, what a client sees); deletes do at least."""
    with Running(furrow) as running:
        running.cluster.node_of(0, "backup").kill()
        value, failures = os.urandom(1 << 20), []
        for number in range(80):
            reply = running.write(f"key{number % 5}", value, seconds=1)
            if reply != "+OK":
                failures.append(f"after {number} MiB a write is refused with {reply}")
                break
        deletes = [try_ask(port, "DEL", "key0") for port in running.ports]
        if failures and 1 not in deletes:
            failures.append(f"DEL is refused too: {[reply for reply in deletes if 'full' in str(reply)]}")
        return failures


CHECKS = [
    joins_again,
    backup_away,
    plan_changes,
    address_off_loopback,
    older_etcd,
    leader_unknown_to_etcd,
    blank_drive,
    copied_drive,
    full_drives,
]


if __name__ == "__main__":
    sys.exit(run_checks(CHECKS))
