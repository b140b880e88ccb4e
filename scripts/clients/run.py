"""Stock clients of Redis Cluster against three stock redis-server and a cluster of Furrow. See scripts/clients.sh."""

import argparse
import json
import os
import re
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


def client_programs(kept):
    """How each client's program is started, by the client's name."""
    python = sys.executable
    return {
        "redis-cli": [python, os.path.join(HERE, "redis_cli.py")],
        "redis-py": [python, os.path.join(HERE, "redis_py.py")],
        "ioredis": ["node", os.path.join(HERE, "ioredis.js")],
        "go-redis": [os.path.join(kept, "goredis")],
        "Jedis": ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kept}/jars/*:{kept}/classes", "JedisClient"],
    }


def run(command, allowed=LIMIT):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=allowed, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command[:4])} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-3000:]}")
    return ran.stdout


def clear(ports):
    """Removes all keys, and makes sure that none is left."""
    run(["redis-cli", "--cluster", "call", f"127.0.0.1:{ports[0]}", "flushall"])
    sizes = run(["redis-cli", "--cluster", "call", f"127.0.0.1:{ports[0]}", "dbsize"])
    if re.findall(r":\d+: (.*)", sizes) != ["0"] * len(ports):
        raise SystemExit(f"FLUSHALL left keys, or DBSIZE failed: {sizes}")


def check_tools(ports):
    """redis-cli --cluster check and redis-benchmark --cluster. Gives the benchmark's requests a second, SET and GET."""
    checked = run(["redis-cli", "--cluster", "check", f"127.0.0.1:{ports[0]}"])
    for wanted in ("[OK] All nodes agree about slots configuration.", "[OK] All 16384 slots covered."):
        if wanted not in checked:
            raise SystemExit(f"redis-cli --cluster check does not say '{wanted}': {checked}")
    printed = run(["redis-benchmark", "--cluster", "-p", str(ports[0]), *BENCHMARK])
    rates = dict(re.findall(r'^"(SET|GET)","([0-9.]+)"', printed, re.MULTILINE))
    if set(rates) != {"SET", "GET"}:
        raise SystemExit(f"redis-benchmark --cluster measured nothing: {printed}")
    clear(ports)
    return rates


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
    return compared, [f"no client differs in '{text}' ({client})" for client, text in listed if (client, text) not in used]


def print_table(compared, seen):
    heads = ["client", "replies", "equal", "intended", "faults", "other", "", "SETs", "lost", "wrong", "errors", "longest"]
    print("{:<10}{:>8}{:>7}{:>10}{:>8}{:>7}{:>3}{:>8}{:>6}{:>7}{:>8}{:>9}".format(*heads))
    for name, one in compared.items():
        row = [name, one.replies, one.equal, one.kinds["intended"], one.kinds["fault"], len(one.unlisted), ""]
        if name in seen:
            saw = seen[name]
            row += [saw["acknowledged"], saw["lost"], saw["wrong"], sum(saw["errors"].values()), f"{saw['longest_s']:.2f} s"]
        else:
            row += ["-"] * 5
        print("{:<10}{:>8}{:>7}{:>10}{:>8}{:>7}{:>3}{:>8}{:>6}{:>7}{:>8}{:>9}".format(*row))
    for name, saw in seen.items():
        for text, count in saw["errors"].items():
            print(f"{name}: {count} times: {text}")


def check_all(options, redis, furrow, clients):
    print(f"{count_commands(LIST)} commands; redis-benchmark, requests a second:", file=sys.stderr)
    for cluster, name in ((redis, "redis-server"), (furrow, "furrow")):
        print(f"  {name}: {json.dumps(check_tools(cluster.ports))}", file=sys.stderr)
    compared, failed = compare_clients(clients, redis, furrow, options.work)
    redis.end()
    loads = {name: command for name, command in clients.items() if name != "redis-cli"}
    seen = under_failovers(furrow, loads, options.work, options.kills)
    print_table(compared, seen)
    for name, one in compared.items():
        if one.unlisted:
            failed.append(f"{name}: {len(one.unlisted)} replies differ from those of redis-server")
    for name, saw in seen.items():
        if saw["lost"] or saw["wrong"] or not saw["acknowledged"]:
            failed.append(f"{name}: {saw['acknowledged']} acknowledged, {saw['lost']} lost, {saw['wrong']} reads wrong")
    return failed


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("--kept", required=True, help="where the clients' programs and libraries are")
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--kills", type=int, default=5)
    options = arguments.parse_args()
    redis, etcds = RedisServers(options.work), Etcds(options.work, members=1)
    furrow = Cluster(options.furrow, options.work, etcds, nodes=3, groups=3, copies=1)
    try:
        redis.start()
        etcds.start()
        furrow.start()
        furrow.create()
        furrow.wait_until_whole()
        failed = check_all(options, redis, furrow, client_programs(options.kept))
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
