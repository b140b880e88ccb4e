#!/usr/bin/env bash
# Every test: the workspace's own, the stock programs, the crash explorer, a stock kernel in a guest.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

step "setup" scripts/setup.sh test
use_cargo
step "building the tests" cargo test --workspace --locked --no-run --quiet
# The fuzz targets are compiled with what running tests leave of the processors, once cargo has begun to run them. The step "fuzz targets" tells of an error.
(sleep 20 && exec nice -n 19 scripts/fuzz.sh build) >/dev/null 2>&1 &
building=$!
step "tests" cargo test --workspace --locked --no-fail-fast
wait "$building" || say "the fuzz targets were not built beside the tests"
examples() {
  local example
  # Built by the tests already, with the features of the whole workspace.
  cargo build --profile test --workspace --locked --quiet --examples
  for example in appends lost_drive power_cut database; do
    "${CARGO_TARGET_DIR:-target}/debug/examples/$example"
  done
}
step "examples" examples
step "stock programs" scripts/stock.sh
step "LevelDB's programs" scripts/leveldb.sh
step "fuzz targets" scripts/fuzz.sh
step "crash explorer" scripts/crash.sh
step "a stock kernel in a guest" scripts/guest.sh
