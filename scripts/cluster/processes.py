"""The processes of a cluster on this machine: etcd, and servers. Each is killed by its own process id only."""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time


def free_ports(count):
    """Ports of the loopback interface that nothing listened on a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run_checks(checks):
    """Runs the checks that the arguments name, all if they name none. Each gets the program, and gives what does not hold. Gives the exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("checks", nargs="*", help="names of checks; all if none is given")
    options = arguments.parse_args()
    failed = 0
    for check in checks:
        if options.checks and check.__name__ not in options.checks:
            continue
        failures = check(options.furrow)
        failed += bool(failures)
        print(f"{check.__name__}: {'; '.join(failures) or 'holds'}", flush=True)
    return 1 if failed else 0


@contextlib.contextmanager
def whole_cluster(cluster, etcds, first=None, failed=None):
    """Starts etcd and the first servers, all if no number is given, and makes a cluster of them; ends all of them. Of an error it prints the ends of their logs. Exit codes of servers other than 0 go to `failed`, where that is given."""
    try:
        etcds.start()
        for node in cluster.nodes[:first]:
            node.start()
        cluster.create()
        cluster.wait_until_whole()
        yield
    except BaseException:
        for process in cluster.nodes + etcds.members:
            if process.child is not None:
                print(f"--- {process.name}\n{process.tail()}", file=sys.stderr)
        raise
    finally:
        codes = cluster.end()
        etcds.end()
        if failed is not None and any(codes):
            failed.append(f"servers ended with {codes}")


def stop(threads, seconds):
    """Ends threads that look at `stopping`."""
    for thread in threads:
        thread.stopping.set()
    for thread in threads:
        thread.join(seconds)


def report(failed):
    """Prints what failed. Gives the exit code."""
    for failure in failed:
        print(f"furrow: {failure}", file=sys.stderr)
    return 1 if failed else 0


class Process:
    """A program that can be killed and started again with the same arguments."""

    def __init__(self, name, command, log):
        self.name, self.command, self.log = name, command, log
        self.child = None

    def start(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)

    def kill(self):
        """kill -9."""
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def end(self):
        """SIGTERM, and after a while SIGKILL. Gives the exit code."""
        if self.child is None or self.child.poll() is not None:
            return self.child.returncode if self.child else 0
        self.child.terminate()
        try:
            return self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def runs(self):
        return self.child is not None and self.child.poll() is None

    def tail(self):
        with open(self.log, "rb") as log:
            return log.read()[-3000:].decode(errors="replace")


class Etcds:
    """An etcd of three members."""

    def __init__(self, work, members=3):
        ports = free_ports(2 * members)
        self.clients = [f"http://127.0.0.1:{port}" for port in ports[:members]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
        cluster = ",".join(f"e{n}={peer}" for n, peer in enumerate(peers))
        self.members, self.data = [], [os.path.join(work, f"etcd{n}") for n in range(members)]
        for n, (client, peer) in enumerate(zip(self.clients, peers)):
            command = ["etcd", "--name", f"e{n}", "--data-dir", self.data[n]]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            command += ["--initial-cluster", cluster, "--initial-cluster-state", "new"]
            self.members.append(Process(f"etcd {n}", command, os.path.join(work, f"etcd{n}.log")))

    def start(self):
        for member in self.members:
            member.start()

    def back_up(self):
        """Copies what the only member has, which is ended meanwhile."""
        self.members[0].end()
        shutil.copytree(self.data[0], self.data[0] + ".copy")
        self.members[0].start()

    def restore(self):
        """The only member goes on from the copy."""
        self.members[0].end()
        shutil.rmtree(self.data[0])
        shutil.copytree(self.data[0] + ".copy", self.data[0])
        self.members[0].start()

    def leader(self):
        """The member that leads etcd: it says so itself."""
        for member, client in zip(self.members, self.clients):
            if not member.runs():
                continue
            asked = subprocess.run(["curl", "-s", "-m", "2", client + "/metrics"], capture_output=True, text=True, check=False)
            if "\netcd_server_is_leader 1" in asked.stdout:
                return member
        return None

    def end(self):
        for member in self.members:
            member.end()


class Cluster:
    """Servers of one cluster, with an emulated drive each."""

    def __init__(self, furrow, work, etcds, nodes=5, groups=3, copies=2, timeout="500ms", arguments=()):
        self.furrow, self.etcds, self.groups, self.copies = furrow, etcds, groups, copies
        ports = free_ports(2 * nodes)
        self.ports = ports[:nodes]
        self.nodes = []
        for n, (port, peer) in enumerate(zip(self.ports, ports[nodes:])):
            drive = f"emu:{os.path.join(work, f'drive{n}.img')}?zones=64&zone-size=16MiB"
            command = [furrow, "serve", "-d", drive, "--port", str(port), "--http", "none"]
            command += ["--join", ",".join(etcds.clients), "--cluster", "barn", "--peer", f"127.0.0.1:{peer}"]
            command += ["--election-timeout", timeout, "--write-buffer", "4MiB", *arguments]
            self.nodes.append(Process(f"node on {port}", command, os.path.join(work, f"node{n}.log")))

    def start(self):
        for node in self.nodes:
            node.start()

    def create(self):
        command = [self.furrow, "cluster", "create", "--groups", str(self.groups), "--copies", str(self.copies)]
        created = subprocess.run(command + self._where(), capture_output=True, text=True, timeout=180, check=False)
        if created.returncode != 0:
            raise SystemExit(f"furrow cluster create: {created.stderr.strip()}")

    def status(self):
        """The exit code of `furrow cluster status`, and what it says."""
        asked = subprocess.run(
            [self.furrow, "--json", "cluster", "status"] + self._where(), capture_output=True, text=True, timeout=60, check=False
        )
        return asked.returncode, json.loads(asked.stdout) if asked.stdout.startswith("{") else {}

    def wait_until_whole(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.status()[0] == 0:
                return
            time.sleep(0.3)
        raise SystemExit(f"the cluster is not whole after {seconds} s: {self.status()}")

    def ask(self, *words):
        """`furrow cluster` with these words: the exit code, and everything that it says."""
        asked = subprocess.run(
            [self.furrow, "cluster", *words] + self._where(), capture_output=True, text=True, timeout=300, check=False
        )
        return asked.returncode, asked.stdout + asked.stderr

    def name_of(self, node):
        """The UUID of a node that has started: its `ready` line says it."""
        for _ in range(300):
            said = re.search(r", node ([0-9a-f-]{36}) of cluster", node.tail())
            if said:
                return said.group(1)
            time.sleep(0.1)
        raise SystemExit(f"{node.name} is not ready: {node.tail()}")

    def node_of(self, group, role):
        """The process of a group's replica in that role."""
        for _ in range(100):
            # Etcd answers nothing while it elects a leader, and a group has no primary meanwhile.
            _, status = self.status()
            for replica in status["groups"][group]["replicas"] if "groups" in status else []:
                if replica["role"] == role:
                    return self.nodes[self.ports.index(int(replica["client"].rsplit(":", 1)[1]))]
            time.sleep(0.1)
        return None

    def end(self):
        """Ends all servers. Gives their exit codes."""
        return [node.end() for node in self.nodes]

    def _where(self):
        return ["--join", ",".join(self.etcds.clients), "--cluster", "barn"]
