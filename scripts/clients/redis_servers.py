"""Three stock redis-server in a cluster on this machine, without replicas."""

import os
import subprocess
import time

from processes import Process, free_ports

# How long the servers may take until the cluster is up, in seconds.
LIMIT = 60


class RedisServers:
    """The servers, each killed by its own process id only."""

    def __init__(self, work, count=3):
        ports = free_ports(2 * count)
        self.ports = ports[:count]
        self.nodes = []
        for port, bus in zip(self.ports, ports[count:]):
            directory = os.path.join(work, f"redis{port}")
            os.mkdir(directory)
            command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""]
            command += ["--cluster-enabled", "yes", "--cluster-port", str(bus), "--appendonly", "no"]
            self.nodes.append(Process(f"redis-server on {port}", command, os.path.join(directory, "log")))

    def start(self):
        for node in self.nodes:
            node.start()
        for port in self.ports:
            self._wait(port, ["ping"], "PONG")
        command = ["redis-cli", "--cluster", "create", *(f"127.0.0.1:{port}" for port in self.ports), "--cluster-yes"]
        created = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if created.returncode != 0:
            raise SystemExit(f"redis-cli --cluster create: {created.stdout}{created.stderr}")
        for port in self.ports:
            self._wait(port, ["cluster", "info"], "cluster_state:ok")

    def end(self):
        for node in self.nodes:
            node.end()

    @staticmethod
    def _wait(port, words, answer):
        """Waits until a server's answer has a text."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            asked = subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, check=False)
            if answer in asked.stdout:
                return
            time.sleep(0.1)
        raise SystemExit(f"the redis-server on port {port} does not answer {words} with {answer}")
