"""Sends the list of commands by redis-cli -c. Arguments: `commands LIST PORTS`. See scripts/clients.sh."""

import re
import subprocess
import sys
import time

from steps import BEFORE_REPLICAS, emit, read_steps


def quoted(words):
    return " ".join(f'"{word}"' for word in words)


def send(port, lines):
    """What redis-cli prints for lines of its input, without what it says of redirections."""
    command = ["redis-cli", "--no-raw", "-c", "-p", str(port)]
    text = "\n".join(lines) + "\n"
    sent = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
    printed = (sent.stdout + sent.stderr).splitlines()
    return [line for line in printed if line and not line.startswith("-> Redirected")]


def main():
    path, ports = sys.argv[2], sys.argv[3:]
    waited = False
    for kind, commands in read_steps(path):
        number, words = commands[-1]
        lines = [quoted(words) for _, words in commands]
        if kind == "&":
            # MULTI goes to the node that serves the first key: a transaction does not follow a redirection.
            first = quoted(["EXISTS", commands[0][1][1]])
            emit(number, send(ports[0], [first, "MULTI", *lines, "EXEC"])[1:])
        elif kind == "~":
            if not waited:
                time.sleep(BEFORE_REPLICAS)
                waited = True
            emit(number, send(ports[0], ["READONLY", *lines])[1:])
        elif kind == "=":
            printed = "\n".join(line for port in ports for line in send(port, ['KEYS "*"']))
            emit(number, sorted(re.findall(r'"(.*)"$', printed, re.MULTILINE)))
        else:
            emit(number, send(ports[0], lines))


if __name__ == "__main__":
    main()
