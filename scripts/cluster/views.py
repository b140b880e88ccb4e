"""What clients and operators see of a cluster whose processes stop, end or are cut off. See scripts/cluster-views.sh.

Each check has a cluster of its own, and names what is wrong."""

import argparse
import signal
import sys
import threading
import time

from faults import Redis, Running, is_answer

# The age up to which backups answer (furrow serve --stale-limit), in seconds.
STALE_LIMIT = 1.0


class Writer(threading.Thread):
    """Overwrites one key with 1, 2, 3, ... where its group is led, and notes when each value was acknowledged."""

    def __init__(self, running, key):
        super().__init__(daemon=True)
        self.running, self.key = running, key
        self.acknowledged = []
        self.stopping = threading.Event()

    def run(self):
        ports, value, redis = list(self.running.ports), 1, None
        while not self.stopping.is_set():
            try:
                redis = redis or Redis(ports[0], seconds=5)
                reply = redis.ask("SET", self.key, value)
            except OSError:
                reply = "-gone"
            if reply == "+OK":
                self.acknowledged.append((time.monotonic(), value))
                value += 1
                time.sleep(0.002)
                continue
            redis = None
            port = int(reply.rsplit(":", 1)[1]) if reply.startswith("-MOVED") else ports[0]
            ports = [port] + [other for other in ports if other != port] if port != ports[0] else ports[1:] + ports[:1]
            time.sleep(0.005)

    def acknowledged_before(self, moment):
        """The greatest value acknowledged before a time."""
        return max((value for at, value in list(self.acknowledged) if at < moment), default=0)

    def pause(self, begin, end):
        """The longest time between two acknowledged writes that overlaps a time."""
        times = [begin] + [at for at, _ in list(self.acknowledged)] + [end]
        return max(b - a for a, b in zip(times, times[1:]) if b > begin and a < end)

    def stop(self):
        """Ends the writer."""
        self.stopping.set()
        self.join(30)


def readonly_reads(furrow):
    """READONLY at a backup finds what was acknowledged a second ago, and ends a second after the leader stopped."""
    with Running(furrow) as running:
        writer = Writer(running, "key")
        writer.start()
        backup = running.cluster.node_of(0, "backup")
        redis = Redis(running.port_of(backup))
        failures = [] if redis.ask("READONLY") == "+OK" else ["READONLY is refused"]
        reads, oldest = [], 0.0
        begun, stopped = time.monotonic(), None
        while stopped is None or time.monotonic() < stopped + 2.5 * STALE_LIMIT:
            asked = time.monotonic()
            reply = redis.ask("GET", "key")
            if is_answer(reply):
                value = int(reply or 0)
                reads.append(asked)
                if value < writer.acknowledged_before(asked - STALE_LIMIT):
                    failures.append(f"a read finds {value}: {writer.acknowledged_before(asked - STALE_LIMIT)} was acknowledged")
                newer = [at for at, other in list(writer.acknowledged) if other == value + 1]
                oldest = max([oldest] + [asked - at for at in newer])
            if stopped is None and time.monotonic() > begun + 4:
                stopped = time.monotonic()
                for node in running.nodes:
                    if node is not backup:
                        node.child.send_signal(signal.SIGSTOP)
                stopped_after = time.monotonic()
            time.sleep(0.002)
        for node in running.nodes:
            node.child.send_signal(signal.SIGCONT)
        writer.stop()
        before = sum(at < stopped for at in reads)
        print(f"  {before} reads before the leader stopped, the oldest value was replaced {oldest:.3f} s before; "
              f"the last read is answered {reads[-1] - stopped_after:.2f} s after", file=sys.stderr)
        if before < 100:
            failures.append(f"{before} reads are answered by the backup")
        if reads[-1] > stopped_after + STALE_LIMIT:
            failures.append(f"a read is answered {reads[-1] - stopped_after:.2f} s after the leader stopped")
        return failures


CHECKS = [readonly_reads]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("checks", nargs="*", help="names of checks; all if none is given")
    options = arguments.parse_args()
    failed = 0
    for check in CHECKS:
        if options.checks and check.__name__ not in options.checks:
            continue
        failures = check(options.furrow)
        failed += bool(failures)
        print(f"{check.__name__}: {'; '.join(failures) or 'holds'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
