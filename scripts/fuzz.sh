#!/usr/bin/env bash
# Every fuzz target under libFuzzer, two side by side, each for SECONDS_EACH (4). An input that breaks a target stays in
# target/fuzz/TARGET/, and the command that runs it again is printed. Stable Rust is enough: libFuzzer's runtime comes with a crate,
# and the compiler counts edges and comparisons by flags that stable has.
#
#   scripts/fuzz.sh [TARGET...]
#   SECONDS_EACH=3600 scripts/fuzz.sh resp
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds=${SECONDS_EACH:-4}
scripts/setup.sh test
use_cargo
target=${CARGO_TARGET_DIR:-target}
out=$target/fuzz
mkdir -p "$out"
# --workspace, here and below: the features of the dependencies are then those of `cargo test --workspace`, and they are not built again.
RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/coverage-rustc.sh cargo build --profile test --locked --quiet --workspace --bin furrow-fuzz \
  --features furrow-fuzz/libfuzzer
program=$PWD/crates/fuzz
fuzzer=$(realpath "$target/debug/furrow-fuzz")
cargo build --profile test --locked --quiet --workspace --example dictionary
dictionary=$(realpath "$target/debug/examples/dictionary")
[ $# -gt 0 ] || set -- $(cd "$program/corpus" && ls)

golden() { # the directories of golden files that fit a target
  case $1 in
    array-record | array-superblock | array-payloads) echo crates/array/tests/golden ;;
    fs-* | *-log | drive-contents) echo crates/fs/tests/golden ;;
    emulated-drive) echo crates/zoned/tests/golden ;;
    kv-record | once-record | write-batch) echo crates/kv/tests/golden ;;
    peer-frame) echo crates/peers/tests/golden ;;
    groups-record | peer-message) echo crates/shard/tests/golden ;;
    node-state) echo crates/node/tests/golden ;;
    cluster-value) echo crates/placement/tests/golden ;;
    crash-trace) echo crates/sim/tests/golden ;;
  esac
}

run() { # target
  local target=$1 work=$out/$1 code=0 started=$SECONDS
  mkdir -p "$work/corpus"
  "$dictionary" "$target" >"$work/dictionary"
  # shellcheck disable=SC2046
  FURROW_FUZZ_TARGET=$target "$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 -dict="$work/dictionary" \
    -artifact_prefix="$work/" "$work/corpus" "$program/corpus/$target" $(golden "$target") >"$work/log" 2>&1 </dev/null || code=$?
  say "fuzz $target: $(awk '$2 == "DONE" {print substr($1, 2) " runs, " $4 " edges"}' "$work/log"), $((SECONDS - started)) s"
  [ "$code" = 0 ] && return 0
  tail -n 30 "$work/log" >&2
  say "fuzz $target: FAILED; the input is in $work; once more: FURROW_FUZZ_TARGET=$target $fuzzer INPUT"
  return 1
}

failed=0
pids=()
for target in "$@"; do
  run "$target" &
  pids+=($!)
  if [ ${#pids[@]} = 2 ]; then
    wait "${pids[0]}" || failed=1
    pids=("${pids[@]:1}")
  fi
done
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
[ "$failed" = 0 ] || die "a fuzz target failed"
