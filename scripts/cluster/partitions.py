"""Shows what clients see while the network of a cluster fails. See scripts/partitions.sh."""

import argparse
import collections
import signal
import sys
import time

import redis

from machines import Machines
from watchers import Register, Resident, Writer, connect, tag_of

WRITERS_OF_A_GROUP = 2
# The longest pause of a client: where a leader is lost, and where only etcd is.
LONGEST_PAUSE = 3.0
LONGEST_PAUSE_WITHOUT_ETCD = 1.0
# A command without a leader is refused after --hold, which is 2 s.
LONGEST_HOLD = 2.5
# The terms that one failure may begin: the groups whose leader it was, and one more trial of each.
MOST_TERMS = 6
# From the moment at which all servers are ready, after power came back everywhere.
LONGEST_RETURN = 5.0
KEYS_OF_A_READ = 500


class Partitions:
    """The cases, one after the other, on one cluster under load."""

    def __init__(self, machines):
        self.machines = machines
        self.rows, self.failures = [], []
        numbers = range(machines.groups * WRITERS_OF_A_GROUP)
        self.writers = [Writer(machines, number % machines.groups, number) for number in numbers]
        # Of each lost record: when it was acknowledged.
        self.lost = {}

    def check(self, holds, what):
        """Notes a failure where something that must hold does not."""
        if not holds:
            self.failures.append(what)
            print(f"FAILED: {what}", file=sys.stderr)

    def row(self, case, begin, groups=None, limit=LONGEST_PAUSE, errors=None):
        """Adds a line of the table: what the writers of `groups` saw from `begin` to now.

        `limit`: the longest pause that they may see; `errors`: the most errors.
        """
        end = time.monotonic()
        writers = [writer for writer in self.writers if groups is None or writer.group in groups]
        pause = max(writer.pause(begin, end) for writer in writers)
        texts = [text for writer in writers for text in writer.errors_within(begin, end)]
        self.rows.append({"case": case, "pause": pause, "errors": len(texts), "begin": begin, "end": end})
        print(f"{case}: longest pause {pause:.2f} s, {len(texts)} errors", file=sys.stderr)
        for text, count in collections.Counter(text[:100] for text in texts).most_common(4):
            print(f"    {count} times: {text}", file=sys.stderr)
        self.check(limit is None or pause <= limit, f"{case}: a pause of {pause:.2f} s, above {limit} s")
        self.check(errors is None or len(texts) <= errors, f"{case}: {len(texts)} errors reached clients")

    def compare(self):
        """Reads every acknowledged record. Each that is lost counts for the case in which it was acknowledged."""
        client = connect(self.machines)
        for writer in self.writers:
            records = list(writer.acknowledged)
            for n in range(0, len(records), KEYS_OF_A_READ):
                part = records[n : n + KEYS_OF_A_READ]
                found = self._read(client, [key for _, key, _ in part])
                for (at, key, value), there in zip(part, found):
                    if there != value and key not in self.lost:
                        self.lost[key] = at
                        print(f"LOST: {key} is {there}, acknowledged at {at:.2f}", file=sys.stderr)

    def _read(self, client, keys):
        for _ in range(20):
            try:
                return client.mget(*keys)
            except (redis.RedisError, OSError):
                time.sleep(0.5)
        raise SystemExit("the records cannot be read")

    def leader_cut_off(self):
        """1. The leader of a group is cut off from all others and from etcd. Its clients reach it."""
        machines, group = self.machines, 0
        key = tag_of(machines, group) + "register"
        old = machines.leader(group)
        register, resident = Register(machines, group, key), Resident(machines, old, key)
        register.start()
        time.sleep(0.5)
        resident.start()
        time.sleep(1)
        terms = machines.epoch()
        begin = time.monotonic()
        register.avoided = [old]
        old.host.cut(machines.others(old))
        self._writes_at_the_old_leader(old, tag_of(machines, group) + "stray", begin + 7)
        new = machines.leader(group, [old])
        healed = time.monotonic()
        pause = register.pause(begin, healed)
        answered = max((got - begin for _, got, _ in resident.reads if got < healed), default=0)
        old.host.heal()
        time.sleep(4)
        resident.stop()
        register.stop()
        self.row("leader cut off", begin)
        stale, rose = resident.stale(register), machines.epoch() - terms
        print(
            f"    elsewhere a pause of {pause:.2f} s; {new.name} leads after {old.name}; terms rose by {rose}\n"
            f"    {len(resident.reads)} reads at the old leader, the last one {answered:.2f} s after the cut, "
            f"{len(stale)} stale; {len(resident.refusals)} refused: {sorted(resident.kinds())}",
            file=sys.stderr,
        )
        self.check(len(resident.reads) > 100 and len(register.done) > 100, "the register was hardly read or written")
        self.check(not stale, f"stale reads at the old leader: {stale[:3]}")
        self.check(pause <= LONGEST_PAUSE, f"writes went on elsewhere after {pause:.2f} s")
        self.check(new is not old, "the leader that is cut off was not replaced")
        self.check(rose <= MOST_TERMS, f"leader cut off: terms rose by {rose}")

    def _writes_at_the_old_leader(self, old, key, end):
        client = self.machines.connect(old, 10)
        replies = []
        while time.monotonic() < end:
            asked = time.monotonic()
            try:
                reply = str(client.set(key, "stray"))
            except redis.RedisError as error:
                reply = f"{type(error).__name__} {error}"
            took = time.monotonic() - asked
            replies.append((took, reply))
            print(f"    a write at the old leader: {took:.2f} s, {reply[:100]}", file=sys.stderr)
            time.sleep(0.1)
        self.check(all(took <= LONGEST_HOLD for took, _ in replies), "a write at the old leader was held for too long")
        refused = [reply for _, reply in replies[1:]]
        self.check(
            all("MovedError" in reply or "CLUSTERDOWN" in reply or "not served" in reply for reply in refused),
            f"replies at the leader that is cut off: {refused}",
        )

    def one_way_cuts(self):
        """2. Only the leader's packets vanish; then only those to it."""
        for name, out in (("leader unheard", True), ("leader deaf", False)):
            machines = self.machines
            old = machines.leader(1)
            terms, begin = machines.epoch(), time.monotonic()
            old.host.cut(machines.others(old), out=out, into=not out)
            time.sleep(6)
            self.row(f"{name}, cut", begin)
            begin = time.monotonic()
            old.host.heal()
            time.sleep(5)
            self.row(f"{name}, healed", begin)
            self._terms(name, terms)

    def _terms(self, name, before):
        rose = self.machines.epoch() - before
        print(f"    terms rose by {rose}", file=sys.stderr)
        self.check(rose <= MOST_TERMS, f"{name}: terms rose by {rose}")

    def flapping_link(self):
        """3. The link of a group's leader goes down and up."""
        machines, group = self.machines, 2
        old = machines.leader(group)
        led = {number for number in range(machines.groups) if machines.leader(number) is old}
        terms, begin = machines.epoch(), time.monotonic()
        while time.monotonic() < begin + 15:
            for state in ("down", "up"):
                old.host.set_link(state)
                time.sleep(0.3)
        others = set(range(machines.groups)) - led
        if others:
            self.row("flapping link, other groups", begin, others)
        self.row("flapping link, its groups", begin, led, limit=None)
        healed = time.monotonic()
        time.sleep(4)
        self.row("flapping link, healed", healed, limit=None)
        self._terms("flapping link", terms)

    def etcd_cut_off(self):
        """4. Etcd is cut off for 60 s. A leader is killed meanwhile."""
        machines = self.machines
        etcd = machines.etcd.host
        begin = time.monotonic()
        etcd.cut([node.host for node in machines.nodes])
        time.sleep(30)
        self.row("etcd cut off", begin, limit=LONGEST_PAUSE_WITHOUT_ETCD, errors=0)
        killed = time.monotonic()
        old = machines.leader(0)
        old.kill()
        time.sleep(10)
        self.row("etcd cut off, a leader killed", killed)
        restarted = time.monotonic()
        old.start()
        time.sleep(max(0.0, begin + 60 - time.monotonic()))
        self.row("etcd cut off, the node returns", restarted, limit=LONGEST_PAUSE_WITHOUT_ETCD, errors=0)
        healed = time.monotonic()
        etcd.heal()
        took = machines.wait_until_whole(40)
        self.row("etcd is back", healed, limit=LONGEST_PAUSE_WITHOUT_ETCD, errors=0)
        print(f"    whole for etcd {took:.1f} s after it was back", file=sys.stderr)
        for group in range(machines.groups):
            said = self._primary(group)
            leader = machines.leader(group)
            names = said and said.name, leader.name
            self.check(said is leader, f"etcd says that {names[0]} leads group {group}, and {names[1]} does")

    def _primary(self, group):
        _, status = self.machines.status()
        for replica in status["groups"][group]["replicas"]:
            if replica["role"] == "primary":
                return self.machines.by_address(replica["client"])
        return None

    def power_everywhere(self):
        """5. All processes are killed at once, and started again: with etcd, then with etcd's link down."""
        machines = self.machines
        for name, with_etcd in (("power everywhere", True), ("power everywhere, no etcd", False)):
            ready = [node.count_ready() for node in machines.nodes]
            begin = time.monotonic()
            for process in machines.nodes + [machines.etcd]:
                process.kill()
            if not with_etcd:
                machines.etcd.host.set_link("down")
            machines.etcd.start()
            started = time.monotonic()
            for node in machines.nodes:
                node.start()
            for node, times in zip(machines.nodes, ready):
                node.wait_until_ready(times + 1)
            mounted = time.monotonic()
            served = self._until_served(mounted)
            print(f"    ready after {mounted - started:.2f} s, all groups serve {served:.2f} s later", file=sys.stderr)
            self.check(served <= LONGEST_RETURN, f"{name}: a group served {served:.2f} s after the servers were ready")
            time.sleep(2)
            self.compare()
            self.row(name, begin, limit=None)
            if not with_etcd:
                machines.etcd.host.set_link("up")
            machines.wait_until_whole()

    def _until_served(self, begin, seconds=30):
        """Seconds from `begin` until each group has acknowledged a write that came later."""
        while time.monotonic() < begin + seconds:
            firsts = [self._first_write(group, begin) for group in range(self.machines.groups)]
            if None not in firsts:
                return max(firsts) - begin
            time.sleep(0.05)
        return float("inf")

    def _first_write(self, group, begin):
        writers = [writer for writer in self.writers if writer.group == group]
        return min((at for writer in writers for at, _, _ in writer.acknowledged[-500:] if at > begin), default=None)

    def run(self, only):
        """Runs the cases and prints the table."""
        for writer in self.writers:
            writer.start()
        time.sleep(3)
        cases = [
            self.leader_cut_off, self.one_way_cuts, self.flapping_link, self.etcd_cut_off, self.power_everywhere,
        ]
        for number, case in enumerate(cases, 1):
            if only and number not in only:
                continue
            begin = time.monotonic()
            print(f"== {case.__doc__}", file=sys.stderr)
            case()
            self.compare()
            if number < len(cases):
                self.machines.wait_until_whole()
            print(f"== {time.monotonic() - begin:.0f} s", file=sys.stderr)
        for writer in self.writers:
            writer.stop()
        self.compare()
        self._print()

    def _print(self):
        print(f"{'case':<34} {'longest pause':>13} {'errors':>7} {'lost':>5}")
        for row in self.rows:
            lost = sum(row["begin"] <= at <= row["end"] for at in self.lost.values())
            print(f"{row['case']:<34} {row['pause']:>11.2f} s {row['errors']:>7} {lost:>5}")
        acknowledged = sum(len(writer.acknowledged) for writer in self.writers)
        wrong = sum(len(writer.wrong) for writer in self.writers)
        print(f"{acknowledged} records acknowledged, {len(self.lost)} lost, {wrong} reads wrong")
        self.check(not self.lost and not wrong, f"{len(self.lost)} records lost, {wrong} reads wrong")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--prefix", required=True, help="the beginning of the namespaces' names")
    arguments.add_argument("--only", default="", help="the numbers of cases")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    machines = Machines(options.furrow, options.work, options.prefix)
    partitions = None
    try:
        machines.start()
        machines.network.enter()
        machines.wait_until_whole()
        partitions = Partitions(machines)
        partitions.run({int(number) for number in options.only.split(",") if number})
    except BaseException:
        print(machines.logs(), file=sys.stderr)
        raise
    finally:
        codes = machines.end()
    if any(codes):
        partitions.failures.append(f"servers ended with {codes}")
    for failure in partitions.failures:
        print(f"furrow: {failure}", file=sys.stderr)
    return 1 if partitions.failures else 0


if __name__ == "__main__":
    sys.exit(main())
