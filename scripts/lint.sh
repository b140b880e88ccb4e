#!/usr/bin/env bash
# Formatting, clippy, layering, and that the shims compile against a newer RocksDB than Debian's and link with static engines.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

step "setup" scripts/setup.sh lint
use_cargo
step "formatting" cargo fmt --all --check
step "clippy" env FURROW_CHECK_ONLY=1 cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step "layering" cargo xtask layering
# The simulator's tests have the feature: if they lack it, the feature was renamed, and this check must follow.
no_broken_rules() {
  local package tree
  # A cargo tree that fails ends the step: an empty tree must not pass for one without the feature.
  tree=$(cargo tree --locked -p furrow-sim -f '{p} {f}')
  [[ $tree == *broken-rules* ]] || die "no crate has the feature broken-rules any more: this check looks for it"
  for package in furrow-cli furrow-plugin furrow-leveldb furrow-hook; do
    tree=$(cargo tree --locked -p "$package" -e no-dev -f '{p} {f}')
    [[ $tree == *"$package"* ]] || die "cargo tree does not list $package"
    [[ $tree != *broken-rules* ]] || die "$package is built with rules that tests break"
  done
}
step "no rules to break in what is released" no_broken_rules
# Tests build all crates with these rules.
step "what is released compiles without them" \
  env FURROW_CHECK_ONLY=1 cargo clippy --locked --quiet -p furrow-cli -p furrow-plugin -p furrow-leveldb -p furrow-hook -- -D warnings
step "RocksDB 10's headers" sh crates/rocks/tests/headers.sh
step "a statically linked RocksDB" sh crates/rocks/tests/static_link.sh
step "a statically linked LevelDB" sh crates/leveldb/tests/static_link.sh
