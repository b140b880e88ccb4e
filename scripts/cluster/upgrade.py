"""Rolls the servers of a cluster to a newer program, back, and forth again, under load, and compares every acknowledged record. See scripts/cluster.sh."""

import argparse
import json
import sys
import time

from kills import CLIENTS, LONGEST_PAUSE, Client, compare, longest_pause
from processes import Cluster, Etcds, report, stop, whole_cluster

REFUSED = "start the newer program again"


class Roll:
    """The programs of the cluster's servers."""

    def __init__(self, cluster, clients):
        self.cluster, self.clients = cluster, clients
        self.pauses = []

    def to(self, furrow, nodes):
        """Ends each server in turn and starts it with another program."""
        for node in nodes:
            begin = time.monotonic()
            code = node.end()
            if code != 0:
                raise SystemExit(f"{node.name} ended with {code}: {node.tail()}")
            node.command[0] = furrow
            node.start()
            self.cluster.wait_until_whole()
            self.pauses.append(longest_pause(self.clients, begin, time.monotonic()))

    def versions(self):
        """The cluster's version, and the one that it may be raised to."""
        code, said = self.cluster.ask("finalize", "--check", "--json")
        said = json.loads(said) if said.startswith("{") else {}
        return code, said.get("version"), said.get("may_be")


def upgrade(cluster, clients, older, newer):
    """Gives what does not hold, and the pauses around each start."""
    failed = []

    def expect(what, found, wanted):
        print(f"{what}: {found}", file=sys.stderr)
        if found != wanted:
            failed.append(f"{what}: {found}, and not {wanted}")

    roll = Roll(cluster, clients)
    expect("versions with the older program", roll.versions(), (0, 1, 1))
    cluster.furrow = newer
    roll.to(newer, cluster.nodes[:3])
    code, said = cluster.ask("finalize")
    expect("finalizing with two older nodes is refused", (code != 0, said.count("speaks versions up to 1")), (True, 2))
    roll.to(newer, cluster.nodes[3:])
    expect("versions with the newer program", roll.versions(), (0, 1, 2))
    cluster.furrow = older
    roll.to(older, cluster.nodes)
    expect("versions after going back", roll.versions(), (0, 1, 1))
    cluster.furrow = newer
    roll.to(newer, cluster.nodes)
    code, said = cluster.ask("finalize")
    expect("finalizing", code, 0)
    expect("versions afterwards", roll.versions(), (0, 2, 2))
    node = cluster.nodes[0]
    node.end()
    node.command[0] = older
    node.start()
    code = node.child.wait(60)
    expect("the older program is refused in words", (code != 0, REFUSED in node.tail()), (True, True))
    node.command[0] = newer
    node.start()
    cluster.wait_until_whole()
    return failed, roll.pauses


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--older", required=True, help="a program that speaks version 1 alone")
    arguments.add_argument("--newer", required=True)
    arguments.add_argument("--work", required=True)
    options = arguments.parse_args()
    etcds = Etcds(options.work)
    cluster = Cluster(options.older, options.work, etcds)
    failed = []
    with whole_cluster(cluster, etcds, failed=failed):
        clients = [Client(number, cluster.ports) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(2)
        found, pauses = upgrade(cluster, clients, options.older, options.newer)
        failed += found
        stop(clients, 30)
        lost = compare(cluster.ports, clients)
        wrong = sum(len(client.wrong) for client in clients)
        result = {
            "acknowledged": sum(len(client.acknowledged) for client in clients),
            "lost": len(lost),
            "wrong_reads": wrong,
            "errors_seen": sum(len(client.errors) for client in clients),
            "starts": len(pauses),
            "longest_pause_s": round(max(pauses), 2),
        }
        print(json.dumps(result, indent=2))
        if result["errors_seen"]:
            failed.append(f"{result['errors_seen']} errors reached clients")
        if lost or wrong:
            failed.append(f"{len(lost)} acknowledged records are lost, {wrong} reads were wrong")
        if max(pauses) > LONGEST_PAUSE:
            failed.append(f"a pause above {LONGEST_PAUSE} s")
    return report(failed)


if __name__ == "__main__":
    sys.exit(main())
