"""Counts by FURROW.ONCE while leaders of groups are killed (kill -9): each command counts once. See scripts/cluster.sh."""

import argparse
import json
import sys
import threading
import time

from kills import connect
from processes import Cluster, Etcds, report, stop, whole_cluster

CLIENTS = 6
BETWEEN_KILLS = 3.0


class Counter(threading.Thread):
    """Counts a key up by commands that run once. After an error the same command is sent again, until it is answered."""

    def __init__(self, number, ports):
        super().__init__(daemon=True)
        self.key, self.ports = f"counter{number}", ports
        self.answered, self.errors, self.wrong = 0, [], []
        self.stopping = threading.Event()

    def run(self):
        redis = connect(self.ports)
        once = None
        while once is None:
            once = self._send(redis, "FURROW.ONCE", "NEW", self.key)
        while not self.stopping.is_set():
            number = self.answered + 1
            answer = None
            while answer is None:
                answer = self._send(redis, "FURROW.ONCE", once, number, "INCR", self.key)
            if int(answer) != number:
                self.wrong.append((number, answer))
            # The answer is repeated also where nothing went wrong.
            if number % 10 == 0 and self._send(redis, "FURROW.ONCE", once, number, "INCR", self.key) not in (answer, None):
                self.wrong.append((number, "repeated"))
            self.answered = number

    def _send(self, redis, *words):
        try:
            return redis.execute_command(*words)
        except Exception as error:  # pylint: disable=broad-except
            # The outcome is open.
            self.errors.append(f"{type(error).__name__}: {error}")
            time.sleep(0.02)
            return None


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--kills", type=int, default=6)
    options = arguments.parse_args()
    etcds = Etcds(options.work)
    cluster = Cluster(options.furrow, options.work, etcds)
    failed = []
    with whole_cluster(cluster, etcds, failed=failed):
        counters = [Counter(number, cluster.ports) for number in range(CLIENTS)]
        for counter in counters:
            counter.start()
        time.sleep(2)
        for kill in range(options.kills):
            victim = cluster.node_of(kill % cluster.groups, "primary")
            if victim is None:
                raise SystemExit(f"nobody leads group {kill % cluster.groups}")
            victim.kill()
            print(f"kill {kill + 1}: {victim.name}", file=sys.stderr)
            time.sleep(BETWEEN_KILLS)
            victim.start()
            cluster.wait_until_whole()
        stop(counters, 60)
        redis = connect(cluster.ports)
        counts = [int(redis.get(counter.key)) for counter in counters]
        result = {
            "commands": sum(counter.answered for counter in counters),
            "counted": sum(counts),
            "wrong_answers": sum(len(counter.wrong) for counter in counters),
            "errors_seen": sum(len(counter.errors) for counter in counters),
            "error_kinds": sorted({error[:80] for counter in counters for error in counter.errors})[:10],
            "kills": options.kills,
        }
        print(json.dumps(result, indent=2))
        if counts != [counter.answered for counter in counters] or result["wrong_answers"]:
            failed.append(f"{result['commands']} commands counted {result['counted']}, {result['wrong_answers']} answers were wrong")
    return report(failed)


if __name__ == "__main__":
    sys.exit(main())
