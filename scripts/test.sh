#!/usr/bin/env bash
# Every test: the workspace's own, the stock programs, the crash explorer, a stock kernel in a guest.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

step "setup" scripts/setup.sh test
use_cargo
step "tests" cargo test --workspace --locked --no-fail-fast
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
step "programs under prio run" scripts/prio.sh
step "a ZooKeeper ensemble" scripts/zookeeper.sh
step "a cluster whose processes are killed" scripts/cluster.sh
step "what clients and operators see of a cluster" scripts/cluster-views.sh
step "fuzz targets" scripts/fuzz.sh
step "crash explorer" scripts/crash.sh
step "a stock kernel in a guest" scripts/guest.sh
