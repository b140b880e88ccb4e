#!/usr/bin/env bash
# The crash explorer with CI's budget: at least 200,000 distinct states over the five targets, two of them on arrays too;
# nothing lost, nothing invented, every state mounts. SEED chooses others than the usual ones.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seed=${SEED:-1}
# Seconds that a target may take; arrays have less.
LIMIT=480
ARRAY_LIMIT=360
built=$(scripts/build.sh)
work=$(mktemp -d)
cleanup() { rm -rf "$work"; }

total=0
failed=0
explore() { # target, states, flags
  local target=$1 states=$2 start=$SECONDS code=0 limit=$LIMIT found
  [ "$target" != array ] || limit=$ARRAY_LIMIT
  shift 2
  timeout "$limit" "$built/furrow" crash --target "$target" --seed "$seed" --states "$states" --json "$@" \
    >"$work/found" || code=$?
  cat "$work/found" >&2
  # One that panics or is stopped says nothing.
  found=$(awk -F '"states":' 'NF > 1 && !n {n = $2 + 0} END {print n + 0}' "$work/found")
  say "crash $target${*:+ $*}: $found states in $((SECONDS - start)) s"
  [ "$code" != 124 ] || say "crash $target: not done within $limit s"
  [ "$code" = 0 ] && [ "$found" -ge "$states" ] || failed=1
  total=$((total + found))
}

# Every state of the engine opens RocksDB itself: by a third each with its own log, with a parallel one, with one that joins.
# Where its exploration fails, its recorded trace is what replays it: it stays.
traces=${CARGO_TARGET_DIR:-target}/crash-traces
mkdir -p "$traces"
rm -f "$traces"/engine*
explore fs 10000
explore log 29000
explore waltz 30000
explore array 100000
explore engine 30000 --trace "$traces/engine.trace"
# The whole stack over an array: every drive cut, one of them lost.
explore fs 5000 --on array
explore engine 2000 --on array --trace "$traces/engine-array.trace"

[ "$total" -ge 200000 ] || die "only $total distinct states were reached: 200000 are wanted"
[ "$failed" = 0 ] || die "the crash explorer found something: see the counts above; traces are in $traces"
say "crash explorer: $total states, nothing lost, nothing invented"
