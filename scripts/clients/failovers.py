"""The leader of one group is killed in turn under the load of several clients. See scripts/clients.sh."""

import json
import os
import subprocess
import sys
import time

from redis.cluster import ClusterNode, RedisCluster

GROUP = 0
BETWEEN_KILLS = 3.0
# How long a client may take to begin its load, or to end it, in seconds.
LIMIT = 90


class Load:
    """A client's program that writes and reads until its input ends."""

    def __init__(self, name, command, mode, work, ports):
        self.name, self.file = name, os.path.join(work, f"acknowledged-{mode}-{name}")
        arguments = [*command, mode, self.file, *map(str, ports)]
        self.log = os.path.join(work, f"{mode}-{name}.log")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(arguments, stderr=log, **pipes)
        self.result = None

    def wait_until_ready(self):
        # The program's output ends with the program, so that this wait ends too.
        if self.child.stdout.readline().strip() != "ready":
            raise SystemExit(f"{self.name} did not begin its load: {self.tail()}")

    def end(self):
        """Ends the load, and reads what the client saw."""
        printed, _ = self.child.communicate(timeout=LIMIT)
        if self.child.returncode != 0:
            raise SystemExit(f"{self.name} failed: {self.tail()}")
        self.result = json.loads(printed.splitlines()[-1])

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def acknowledged(self):
        with open(self.file, encoding="utf-8") as lines:
            return [line.rstrip("\n").split("\t") for line in lines]

    def tail(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()[-2000:]


def missing(ports, records):
    """The acknowledged records that are not there any more."""
    redis = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port) for port in ports], decode_responses=True)
    lost = []
    for begin in range(0, len(records), 200):
        part = records[begin : begin + 200]
        pipeline = redis.pipeline()
        for key, _ in part:
            pipeline.get(key)
        lost += [key for (key, value), read in zip(part, pipeline.execute()) if read != value]
    return lost


def kill_leaders(cluster, kills):
    for number in range(kills):
        victim = cluster.node_of(GROUP, "primary")
        if victim is None:
            raise SystemExit(f"nobody is the primary of group {GROUP}")
        victim.kill()
        time.sleep(BETWEEN_KILLS)
        victim.start()
        cluster.wait_until_whole()
        print(f"kill {number + 1}: {victim.name}", file=sys.stderr)


def under_failovers(cluster, clients, mode, work, kills):
    """What each client saw while leaders were killed: the counts of a table's row, by name.

    `mode`: `load` for the clients' default settings, `patient` for more attempts.
    """
    loads = []
    try:
        for name, command in clients.items():
            loads.append(Load(name, command, mode, work, cluster.ports))
        for load in loads:
            load.wait_until_ready()
        time.sleep(2)
        kill_leaders(cluster, kills)
        time.sleep(1)
        for load in loads:
            load.end()
    finally:
        for load in loads:
            load.kill()
    seen = {}
    for load in loads:
        records = load.acknowledged()
        seen[load.name] = load.result | {"acknowledged": len(records), "lost": len(missing(cluster.ports, records))}
    return seen
