"""Clients that note what they see of a cluster while its network fails. See scripts/partitions.sh."""

import threading
import time

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

from machines import CLIENT_PORT

# A command is held for up to 2 s where its group has no leader (furrow serve --hold): clients wait longer than that.
STOCK_TIMEOUT = 5.0


def tag_of(machines, group):
    """A hash tag whose keys are the group's."""
    first, end = machines.slots(group)
    tags = (f"t{n}" for n in range(10000))
    return next(f"{{{tag}}}" for tag in tags if first <= key_slot(tag.encode()) < end)


class Writer(threading.Thread):
    """An unmodified cluster client: writes records of one group, one after the other, and reads some back."""

    def __init__(self, machines, group, number):
        super().__init__(daemon=True)
        self.machines, self.group = machines, group
        self.prefix = f"{tag_of(machines, group)}client{number}:"
        self.acknowledged, self.errors, self.wrong = [], [], []
        self.stopping = threading.Event()

    def run(self):
        client = connect(self.machines)
        n = 0
        while not self.stopping.is_set():
            key, value = f"{self.prefix}{n}", f"value{n}"
            try:
                client.set(key, value)
                self.acknowledged.append((time.monotonic(), key, value))
                n += 1
                if n % 5 == 0 and client.get(key) != value:
                    self.wrong.append(key)
            except Exception as error:  # pylint: disable=broad-except
                # Whatever the library raises reaches the program. The outcome is open: the record is written again.
                self.errors.append((time.monotonic(), f"{type(error).__name__}: {error}"))
            time.sleep(0.005)

    def pause(self, begin, end):
        """The longest time between two acknowledged writes that overlaps a time."""
        times = [begin] + [at for at, _, _ in list(self.acknowledged)]
        longest = 0.0
        for one, after in zip(times, times[1:]):
            if after > begin and one < end:
                longest = max(longest, after - one)
        return max(longest, end - times[-1])

    def errors_within(self, begin, end):
        """The errors that reached the program within a time."""
        return [text for at, text in list(self.errors) if begin <= at <= end]

    def stop(self):
        """Ends the client."""
        self.stopping.set()
        self.join(30)


def connect(machines):
    """An unmodified cluster client, once one node answers."""
    end = time.monotonic() + 60
    while True:
        try:
            # The library changes the list that it gets.
            nodes = [ClusterNode(node.host.address, CLIENT_PORT) for node in machines.nodes]
            return RedisCluster(
                startup_nodes=nodes, **machines.client_settings,
                socket_timeout=STOCK_TIMEOUT, socket_connect_timeout=1,
            )
        except (redis.RedisError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


class Register(threading.Thread):
    """Overwrites one key with 1, 2, 3, ... at any node but those that are avoided."""

    def __init__(self, machines, group, key):
        super().__init__(daemon=True)
        self.machines, self.group, self.key = machines, group, key
        self.avoided = []
        # Of each value: when it was sent, and when it was acknowledged, or None while the outcome is open.
        self.sent, self.done = {}, {}
        self.stopping = threading.Event()

    def run(self):
        node, client, value = None, None, 0
        while not self.stopping.is_set():
            if node is None or node in self.avoided:
                node = next(one for one in self.machines.nodes if one not in self.avoided and one is not node)
                client = self.machines.connect(node, 2.5)
            value += 1
            self.sent[value] = time.monotonic()
            try:
                client.set(self.key, value)
                self.done[value] = time.monotonic()
                time.sleep(0.005)
            except redis.RedisError as error:
                words = str(error).split()
                moved = isinstance(error, redis.exceptions.MovedError)
                node = self.machines.by_address(words[1]) if moved else self._next(node)
                client = self.machines.connect(node, 2.5)
                time.sleep(0.02)

    def _next(self, node):
        nodes = [one for one in self.machines.nodes if one not in self.avoided]
        return nodes[(nodes.index(node) + 1) % len(nodes)] if node in nodes else nodes[0]

    def pause(self, begin, end):
        """The longest time between two acknowledged writes that overlaps a time."""
        times = [begin] + sorted(self.done.values())
        longest = max((b - a for a, b in zip(times, times[1:]) if b > begin and a < end), default=0.0)
        return max(longest, end - max(times))

    def last_done(self, moment):
        """The greatest value that was acknowledged by then."""
        return max((value for value, at in list(self.done.items()) if at <= moment), default=0)

    def last_sent(self, moment):
        """The greatest value that was sent by then."""
        return max((value for value, at in list(self.sent.items()) if at <= moment), default=0)

    def stop(self):
        """Ends the client."""
        self.stopping.set()
        self.join(30)


class Resident(threading.Thread):
    """Reads one key at one node without pause, and never goes elsewhere."""

    def __init__(self, machines, node, key):
        super().__init__(daemon=True)
        self.machines, self.node, self.key = machines, node, key
        self.reads, self.refusals = [], []
        self.stopping = threading.Event()

    def run(self):
        client = self.machines.connect(self.node, STOCK_TIMEOUT)
        while not self.stopping.is_set():
            asked = time.monotonic()
            try:
                value = client.get(self.key)
                self.reads.append((asked, time.monotonic(), int(value or 0)))
            except redis.RedisError as error:
                self.refusals.append((asked, time.monotonic(), str(error)))
            time.sleep(0.002)

    def kinds(self):
        """The first words of the refusals."""
        return {error.split()[0] for _, _, error in self.refusals}

    def stale(self, register):
        """The reads whose value was not the current one at any time between request and reply.

        A value whose outcome is open may become the current one at any time after it was sent.
        """
        return [
            (asked, got, value)
            for asked, got, value in self.reads
            if not (value not in register.done and value in register.sent and register.sent[value] <= got)
            and not register.last_done(asked) <= value <= register.last_sent(got)
        ]

    def stop(self):
        """Ends the client."""
        self.stopping.set()
        self.join(30)
