"""Sends the list of commands, or a load, by redis-py. See scripts/clients.sh.

Arguments: `commands LIST PORTS`, `load FILE PORTS` or `patient FILE PORTS`.
"""

import collections
import json
import sys
import threading
import time

from redis.cluster import ClusterNode, RedisCluster

from steps import BEFORE_REPLICAS, emit, read_steps

# Commands whose name has two words: redis-py takes both as the name.
TWO_WORDS = ("CLUSTER", "COMMAND")
# Settings with which a failover's second passes within one call: redis-py does not wait between attempts.
PATIENT = {"cluster_error_retry_attempts": 2000}
WORKERS = 2
PACE = 0.02


def connect(ports, **settings):
    # The library changes the list that it gets.
    nodes = [ClusterNode("127.0.0.1", int(port)) for port in ports]
    return RedisCluster(startup_nodes=nodes, decode_responses=True, **settings)


def named(words):
    two = words[0] in TWO_WORDS and len(words) > 1
    return [" ".join(words[:2])] + words[2:] if two else words


def plain(reply):
    """A reply as JSON has it."""
    if isinstance(reply, Exception):
        return {"error": f"{type(reply).__name__}: {reply}"}
    if isinstance(reply, (list, tuple)):
        return [plain(one) for one in reply]
    if isinstance(reply, dict):
        return {str(name): plain(value) for name, value in reply.items()}
    return reply


def attempt(action):
    try:
        return plain(action())
    except Exception as error:  # pylint: disable=broad-except
        # Whatever the library raises is its reply.
        return plain(error)


def send_together(pipeline, commands):
    def run():
        for _, words in commands:
            pipeline.execute_command(*named(words))
        return pipeline.execute(raise_on_error=False)

    return attempt(run)


def all_keys(redis):
    return sorted(redis.scan_iter(match="*", target_nodes=RedisCluster.PRIMARIES))


def send_commands(path, ports):
    redis, replicas = connect(ports), None
    for kind, commands in read_steps(path):
        number, words = commands[-1]
        if kind in ("|", "&"):
            emit(number, send_together(redis.pipeline(transaction=kind == "&"), commands))
        elif kind == "=":
            emit(number, attempt(lambda: all_keys(redis)))
        elif kind == "~":
            if replicas is None:
                time.sleep(BEFORE_REPLICAS)
                replicas = connect(ports, read_from_replicas=True)
            emit(number, attempt(lambda words=words: replicas.execute_command(*named(words))))
        else:
            emit(number, attempt(lambda words=words: redis.execute_command(*named(words))))


class Worker(threading.Thread):
    """Writes one key after the other, and reads each back."""

    def __init__(self, redis, number, stopping):
        super().__init__(daemon=True)
        self.redis, self.number, self.stopping = redis, number, stopping
        self.acknowledged, self.errors, self.wrong, self.longest = [], collections.Counter(), 0, 0.0

    def run(self):
        n = 0
        while not self.stopping.is_set():
            key, value = f"redis-py:{self.number}:{n}", f"value{n}"
            begun = time.monotonic()
            try:
                self.redis.set(key, value)
                self.acknowledged.append((key, value))
                n += 1
                if self.redis.get(key) != value:
                    self.wrong += 1
            except Exception as error:  # pylint: disable=broad-except
                # Whatever the library raises reaches the program. The outcome of a write is open: it is sent again.
                self.errors[f"{type(error).__name__}: {error}"[:120]] += 1
            self.longest = max(self.longest, time.monotonic() - begun)
            time.sleep(PACE)


def load(path, ports, **settings):
    redis, stopping = connect(ports, **settings), threading.Event()
    workers = [Worker(redis, number, stopping) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    print("ready", flush=True)
    # The input ends when the load is to end, and with the program that started this one.
    sys.stdin.read()
    stopping.set()
    for worker in workers:
        worker.join(60)
    with open(path, "w", encoding="utf-8") as lines:
        for worker in workers:
            lines.writelines(f"{key}\t{value}\n" for key, value in worker.acknowledged)
    errors = sum((worker.errors for worker in workers), collections.Counter())
    wrong, longest = sum(worker.wrong for worker in workers), max(worker.longest for worker in workers)
    print(json.dumps({"errors": errors, "wrong": wrong, "longest_s": longest}))


if __name__ == "__main__":
    mode, file, nodes = sys.argv[1], sys.argv[2], sys.argv[3:]
    if mode == "commands":
        send_commands(file, nodes)
    else:
        load(file, nodes, **(PATIENT if mode == "patient" else {}))
