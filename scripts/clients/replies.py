"""Compares what a client prints for two clusters. See scripts/clients.sh."""

import json
import os
import re

from steps import read_steps

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(HERE, "commands.txt")
DIFFERENCES = os.path.join(HERE, "differences.txt")
# Time passes between two commands: remaining times are compared in these units, rounded up.
UNITS = {"TTL": 100, "PTTL": 100_000}
# Of CLUSTER INFO these fields are compared. Others are of Redis's cluster bus. The field cluster_size varies here, since a
# node may lead two groups.
INFO_FIELDS = ["cluster_state", "cluster_known_nodes", "cluster_slots_assigned", "cluster_slots_ok"]
INFO_FIELDS += ["cluster_slots_pfail", "cluster_slots_fail"]
ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


def rounded_up(reply, unit):
    """The numbers above 0 in a reply, rounded up; in redis-cli's text too."""
    if isinstance(reply, int):
        return -(-reply // unit) * unit if reply > 0 else reply
    if isinstance(reply, list):
        return [rounded_up(one, unit) for one in reply]
    if isinstance(reply, str) and reply.startswith("(integer) "):
        return f"(integer) {rounded_up(int(reply.split()[1]), unit)}"
    return reply


def info_fields(reply):
    text = json.dumps(reply)
    return [found.group(0) for field in INFO_FIELDS for found in [re.search(field + r'[":\s]+\w+', text)] if found]


def normalised(words, line):
    reply = json.loads(ADDRESS.sub("ADDRESS", line))
    if words[0] in UNITS:
        reply = rounded_up(reply, UNITS[words[0]])
    if words[:2] == ["CLUSTER", "INFO"]:
        reply = info_fields(reply)
    return json.dumps(reply, sort_keys=True)


def listed_differences():
    """Differences that are known: the client (or `all`) and the command's text, with the kind and the reason."""
    listed = {}
    with open(DIFFERENCES, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                client, text, kind, reason = line.strip().split(" ; ")
                if kind not in ("intended", "fault"):
                    raise SystemExit(f"differences.txt: neither intended nor fault: {line.strip()}")
                listed[(client, text)] = (kind, reason)
    return listed


class Comparison:
    """What one client was answered by Redis and by Furrow: each line of the list counts once."""

    def __init__(self, client, printed_redis, printed_furrow, listed):
        self.replies, self.equal, self.used, self.unlisted = 0, 0, set(), []
        self.kinds = {"intended": 0, "fault": 0}
        ours, theirs = self._by_line(printed_furrow), self._by_line(printed_redis)
        for _, commands in read_steps(LIST):
            number, words = commands[-1]
            text = " ".join(words)
            self.replies += 1
            one, other = (normalised(words, lines.get(number, '"no reply"')) for lines in (theirs, ours))
            known = [name for name in ((client, text), ("all", text)) if name in listed]
            if one == other and one != '"no reply"':
                self.equal += 1
            elif known and one != '"no reply"':
                self.used.add(known[0])
                self.kinds[listed[known[0]][0]] += 1
            else:
                self.unlisted.append((text, one, other))

    @staticmethod
    def _by_line(printed):
        return dict(((int(line.split("\t", 1)[0]), line.split("\t", 1)[1]) for line in printed.splitlines()))
