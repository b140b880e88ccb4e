"""Replaces, drains and removes nodes of a cluster under load, and compares every acknowledged record. See scripts/cluster.sh."""

import argparse
import json
import sys
import time

from kills import Client, compare
from processes import Cluster, Etcds, report, stop, whole_cluster

CLIENTS = 3
NODES = 5
# The time after which a silent node is replaced: its lease lasts for 10 s first.
REPLACE_AFTER = "3s"
SOON = 120


def until(seconds, doing, done):
    """Waits until something is so. Gives the seconds that it took."""
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > seconds:
            raise SystemExit(f"not in {seconds} s: {doing}")
        time.sleep(0.3)
    return round(time.monotonic() - begun, 1)


class Operator:
    """The steps that an operator takes."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.seconds = {}

    def values(self):
        """The keys and values in etcd."""
        code, said = self.cluster.ask("dump")
        pairs = (line.partition(" ") for line in said.splitlines()) if code == 0 else []
        return {key.removeprefix("/furrow/barn/"): value for key, _, value in pairs}

    def names(self):
        """The nodes with replicas, those that leave too."""
        plans = [json.loads(value) for key, value in self.values().items() if key.endswith("/want")]
        return {member["node"] for plan in plans for member in plan["members"] + plan["leaving"]}

    def members(self):
        """The nodes that a group is to have replicas on."""
        _, status = self.cluster.status()
        replicas = [replica for group in status.get("groups", []) for replica in group["replicas"]]
        return {replica["node"] for replica in replicas}

    def is_whole_without(self, name):
        return self.cluster.status()[0] == 0 and name not in self.members()

    def wait(self, step, done):
        self.seconds[step] = until(SOON, step, done)
        print(f"{step}: {self.seconds[step]} s", file=sys.stderr)

    def lose(self, node, step):
        """A machine dies for good."""
        name = self.cluster.name_of(node)
        node.kill()
        self.wait(step, lambda: self.is_whole_without(name))
        return name

    def check(self, words, code, text):
        found, said = self.cluster.ask(*words)
        if found != code or text not in said:
            raise SystemExit(f"furrow cluster {' '.join(words)}: exit code {found}, wanted {code} and {text!r}: {said}")


def steps(cluster, etcds, operator):
    first, second, third, _, spare = cluster.nodes
    # A machine dies: the others have its replicas once it has been silent for a while.
    lost = operator.lose(first, "a silent node is replaced")
    # A machine is to be taken away: its replicas go first, then the node.
    spare.start()
    cluster.name_of(spare)
    name = cluster.name_of(second)
    operator.check(["replace", "--node", name], 1, "is alive")
    operator.check(["drain", "--node", name], 0, "has no replicas any more")
    operator.wait("a node is drained", lambda: operator.is_whole_without(name))
    if second.end() != 0:
        raise SystemExit(f"a drained node ended with an error: {second.tail()}")
    operator.wait("its lease ends", lambda: f"alive/{name}" not in operator.values())
    operator.check(["replace", "--node", name], 0, "is removed from the cluster")
    if any(name in key for key in operator.values()):
        raise SystemExit("etcd has keys of a node that was removed")
    second.start()
    operator.wait("a removed node refuses to start", lambda: not second.runs())
    if "was removed from the cluster" not in second.tail():
        raise SystemExit(f"a removed node does not say so: {second.tail()}")
    # The machine that died comes back, with replicas that nobody counts on any more.
    first.start()
    operator.wait("a node that comes back deletes its replicas", lambda: lost not in operator.names())
    # It has replicas again as soon as another one dies.
    etcds.back_up()
    operator.wait("etcd is there again", lambda: cluster.status()[0] == 0)
    gone = operator.lose(third, "the node that came back takes over")
    members = operator.members()
    if lost not in members:
        raise SystemExit("the node that came back has no replicas")
    # Etcd is restored from a copy that knows nothing of that: the groups keep their members, and get plans of them.
    etcds.restore()
    operator.check(["epoch", "--raise"], 0, "is in epoch 2")
    operator.wait(
        "the plans are those of the groups after a restore of etcd",
        lambda: operator.is_whole_without(gone) and operator.members() == members,
    )
    operator.check(["epoch", "--raise", "2"], 1, "already")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("--work", required=True)
    options = arguments.parse_args()
    etcds = Etcds(options.work, members=1)
    cluster = Cluster(
        options.furrow, options.work, etcds, nodes=NODES, copies=1, arguments=["--replace-after", REPLACE_AFTER]
    )
    operator = Operator(cluster)
    failed = []
    with whole_cluster(cluster, etcds, first=NODES - 1):
        clients = [Client(number, cluster.ports) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(2)
        steps(cluster, etcds, operator)
        stop(clients, 30)
        live = [port for node, port in zip(cluster.nodes, cluster.ports) if node.runs()]
        lost = compare(live, clients)
        # Everything lies on the drives of the nodes that are left.
        servers = [node for node in cluster.nodes if node.runs()]
        for node in servers:
            node.kill()
        for node in servers:
            node.start()
        operator.wait("all nodes restart", lambda: cluster.status()[0] == 0)
        lost += compare(live, clients)
        result = {
            "acknowledged": sum(len(client.acknowledged) for client in clients),
            "lost": len(lost),
            "wrong_reads": sum(len(client.wrong) for client in clients),
            "errors_seen": sum(len(client.errors) for client in clients),
            "seconds": operator.seconds,
        }
        print(json.dumps(result, indent=2))
        if lost or result["wrong_reads"]:
            failed.append(f"{len(lost)} acknowledged records are lost, {result['wrong_reads']} reads were wrong")
    return report(failed)


if __name__ == "__main__":
    sys.exit(main())
