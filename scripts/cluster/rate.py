"""SETs a second of a cluster beside those of one server alone, and Debian's tools against the cluster. See scripts/cluster-rate.sh."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

from processes import Cluster, Etcds, Process, free_ports

CLIENTS = 64
VALUE_BYTES = 512
KEYS = 100_000
# Requests of one repetition: some seconds each on a slow machine.
REQUESTS = {"alone": 100_000, "cluster": 30_000}


def run(*command):
    """The output of a command that must end with 0."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def rate(port, of):
    """SETs a second by redis-benchmark."""
    command = ["redis-benchmark", "-p", str(port), "-t", "set", "-n", str(REQUESTS[of]), "-r", str(KEYS)]
    command += ["-d", str(VALUE_BYTES), "-c", str(CLIENTS), "--csv"] + (["--cluster"] if of == "cluster" else [])
    said = run(*command)
    found = re.search(r'^"SET[^"]*","([0-9.]+)"', said, re.MULTILINE)
    if found is None:
        raise SystemExit(f"redis-benchmark names no rate:\n{said[-2000:]}")
    return float(found.group(1))


def expect(wanted, said, of):
    if wanted not in said:
        raise SystemExit(f"{of} does not say \"{wanted}\":\n{said[-2000:]}")


def use_tools(cluster):
    """redis-cli -c finds keys of all groups from any node, and redis-cli --cluster check finds the cluster whole."""
    for number, key in enumerate(["barn", "field", "{barn}:2", "meadow", "furrow"]):
        writes, reads = (cluster.ports[(number + step) % len(cluster.ports)] for step in (0, 2))
        said = run("redis-cli", "-c", "-p", str(writes), "set", key, f"value {number}")
        expect("OK", said, f"redis-cli -c set {key}")
        said = run("redis-cli", "-c", "-p", str(reads), "get", key)
        expect(f"value {number}", said, f"redis-cli -c get {key}")
    said = run("redis-cli", "--cluster", "check", f"127.0.0.1:{cluster.ports[0]}")
    expect("[OK] All nodes agree about slots configuration.", said, "redis-cli --cluster check")
    expect("[OK] All 16384 slots covered.", said, "redis-cli --cluster check")


def wait_until_answers(port):
    end = time.monotonic() + 60
    while subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True, check=False).stdout != b"PONG\n":
        if time.monotonic() > end:
            raise SystemExit(f"nothing answers on port {port}")
        time.sleep(0.1)


def load_average():
    with open("/proc/loadavg", encoding="ascii") as load:
        return load.read().split()[:3]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--furrow", required=True)
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--repetitions", type=int, default=5)
    options = arguments.parse_args()
    etcds = Etcds(options.work)
    cluster = Cluster(options.furrow, options.work, etcds)
    port = free_ports(1)[0]
    drive = f"emu:{os.path.join(options.work, 'alone.img')}?zones=64&zone-size=16MiB"
    command = [options.furrow, "serve", "-d", drive, "--port", str(port), "--http", "none", "--write-buffer", "4MiB"]
    alone = Process("the server alone", command, os.path.join(options.work, "alone.log"))
    rates = {"alone": [], "cluster": []}
    loads = []
    try:
        etcds.start()
        alone.start()
        cluster.start()
        cluster.create()
        cluster.wait_until_whole()
        wait_until_answers(port)
        use_tools(cluster)
        for number in range(options.repetitions):
            loads.append(load_average())
            rates["alone"].append(rate(port, "alone"))
            rates["cluster"].append(rate(cluster.ports[number % len(cluster.ports)], "cluster"))
            print(f"{number + 1}: {rates['alone'][-1]:.0f} alone, {rates['cluster'][-1]:.0f} cluster", file=sys.stderr)
        use_tools(cluster)
    except BaseException:
        for process in [alone] + cluster.nodes:
            print(f"--- {process.name}\n{process.tail()}", file=sys.stderr)
        raise
    finally:
        codes = cluster.end() + [alone.end()]
        etcds.end()
    medians = {of: statistics.median(of_all) for of, of_all in rates.items()}
    by_alone = sorted(one / other for one, other in zip(rates["cluster"], rates["alone"]))
    result = {
        "sets_per_s": rates,
        "median": medians,
        "cluster_by_alone": round(medians["cluster"] / medians["alone"], 3),
        "cluster_by_alone_of_each_repetition": [round(share, 3) for share in by_alone],
        "load_averages_before": loads,
        "processors": os.cpu_count(),
    }
    print(json.dumps(result, indent=2))
    if any(codes):
        print(f"furrow: servers ended with {codes}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
