"""Has an ensemble's servers take snapshots for some seconds: snapshots.py HOW SECONDS CREDENTIALS SERVER...

HOW: "turns": one server after the other; "together": all servers at the same time. A server is the HOST:PORT of its AdminServer. Prints the Unix milliseconds of the begin and the end, and the
number of snapshots.
"""
import pathlib, sys, threading, time, urllib.request

# The time between two snapshots, or two rounds of all servers.
PAUSE = 0.5
LONGEST = 40

how, seconds, credentials, *servers = sys.argv[1:]
authorization = "digest " + pathlib.Path(credentials).read_text().strip()
taken = []


def snapshot(server):
    request = urllib.request.Request(f"http://{server}/commands/snapshot?streaming=false", headers={"Authorization": authorization})
    with urllib.request.urlopen(request, timeout=LONGEST) as answer:
        answer.read()
    taken.append(server)


def at_the_same_time(servers):
    threads = [threading.Thread(target=snapshot, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


rounds = [servers] if how == "together" else [[server] for server in servers]
begin, expected = time.time(), 0
while time.time() < begin + float(seconds):
    for group in rounds:
        at_the_same_time(group)
        expected += len(group)
        time.sleep(PAUSE)
end = time.time()
if len(taken) != expected:
    sys.exit(f"{len(taken)} snapshots of {expected} were taken")
print(int(begin * 1000), int(end * 1000), len(taken))
