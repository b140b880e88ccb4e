"""Stock clients of Redis Cluster against three stock redis-server and a cluster of Furrow. See scripts/clients.sh."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys

from failovers import under_failovers
from processes import Cluster, Etcds
from redis_servers import RedisServers
from replies import LIST, Comparison, listed_differences
from steps import count_commands

HERE = os.path.dirname(os.path.abspath(__file__))
# How long a client may take for the list of commands, in seconds.
LIMIT = 60
BENCHMARK = ["-t", "set,get", "-n", "4000", "-c", "20", "--csv"]


def client_programs(programs):
    """How each client's program is started, by the client's name."""
    python, classes = sys.executable, f"{programs}/jars/*:{programs}/classes"
    return {
        "redis-cli": [python, os.path.join(HERE, "redis_cli.py")],
        "redis-py": [python, os.path.join(HERE, "redis_py.py")],
        "ioredis": ["node", os.path.join(HERE, "ioredis.js")],
        "go-redis": [os.path.join(programs, "goredis")],
        "Jedis": ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classes, "JedisClient"],
    }


def run(command, allowed=LIMIT):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=allowed, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command[:4])} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-3000:]}")
    return ran.stdout


def clear(ports):
    """Removes all keys, and makes sure that none is left."""
    for port in ports:
        run(["redis-cli", "-p", str(port), "flushall"])
    sizes = [run(["redis-cli", "-p", str(port), "dbsize"]).strip() for port in ports]
    if sizes != ["0"] * len(ports):
        raise SystemExit(f"FLUSHALL left keys, or DBSIZE failed: {sizes}")


def cluster_check(ports):
    """What is wrong with the cluster by redis-cli --cluster check: nothing, or one sentence."""
    command = ["redis-cli", "--cluster", "check", f"127.0.0.1:{ports[0]}"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    wanted = ("[OK] All nodes agree about slots configuration.", "[OK] All 16384 slots covered.")
    if checked.returncode == 0 and all(line in checked.stdout for line in wanted):
        return []
    return [f"redis-cli --cluster check ended with {checked.returncode}: {checked.stdout.strip()[-300:]}"]


def benchmark(ports):
    """The requests a second of redis-benchmark --cluster, SET and GET."""
    printed = run(["redis-benchmark", "--cluster", "-p", str(ports[0]), *BENCHMARK])
    rates = dict(re.findall(r'^"(SET|GET)","([0-9.]+)"', printed, re.MULTILINE))
    if set(rates) != {"SET", "GET"}:
        raise SystemExit(f"redis-benchmark --cluster measured nothing: {printed}")
    return rates


def wrong_infos(ports):
    """The nodes whose INFO has no answer, or no sensible number of keys. Nodes lead several groups after failovers."""
    wrong = []
    for port in ports:
        command = ["redis-cli", "-p", str(port), "info"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        keys = re.search(r"^db0:keys=(\d+)", asked.stdout, re.MULTILINE)
        if "# Keyspace" not in asked.stdout or keys and int(keys.group(1)) >= 2**32:
            said = keys.group(0) if keys else (asked.stdout + asked.stderr).strip()[-200:]
            wrong.append(f"INFO at the node on {port}: {said}")
    return wrong


def compare_clients(clients, redis, furrow, work):
    listed = listed_differences()
    compared = {}
    for name, command in clients.items():
        printed = []
        for cluster, target in ((redis, "redis"), (furrow, "furrow")):
            clear(cluster.ports)
            printed.append(run([*command, "commands", LIST, *map(str, cluster.ports)]))
            with open(os.path.join(work, f"{name}-{target}.txt"), "w", encoding="utf-8") as file:
                file.write(printed[-1])
        compared[name] = Comparison(name, *printed, listed)
        for text, one, other in compared[name].unlisted:
            print(f"{name}: {text}\n    Redis:  {one}\n    Furrow: {other}", file=sys.stderr)
    used = set().union(*(one.used for one in compared.values()))
    intended = [name for name, (kind, _) in listed.items() if kind == "intended"]
    return compared, [f"no client differs in '{name[1]}' any more: {name[0]}" for name in intended if name not in used]


def print_table(rows):
    widths = [max(len(str(row[n])) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        first, *others = zip(map(str, row), widths)
        print("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]))
    print()


def print_replies(compared):
    rows = [["replies", "compared", "equal", "intended", "faults", "other"]]
    for name, one in compared.items():
        rows.append([name, one.replies, one.equal, one.kinds["intended"], one.kinds["fault"], len(one.unlisted)])
    print_table(rows)


def print_failovers(title, seen):
    rows = [[title, "SETs", "lost", "wrong reads", "errors", "longest s"]]
    for name, saw in seen.items():
        errors = sum(saw["errors"].values())
        rows.append([name, saw["acknowledged"], saw["lost"], saw["wrong"], errors, f"{saw['longest_s']:.2f}"])
    print_table(rows)
    for name, saw in seen.items():
        for text, count in saw["errors"].items():
            print(f"{name}: {count} times: {text}")
    print()


def check_all(options, redis, furrow, clients):
    failed = cluster_check(redis.ports) + cluster_check(furrow.ports)
    print(f"{count_commands(LIST)} commands; redis-benchmark, requests a second:", file=sys.stderr)
    for cluster, name in ((redis, "redis-server"), (furrow, "furrow")):
        print(f"  {name}: {json.dumps(benchmark(cluster.ports))}", file=sys.stderr)
    compared, stale = compare_clients(clients, redis, furrow, options.work)
    failed += stale
    redis.end()
    print_replies(compared)
    for name, one in compared.items():
        if one.unlisted:
            failed.append(f"{name}: {len(one.unlisted)} replies differ from those of redis-server")
    loads = {name: command for name, command in clients.items() if name != "redis-cli"}
    for mode, title in (("load", "default settings"), ("patient", "more attempts")):
        clear(furrow.ports)
        print(f"{options.kills} failovers, {title}", file=sys.stderr)
        seen = under_failovers(furrow, loads, mode, options.work, options.kills)
        print_failovers(title, seen)
        for name, saw in seen.items():
            if saw["lost"] or saw["wrong"] or not saw["acknowledged"]:
                failed.append(f"{name}: {saw['acknowledged']} acknowledged, {saw['lost']} lost, {saw['wrong']} wrong")
    return failed + wrong_infos(furrow.ports) + cluster_check(furrow.ports)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("--programs", required=True, help="where the built programs and jars are")
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--kills", type=int, default=5)
    options = arguments.parse_args()
    # The servers are ended after SIGTERM too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    redis, etcds = RedisServers(options.work), Etcds(options.work, members=1)
    furrow = Cluster(options.furrow, options.work, etcds, nodes=3, groups=3, copies=1)
    try:
        redis.start()
        etcds.start()
        furrow.start()
        furrow.create()
        furrow.wait_until_whole()
        failed = check_all(options, redis, furrow, client_programs(options.programs))
    except BaseException:
        for process in redis.nodes + furrow.nodes + etcds.members:
            if os.path.exists(process.log):
                print(f"--- {process.name}\n{process.tail()}", file=sys.stderr)
        raise
    finally:
        codes = furrow.end()
        etcds.end()
        redis.end()
    if any(codes):
        failed.append(f"servers ended with {codes}")
    for failure in failed:
        print(f"furrow: {failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
