"""Network namespaces joined by a bridge, and failures of the network between them. See scripts/partitions.sh."""

import ctypes
import os
import subprocess

# The last number of the addresses: nodes have 1, 2, ...
ETCD_HOST = 100
CLIENTS_HOST = 200
CLONE_NEWNET = 0x40000000


def run(*command, text=None):
    """Runs a command that must succeed."""
    ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {ran.stderr.strip()}")
    return ran.stdout


class Host:
    """A network namespace with one address on the bridge."""

    def __init__(self, network, name, number):
        self.network, self.name, self.number = network, name, number
        self.namespace = f"{network.prefix}-{name}"
        self.address = f"10.77.0.{number}"
        # The name of an interface has at most 15 characters.
        self.port = f"to-{name}"

    def command(self, command):
        """The command as one that runs in the namespace, under the process id of the caller's child."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def cut(self, others, out=True, into=True):
        """Drops the packets to other hosts, from them, or both. No connection is closed: packets vanish."""
        addresses = ", ".join(other.address for other in others)
        rules = ["table ip cut {"]
        if out:
            rules.append(f"chain out {{ type filter hook output priority 0; ip daddr {{ {addresses} }} drop; }}")
        if into:
            rules.append(f"chain into {{ type filter hook input priority 0; ip saddr {{ {addresses} }} drop; }}")
        rules.append("}")
        run(*self.command(["nft", "-f", "-"]), text="\n".join(rules))

    def heal(self):
        """Ends the cut."""
        run(*self.command(["nft", "delete", "table", "ip", "cut"]))

    def set_link(self, state):
        """Takes the host's port of the bridge down, or up."""
        run("ip", "-n", self.network.bridge, "link", "set", self.port, state)


class Network:
    """A namespace with a bridge, in which clients run, and a namespace for each other host."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.bridge = f"{prefix}-clients"
        self.address = f"10.77.0.{CLIENTS_HOST}"
        self.hosts = []
        self.made = []

    def start(self):
        """Makes the bridge."""
        self._make(self.bridge)
        run("ip", "-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.bridge, "addr", "add", f"{self.address}/24", "dev", "bridge")
        run("ip", "-n", self.bridge, "link", "set", "bridge", "up")

    def add_host(self, name, number):
        """Makes a host."""
        host = Host(self, name, number)
        self._make(host.namespace)
        inside = ["ip", "-n", host.namespace]
        run("ip", "-n", self.bridge, "link", "add", host.port, "type", "veth", "peer", "eth0", "netns", host.namespace)
        run("ip", "-n", self.bridge, "link", "set", host.port, "master", "bridge", "up")
        run(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        self.hosts.append(host)
        return host

    def enter(self):
        """Moves the calling thread, and those that it starts from then on, into the namespace of the clients."""
        namespace = os.open(f"/run/netns/{self.bridge}", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, CLONE_NEWNET) != 0:
            raise SystemExit(f"setns: {os.strerror(ctypes.get_errno())}")
        os.close(namespace)

    def end(self):
        """Removes the namespaces, and with them everything inside."""
        for namespace in reversed(self.made):
            subprocess.run(["ip", "netns", "del", namespace], check=False)

    def _make(self, namespace):
        made = subprocess.run(["ip", "netns", "add", namespace], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise SystemExit(f"no network namespace can be made, so that nothing is shown: {made.stderr.strip()}")
        self.made.append(namespace)
        run("ip", "-n", namespace, "link", "set", "lo", "up")
