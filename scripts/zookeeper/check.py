"""Checks the logs of an ensemble's servers and the events of `furrow zk turns`: check.py FOLDER.

The folder has server-N.log, events.jsonl and kills (lines of a server's number and Unix milliseconds). Never two commanded snapshots at once, by the servers'
logs; the leader's turn begins only while no other server is due; every server had turns.
"""
import calendar, json, pathlib, re, sys, time

folder = pathlib.Path(sys.argv[1])
LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3}) \[([^\]]*)\] \w+ (Snapshotting: |Snapshot taken in )")
kills = [tuple(map(int, line.split())) for line in (folder / "kills").read_text().splitlines()]


def snapshots(server):
    """The snapshots of a server: begin and end in Unix milliseconds, and whether a request to its AdminServer had them taken."""
    begun = {}
    for line in (folder / f"server-{server}.log").read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if not match:
            continue
        date, millis, thread, what = match.groups()
        at = calendar.timegm(time.strptime(date, "%Y-%m-%d %H:%M:%S")) * 1000 + int(millis)
        commanded = thread.startswith("qtp")
        if what.startswith("Snapshotting"):
            begun[thread] = at
        elif thread in begun:
            yield begun.pop(thread), at, commanded, server
    for thread, at in begun.items():
        ends = [when for killed, when in kills if killed == server and when >= at]
        yield at, min(ends, default=float("inf")), thread.startswith("qtp"), server


taken = sorted(snapshot for server in (1, 2, 3) for snapshot in snapshots(server))
commanded = [snapshot for snapshot in taken if snapshot[2]]
for before, after in zip(commanded, commanded[1:]):
    if after[0] < before[1]:
        sys.exit(f"two commanded snapshots at once: {before} and {after}")
for server in (1, 2, 3):
    if not any(snapshot[3] == server for snapshot in commanded):
        sys.exit(f"server {server} took no commanded snapshot")

# The last line may be torn: the program was killed.
events = []
for line in (folder / "events.jsonl").read_text().splitlines():
    try:
        events.append(json.loads(line))
    except ValueError:
        pass
turns = [event for event in events if event["event"] == "turn-begins"]
for event in turns:
    if event["role"] == "leader" and event["also_due"]:
        sys.exit(f"the leader's turn began while others were due: {event}")
if not any(event["role"] == "leader" for event in turns):
    sys.exit("no leader had a turn")
own = len(taken) - len(commanded)
told = sum(event["count"] for event in events if event["event"] == "own-snapshots")
longest = max(after - before for before, after, _, _ in commanded)
print(f"{len(commanded)} commanded snapshots, the longest {longest} ms, never two at once; {own} by the servers themselves, of which {told} since the start were told")
