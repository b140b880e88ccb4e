"""What clients and operators see of a cluster whose processes stop, end or are cut off. See scripts/cluster-views.sh.

Each check has a cluster of its own, and names what is wrong."""

import os
import signal
import sys
import threading
import time

from faults import Redis, Running, is_answer, try_ask
from processes import run_checks

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


def majority_lost(furrow):
    """A leader whose followers stop refuses commands with CLUSTERDOWN, long before the hold is over, and serves again with them."""
    hold = 120
    with Running(furrow, options=["--hold", f"{hold}s"]) as running:
        running.write("key", "before")
        leader = running.cluster.node_of(0, "primary")
        others = [node for node in running.nodes if node is not leader]
        for node in others:
            node.child.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        replies = []
        while time.monotonic() < begun + hold / 2 and not any("CLUSTERDOWN" in str(reply) for reply in replies):
            try:
                replies.append(Redis(running.port_of(leader), seconds=hold / 2).ask("SET", "key", "after"))
            except OSError as error:
                # The outcome of what was under way is open.
                replies.append(f"{type(error).__name__}: {error}")
        print(f"  {replies[-1]} after {time.monotonic() - begun:.2f} s", file=sys.stderr)
        failures = [] if "CLUSTERDOWN" in str(replies[-1]) else [f"after {hold / 2} s: {replies[-1]}"]
        for node in others:
            node.child.send_signal(signal.SIGCONT)
        told = running.write("key", "again", seconds=60)
        return failures if told == "+OK" else failures + [f"with the followers back: {told}"]


def ends_hand_over(furrow):
    """SIGTERM hands the lead over, and etcd's sign of life goes at once; kill -9 beside it. Prints the pauses of writes."""
    rounds, pauses, failures = 5, {"SIGTERM": [], "kill -9": []}, []
    with Running(furrow) as running:
        writer = Writer(running, "key")
        writer.start()
        for number in range(2 * rounds):
            way = "SIGTERM" if number % 2 == 0 else "kill -9"
            running.cluster.wait_until_whole()
            time.sleep(1)
            victim = running.cluster.node_of(0, "primary")
            begin = time.monotonic()
            if way == "SIGTERM":
                code = victim.end()
                alive = running.alive()
                if code or len(alive) != len(running.nodes) - 1:
                    failures.append(f"exit code {code}, {len(alive)} nodes alive in etcd after it")
            else:
                victim.kill()
            time.sleep(3)
            pauses[way].append(writer.pause(begin, time.monotonic()))
            victim.start()
        writer.stop()
        final = running.read("key")
        if final is None or int(final) < writer.acknowledged[-1][1]:
            failures.append(f"{writer.acknowledged[-1][1]} was acknowledged, the key is {final}")
    for way, longest in pauses.items():
        print(f"  {way}: pauses of {', '.join(f'{pause:.3f}' for pause in sorted(longest))} s", file=sys.stderr)
    if sorted(pauses["SIGTERM"])[rounds // 2] >= sorted(pauses["kill -9"])[rounds // 2]:
        failures.append("the median pause at SIGTERM is no shorter than at kill -9")
    return failures


def leads_return(furrow):
    """After each process was killed and started again, each leads the group that the plan prefers it for."""
    with Running(furrow, groups=3) as running:
        begin = [group["leader"] for group in running.cluster.status()[1]["groups"]]
        preferred = running.preferred()
        for node in running.nodes:
            node.kill()
            time.sleep(2)
            node.start()
            running.cluster.wait_until_whole()
        begun = time.monotonic()
        while time.monotonic() < begun + 120:
            leaders = [group["leader"] for group in running.cluster.status()[1].get("groups", [])]
            if leaders == preferred:
                break
            time.sleep(0.5)
        print(f"  replicas {begin} led, {preferred} are preferred, {leaders} lead {time.monotonic() - begun:.0f} s after the last start", file=sys.stderr)
        return [] if leaders == preferred else [f"{leaders} lead, {preferred} are preferred"]


def follower_full(furrow):
    """A follower's drive nears full: growing writes are refused with OOM, DEL is taken, and no replica ends."""
    drives = ["zones=40&zone-size=8MiB"] + 2 * ["zones=256&zone-size=8MiB"]
    running = Running(furrow, drive=drives)
    running.nodes[0].command += ["--offer", "backup"]
    with running:
        value, reply, number, end = os.urandom(512 << 10), "+OK", 0, time.monotonic() + 120
        while reply == "+OK" and time.monotonic() < end:
            reply = running.write(f"key{number}", value, seconds=2)
            number += 1
        deleted = [try_ask(port, "DEL", "key0") for port in running.ports]
        print(f"  {number - 1} records of 512 KiB, then {str(reply)[:60]}", file=sys.stderr)
        failures = [] if "OOM" in str(reply) else [f"after {number - 1} records a write is answered with {reply}"]
        if 1 not in deleted:
            failures.append(f"DEL is answered with {deleted}")
        ended = [node.name for node in running.nodes if "the replica has ended" in node.tail()]
        if ended or running.cluster.status()[0]:
            failures.append(f"the replica of {ended} ended; the status is {running.cluster.status()[0]}")
        return failures


CHECKS = [readonly_reads, follower_full, majority_lost, ends_hand_over, leads_return]


if __name__ == "__main__":
    sys.exit(run_checks(CHECKS))
