"""A cluster whose processes run on hosts of their own: peers, etcd and clients by TLS, clients with a password too."""

import json
import os
import re
import subprocess
import time

import redis

from certificates import Authority
from network import ETCD_HOST, Network
from processes import Process

CLUSTER = "barn"
CLIENT_PORT, PEER_PORT = 6379, 7379
READY_NODE = re.compile(r"^ready: .* node ([0-9a-f-]{36}) of cluster", re.MULTILINE)


class Machines:
    """Hosts in namespaces: five nodes and an etcd of one member."""

    def __init__(self, furrow, work, prefix, nodes=5, groups=3, copies=2):
        self.furrow, self.work, self.groups, self.copies = furrow, work, groups, copies
        self.network = Network(prefix)
        self.password = "a password of clients"
        self.count = nodes
        self.etcd = None
        self.nodes = []
        self.credentials = []
        # The arguments of redis-py for a connection to a node.
        self.client_settings = {"password": self.password, "decode_responses": True, "ssl": True}

    def start(self):
        """Starts the cluster as an operator does: certificates of nodes need the UUIDs, which a first start gives."""
        self.network.start()
        authority = Authority(self.work)
        self.client_settings["ssl_ca_certs"] = authority.certificate
        self._start_etcd(authority)
        self._write_password(authority.path("password"))
        for number in range(1, self.count + 1):
            self._add_node(authority, number)
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_ready(1)
            node.uuid = READY_NODE.search(node.text())[1]
            authority.sign(node.certificate, node.key, node.name, [f"DNS:{node.uuid}.furrow"])
        created = self._admin("create", "--groups", str(self.groups), "--copies", str(self.copies))
        if created.returncode != 0:
            raise SystemExit(f"furrow cluster create: {created.stderr.strip()}")

    def _start_etcd(self, authority):
        host = self.network.add_host("etcd", ETCD_HOST)
        certificate, key = authority.path("etcd.pem"), authority.path("etcd.key")
        authority.sign(certificate, key, "etcd", [f"IP:{host.address}"])
        client = [authority.path("client.pem"), authority.path("client.key")]
        authority.sign(*client, "furrow", [])
        url = f"https://{host.address}:2379"
        command = ["etcd", "--name", "e0", "--data-dir", authority.path("etcd")]
        command += ["--listen-client-urls", url, "--advertise-client-urls", url]
        command += ["--cert-file", certificate, "--key-file", key]
        command += ["--client-cert-auth", "--trusted-ca-file", authority.certificate]
        # Peers of etcd: there are none.
        peers = "http://127.0.0.1:2380"
        command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        command += ["--initial-cluster", f"e0={peers}"]
        self.etcd = Process("etcd", host.command(command), authority.path("etcd.log"))
        self.etcd.host = host
        self.etcd.start()
        self.credentials = ["--join", url, "--cluster", CLUSTER, "--etcd-authority", authority.certificate]
        self.credentials += ["--etcd-certificate", client[0], "--etcd-key", client[1]]

    def _write_password(self, path):
        with open(path, "w", encoding="ascii") as file:
            file.write(self.password + "\n")
        os.chmod(path, 0o600)

    def _add_node(self, authority, number):
        host = self.network.add_host(f"node{number}", number)
        certificate, key = authority.path(f"node{number}.pem"), authority.path(f"node{number}.key")
        clients = [authority.path(f"clients{number}.pem"), authority.path(f"clients{number}.key")]
        authority.sign(*clients, host.name, [f"IP:{host.address}"])
        command = [self.furrow, "serve", "-d", f"emu:{authority.path(f'drive{number}.img')}?zones=64&zone-size=16MiB"]
        command += ["--bind", host.address, "--port", str(CLIENT_PORT), "--password-file", authority.path("password")]
        command += ["--client-tls-certificate", clients[0], "--client-tls-key", clients[1]]
        command += ["--announce", f"{host.address}:{CLIENT_PORT}", "--http", "none", "--write-buffer", "4MiB"]
        command += ["--peer", f"{host.address}:{PEER_PORT}", "--peer-authority", authority.certificate]
        command += ["--peer-certificate", certificate, "--peer-key", key, *self.credentials]
        self.nodes.append(Node(host, command, authority.path(f"node{number}.log"), certificate, key))

    def _admin(self, *words):
        command = [self.furrow, "--json", "cluster", *words, *self.credentials]
        command = ["ip", "netns", "exec", self.network.bridge, *command]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)

    def status(self):
        """What `furrow cluster status` says: its exit code, and its output."""
        asked = self._admin("status")
        return asked.returncode, json.loads(asked.stdout) if asked.stdout.startswith("{") else {}

    def wait_until_whole(self, seconds=60):
        """Waits until `furrow cluster status` ends with 0, and gives the seconds that it took."""
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            if self.status()[0] == 0:
                return time.monotonic() - begin
            time.sleep(0.2)
        raise SystemExit(f"the cluster is not whole after {seconds} s: {self.status()}")

    def others(self, node, etcd=True):
        """The hosts of the other nodes, and etcd's."""
        hosts = [other.host for other in self.nodes if other is not node]
        return hosts + [self.etcd.host] if etcd else hosts

    def by_address(self, address):
        """The node with an address for clients."""
        return next(node for node in self.nodes if node.host.address == address.rsplit(":", 1)[0])

    def connect(self, node, seconds=1.0):
        """A client of one node that follows no redirection."""
        return redis.Redis(
            node.host.address, CLIENT_PORT, **self.client_settings, socket_timeout=seconds, socket_connect_timeout=1,
        )

    def leader(self, group, without=()):
        """The node that says itself that it leads a group: that needs no etcd. The nodes `without` are not asked."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for node in self.nodes:
                if node in without or not node.runs():
                    continue
                first = self.slots(group)[0]
                try:
                    for begin, _, leader, *_ in self.connect(node).execute_command("CLUSTER SLOTS"):
                        found = self.by_address(leader[0])
                        if begin == first and found is node:
                            return node
                except (redis.RedisError, OSError):
                    pass
            time.sleep(0.05)
        raise SystemExit(f"group {group} has no leader")

    def slots(self, group):
        """The first slot of a group, and the one behind its last: a cluster begins with even ranges."""
        return tuple(16384 * number // self.groups for number in (group, group + 1))

    def epoch(self, without=()):
        """The highest epoch that a node names: it rises by one with each term of each group."""
        epochs = []
        for node in self.nodes:
            if node not in without and node.runs():
                try:
                    text = self.connect(node, 3).execute_command("CLUSTER INFO")
                    epochs.append(int(text["cluster_current_epoch"]))
                except (redis.RedisError, OSError):
                    pass
        return max(epochs)

    def end(self):
        """Ends all processes and removes the network. Gives the servers' exit codes."""
        codes = [node.end() for node in self.nodes]
        if self.etcd is not None:
            self.etcd.end()
        self.network.end()
        return codes

    def logs(self):
        """The last lines of each process."""
        processes = self.nodes + ([self.etcd] if self.etcd is not None else [])
        written = [process for process in processes if os.path.exists(process.log)]
        return "\n".join(f"--- {process.name}\n{process.tail()}" for process in written)


class Node(Process):
    """A server on a host of its own."""

    def __init__(self, host, command, log, certificate, key):
        super().__init__(host.name, host.command(command), log)
        self.host, self.certificate, self.key = host, certificate, key
        self.uuid = None

    def text(self):
        """What the process has written."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def count_ready(self):
        """How often the process said that it is ready, since its first start."""
        return len(READY_NODE.findall(self.text()))

    def wait_until_ready(self, times, seconds=30):
        """Waits until the process said `times` times that it is ready."""
        end = time.monotonic() + seconds
        while self.count_ready() < times:
            if time.monotonic() > end or not self.runs():
                raise SystemExit(f"{self.name} is not ready: {self.tail()}")
            time.sleep(0.02)
