"""Checks of an ensemble: the snapshots of its servers, the acknowledged writes of `Load`, and how long writes took.

    check.py turns FOLDER                        never two commanded snapshots at once; the leader's turn begins only while no other server is due; every server had turns
    check.py writes FOLDER                       every acknowledged write is on every server
    check.py latencies FOLDER NAME BEGIN END     adds how long the writes took that were acknowledged between two times (Unix milliseconds) to measured.jsonl
    check.py summary FOLDER                      the medians of measured.jsonl

The folder has server-N.log, the events of `furrow zk turns` (events.jsonl), kills (lines of a server's number and Unix milliseconds), acknowledged (by `Load write`), read-N
(by `Load read` from server N).
"""
import calendar, json, pathlib, re, statistics, sys, time

what, folder, *arguments = sys.argv[1:]
folder = pathlib.Path(folder)
SERVERS = (1, 2, 3)
LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3}) \[([^\]]*)\] \w+ (Snapshotting: |Snapshot taken in )")


def snapshots(server):
    """The snapshots of a server: begin and end in Unix milliseconds, whether a request to its AdminServer had them taken, and the server."""
    kills = [tuple(map(int, line.split())) for line in (folder / "kills").read_text().splitlines()]
    begun = {}
    for line in (folder / f"server-{server}.log").read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if not match:
            continue
        date, millis, thread, event = match.groups()
        at = calendar.timegm(time.strptime(date, "%Y-%m-%d %H:%M:%S")) * 1000 + int(millis)
        commanded = thread.startswith("qtp")
        if event.startswith("Snapshotting"):
            begun[thread] = at
        elif thread in begun:
            yield begun.pop(thread), at, commanded, server
    for thread, at in begun.items():
        ends = [when for killed, when in kills if killed == server and when >= at]
        yield at, min(ends, default=float("inf")), thread.startswith("qtp"), server


def all_snapshots():
    return sorted(snapshot for server in SERVERS for snapshot in snapshots(server))


def turns():
    taken = all_snapshots()
    commanded = [snapshot for snapshot in taken if snapshot[2]]
    for before, after in zip(commanded, commanded[1:]):
        if after[0] < before[1]:
            sys.exit(f"two commanded snapshots at once: {before} and {after}")
    for server in SERVERS:
        if not any(snapshot[3] == server for snapshot in commanded):
            sys.exit(f"server {server} took no commanded snapshot")
    # The last line may be torn: the program was killed.
    events = []
    for line in (folder / "events.jsonl").read_text().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            pass
    begun = [event for event in events if event["event"] == "turn-begins"]
    for event in begun:
        if event["role"] == "leader" and event["also_due"]:
            sys.exit(f"the leader's turn began while others were due: {event}")
    if not any(event["role"] == "leader" for event in begun):
        sys.exit("no leader had a turn")
    own = len(taken) - len(commanded)
    told = sum(event["count"] for event in events if event["event"] == "own-snapshots")
    longest = max(after - before for before, after, _, _ in commanded)
    print(f"{len(commanded)} commanded snapshots, the longest {longest} ms, never two at once; {own} by the servers themselves, of which {told} since the start were told")


def acknowledgements():
    """The acknowledged writes: number, node, version of the node, Unix milliseconds, latency in microseconds."""
    # The last line may be torn: the program was killed.
    lines = (folder / "acknowledged").read_text().rpartition("\n")[0].splitlines()
    return [tuple(map(int, line.split())) for line in lines]


def writes():
    acknowledged = {}
    for number, node, version, *_ in acknowledgements():
        # Each write of a node raises its version by one: where a server forgot a write, a later one gets the version again.
        if (node, version) in acknowledged:
            sys.exit(f"node {node}: version {version} was acknowledged to the writes {acknowledged[node, version]} and {number}")
        acknowledged[node, version] = number
    if not acknowledged:
        sys.exit("no write was acknowledged")
    for server in SERVERS:
        found = {}
        for line in (folder / f"read-{server}").read_text().splitlines():
            node, version, number = map(int, line.split())
            found[node] = version, number
        for (node, version), number in acknowledged.items():
            last, written = found.get(node, (-1, None))
            if last < version or (last == version and written != number):
                sys.exit(f"server {server}: the acknowledged write {number} of node {node} is missing: version {version}, and there are version {last}, write {written}")
    print(f"{len(acknowledged)} acknowledged writes, and each is on all servers")


def numbers(latencies):
    """How many latencies, their median, their p99 and the longest, in milliseconds."""
    latencies = sorted(latencies)
    if not latencies:
        return {"writes": 0}
    at = lambda part: latencies[int(len(latencies) * part)] / 1000
    return {"writes": len(latencies), "p50": at(0.5), "p99": at(0.99), "max": latencies[-1] / 1000}


def latencies(name, begin, end):
    begin, end = int(begin), int(end)
    taken = [snapshot for snapshot in all_snapshots() if begin <= snapshot[0] <= end]
    within = {True: [], False: []}
    for _, _, _, at, micros in acknowledgements():
        if begin <= at <= end:
            due = at - micros / 1000
            within[any(due <= last and at >= first for first, last, _, _ in taken)].append(micros)
    if not within[True] and not within[False]:
        sys.exit(f"{name}: no write was acknowledged in the time")
    lengths = [last - first for first, last, _, _ in taken]
    row = {"name": name, "all": numbers(within[True] + within[False]), "in snapshots": numbers(within[True]), "outside": numbers(within[False])}
    row["snapshots"] = {"number": len(lengths), "longest": max(lengths, default=0)}
    with (folder / "measured.jsonl").open("a") as rows:
        print(json.dumps(row), file=rows)


def summary():
    rows = [json.loads(line) for line in (folder / "measured.jsonl").read_text().splitlines()]
    runs = {}
    for row in rows:
        runs.setdefault(row["name"], []).append(row)
    for name, rows in runs.items():
        snapshots = [row["snapshots"] for row in rows]
        number, longest = sum(each["number"] for each in snapshots), max(each["longest"] for each in snapshots)
        print(f"{name}: {number} snapshots, the longest {longest} ms")
        for part in ("all", "in snapshots", "outside"):
            measured = [row[part] for row in rows if row[part]["writes"]]
            if not measured or (part == "outside" and not number):
                continue
            shown = []
            for quantity in ("p50", "p99", "max"):
                values = [each[quantity] for each in measured]
                spread = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
                shown.append(f"{quantity} {statistics.median(values):.1f}{spread}")
            print(f"    {part}: {sum(each['writes'] for each in measured)} writes, ms: {', '.join(shown)}")


{"turns": turns, "writes": writes, "latencies": latencies, "summary": summary}[what](*arguments)
