# Shared by the scripts: sourced, not run.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The oldest cargo that builds the workspace: rust-version in Cargo.toml.
MIN_CARGO=1.90

say() { printf '%s\n' "$*" >&2; }
die() { say "furrow: $*"; exit 1; }

# The directory of the program whose version is at least $2, looking at $PATH first and then at Debian's place.
cargo_dir() {
  local dir version
  for dir in ${PATH//:/ } "$HOME/.cargo/bin" /usr/bin; do
    [ -x "$dir/cargo" ] || continue
    version=$("$dir/cargo" --version 2>/dev/null </dev/null | awk '{print $2}')
    [ -n "$version" ] || continue
    if [ "$(printf '%s\n%s\n' "$MIN_CARGO" "$version" | sort -V | head -n 1)" = "$MIN_CARGO" ]; then
      printf '%s' "$dir"
      return 0
    fi
  done
  return 1
}

# Puts a sufficient cargo first on the path.
use_cargo() {
  local dir
  dir=$(cargo_dir) || die "no cargo of version $MIN_CARGO or newer: run scripts/setup.sh"
  case ":$PATH:" in
    ":$dir:"*) ;;
    *) export PATH="$dir:$PATH" ;;
  esac
}

# Installs the Debian packages that are missing; without root says what to type, and stops.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    say "furrow: these Debian packages are missing: ${missing[*]}"
    say "Install them as root and start again:"
    say ""
    say "    apt-get update && apt-get install -y ${missing[*]}"
    say ""
    exit 1
  fi
  command -v apt-get >/dev/null || die "there is no apt-get here; install by hand: ${missing[*]}"
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # After a failed update the present package lists may suffice.
  apt-get update -qq </dev/null >&2 || say "apt-get update failed; trying with the present lists"
  apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2 ||
    die "apt-get could not install ${missing[*]}"
}

# A loopback port without a listener.
free_port() {
  local port tries
  for tries in $(seq 100); do
    # Below 32768: a port above may be taken by the outgoing connection of another program, on which a bind fails.
    port=$((20000 + (RANDOM + tries) % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s' "$port"
      return 0
    fi
  done
  die "no free port found"
}

# Waits until the server on port $1 answers PING, or its process $2 ends, or $3 seconds (30) have passed.
wait_ready() {
  local port=$1 pid=$2 left=$((${3:-30} * 10))
  while [ "$left" -gt 0 ]; do
    [ "$(timeout 2 redis-cli -p "$port" ping 2>/dev/null)" = PONG ] && return 0
    kill -0 "$pid" 2>/dev/null || die "the server (pid $pid) ended before it was ready"
    sleep 0.1
    left=$((left - 1))
  done
  die "the server on port $port did not answer PING in time"
}

# The sum of a counter of a class over the lines of a file that `furrow prio run` wrote: sum FILE CLASS NAME.
sum() {
  grep -o "\"$2\":{[^}]*}" "$1" | grep -o "\"$3\":[0-9]*" | awk -F: '{ sum += $2 } END { printf "%.0f", sum }'
}

# Fails unless the processes of a server counted files, writes and syncs of logs, and files and writes of bulk.
expect_counters() { # file
  local class name
  for class in log bulk; do
    for name in files writes bytes; do
      [ "$(sum "$1" "$class" "$name")" -gt 0 ] || { say "no $name of $class:"; cat "$1" >&2; return 1; }
    done
  done
  [ "$(sum "$1" log syncs)" -gt 0 ] || { say "no sync of a log:"; cat "$1" >&2; return 1; }
  grep -q '"in_both":[1-9]' "$1" && { say "files in both classes:"; cat "$1" >&2; return 1; }
  say "log: $(sum "$1" log files) files, $(sum "$1" log syncs) syncs; bulk: $(sum "$1" bulk files) files, $(($(sum "$1" bulk bytes) >> 20)) MiB, $(sum "$1" bulk pieces) pieces, held for $(($(sum "$1" bulk held_ns) / 1000000)) ms"
}

# Says which step failed, and cleans up after the script. A script with something to clean up defines cleanup.
STEP=
cleanup() { :; }
trap 'code=$?; cleanup; [ "$code" = 0 ] || [ -z "$STEP" ] || say "== $STEP: FAILED"; exit "$code"' EXIT

# Runs a step and prints how long it took. Not in a condition: there bash would go on after an error.
step() {
  local start=$SECONDS
  STEP=$1
  shift
  say ""
  say "== $STEP"
  "$@"
  say "== $STEP: $((SECONDS - start)) s"
  STEP=
}
