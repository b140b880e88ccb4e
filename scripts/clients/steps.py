"""The list of commands that every client sends, and the lines that it prints. See commands.txt."""

import itertools
import json
import re

WORD = re.compile(r'"([^"]*)"|(\S+)')
# How long a client waits before its first read from a replica, in seconds: replicas may be 1 s behind.
BEFORE_REPLICAS = 1.5


def words_of(text):
    """The words of a command; double quotes enclose a word with spaces."""
    return [quoted if bare == "" else bare for quoted, bare in WORD.findall(text)]


def read_steps(path):
    """The steps of the list: a kind (empty, or the line's first character), and numbers of lines with their words."""
    with open(path, encoding="utf-8") as lines:
        numbered = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    steps, last = [], None
    for number, line in numbered:
        kind = line[0] if line[:2] in ("| ", "& ", "~ ", "= ") else ""
        if line and not line.startswith("#"):
            command = (number, words_of(line[2:] if kind else line))
            # A pipeline or transaction ends where the next line is none of it.
            if kind in ("|", "&") and last == kind:
                steps[-1][1].append(command)
            else:
                steps.append((kind, [command]))
        last = kind if line else None
    return steps


def count_commands(path):
    return len(list(itertools.chain.from_iterable(commands for _, commands in read_steps(path))))


def emit(number, reply):
    """Prints the reply to the command in a line of the list."""
    print(f"{number}\t{json.dumps(reply)}", flush=True)
