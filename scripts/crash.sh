#!/usr/bin/env bash
# The crash explorer with CI's budget: at least 400,000 distinct states over the ten targets of states, 250,000 of them of arrays, of which 60,000
# have lost two drives, 30,000 each are cut in a reclaim, in a move of lost parts to spare room and with appends in flight, and 20,000 in
# resets; three targets are run on arrays too; 4,000 simulated groups take turns; 10,000 simulated clusters of whole nodes run through their faults; at least 5,000 states have logs in conventional zones, 10,000 dirty pages at the step before the cut, and 10,000 a scheduler before the drive; nothing lost, nothing invented, every
# state mounts. Four fifths of the states come from seed 1, the rest from a seed that follows from the commit, so that each change explores
# workloads of its own. SEED=N explores seed N alone.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The states of each seed, in fifths.
if [ -n "${SEED:-}" ]; then
  shares=("$SEED 5")
else
  commit=$(git rev-parse --verify -q HEAD 2>/dev/null || echo 2)
  shares=("1 4" "$((16#${commit:0:7})) 1")
  say "crash explorer: seed 1, and seed $((16#${commit:0:7})) of commit $commit"
fi
# Seconds after which a target counts as hung, and the seconds that engine and array may take on two cores.
LIMIT=1200
ENGINE_BUDGET=480
ARRAY_BUDGET=360
built=$(scripts/build.sh)
work=$(mktemp -d)
cleanup() { rm -rf "$work"; }

total=0
two_drives_lost=0
conventional=0
dirty=0
scheduled=0
failed=0
late=()
array_seconds=0
# What is added to the seeds, so that explorations of one target have states of their own.
more=0
explore() { # target, states, flags, in which SEED stands for the seed
  local target=$1 states=$2 start=$SECONDS budget=$LIMIT share seed fifths
  [ "$target" != engine ] || budget=$ENGINE_BUDGET
  shift 2
  for share in "${shares[@]}"; do
    read -r seed fifths <<<"$share"
    seed=$((seed + more))
    explore_seed "$target" "$seed" $((states * fifths / 5)) "${@//SEED/$seed}"
  done
  [ "$target" != array ] || array_seconds=$((array_seconds + SECONDS - start))
  [ $((SECONDS - start)) -le "$budget" ] || late+=("$target: $((SECONDS - start)) s instead of $budget")
}
# The number of states of a kind in the last report.
states_of() { awk -F "\"$1\":" 'NF > 1 {n = $2 + 0} END {print n + 0}' "$work/found"; }
explore_seed() { # target, seed, states, flags
  local target=$1 seed=$2 states=$3 start=$SECONDS code=0 found
  shift 3
  timeout "$LIMIT" "$built/furrow" crash --target "$target" --seed "$seed" --states "$states" --json "$@" \
    >"$work/found" || code=$?
  cat "$work/found" >&2
  # A target that panics or is stopped prints no count.
  found=$(awk -F '"states":' 'NF > 1 && !n {n = $2 + 0} END {print n + 0}' "$work/found")
  say "crash $target, seed $seed${*:+ $*}: $found states in $((SECONDS - start)) s"
  [ "$code" != 124 ] || say "crash $target: not done within $LIMIT s"
  if [ "$code" != 0 ] || [ "$found" -lt "$states" ]; then
    say "crash $target: again with furrow crash --target $target --seed $seed --states $states $*"
    failed=1
  fi
  total=$((total + found))
  conventional=$((conventional + $(states_of conventional_zones)))
  dirty=$((dirty + $(states_of dirty_pages)))
  scheduled=$((scheduled + $(states_of scheduler)))
  [ "$target" != array ] ||
    two_drives_lost=$((two_drives_lost + $(states_of two_drives_lost)))
}

# Every state of the engine opens RocksDB, every state of leveldb LevelDB. Of those of the engine: a third each with RocksDB's own log, with the parallel log, and with its batching.
# A failed exploration keeps its trace, which replays the failure.
traces=${CARGO_TARGET_DIR:-target}/crash-traces
mkdir -p "$traces"
rm -f "$traces"/engine* "$traces"/leveldb* "$traces"/tables*
explore fs 50000
explore log 29000
explore waltz 30000
explore stage 5000
explore prio 20000
explore groups 15000
explore array 145000
more=1 explore array 30000 --during reclaim
more=2 explore array 30000 --during restore
more=3 explore array 30000 --during appends
more=4 explore array 20000 --during reset
[ "$array_seconds" -le "$ARRAY_BUDGET" ] || late+=("array: $array_seconds s instead of $ARRAY_BUDGET")
explore engine 26000 --trace "$traces/engine-SEED.trace"
explore leveldb 6000 --trace "$traces/leveldb-SEED.trace"
explore tables 6000 --trace "$traces/tables-SEED.trace"
# Simulated groups whose snapshots take turns: runs instead of states.
for share in "${shares[@]}"; do
  read -r seed fifths <<<"$share"
  start=$SECONDS
  timeout "$LIMIT" "$built/furrow" crash --target turns --seed "$seed" --runs $((4000 * fifths / 5)) >&2 || failed=1
  say "crash turns, seed $seed: $((SECONDS - start)) s"
done
# Simulated groups of whole nodes, with their drives. One seed: no run of it depends on the commit.
start=$SECONDS
timeout "$LIMIT" "$built/furrow" crash --target cluster --seed "${SEED:-1}" --runs 10000 --json >&2 || failed=1
say "crash cluster, seed ${SEED:-1}: $((SECONDS - start)) s"
# The whole stack over an array: the power of every drive is cut, and one drive fails.
explore fs 5000 --on array
explore engine 2000 --on array --trace "$traces/engine-array-SEED.trace"
explore leveldb 1000 --on array --trace "$traces/leveldb-array-SEED.trace"

[ "$total" -ge 400000 ] || die "only $total distinct states were reached: 400000 are wanted"
[ "$two_drives_lost" -ge 60000 ] || [ -n "${SEED:-}" ] ||
  die "only $two_drives_lost states of arrays have lost two drives: 60000 are wanted"
[ "$conventional" -ge 5000 ] || [ -n "${SEED:-}" ] ||
  die "only $conventional states have logs in conventional zones: 5000 are wanted"
[ "$dirty" -ge 10000 ] || [ -n "${SEED:-}" ] ||
  die "only $dirty states have dirty pages at the step before the cut: 10000 are wanted"
[ "$scheduled" -ge 10000 ] || [ -n "${SEED:-}" ] ||
  die "only $scheduled states have a scheduler before the drive: 10000 are wanted"
[ "$failed" = 0 ] || die "the crash explorer found something, or was not done: see the counts above; traces are in $traces"
for line in "${late[@]}"; do say "crash $line: OVER ITS BUDGET, this machine is slow, or busy"; done
say "crash explorer: $total states, $two_drives_lost of them of arrays without two drives; nothing lost, nothing invented"
