#!/usr/bin/env bash
# Formatting, clippy, layering, and that the shim compiles against a newer RocksDB than Debian's.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

step "setup" scripts/setup.sh lint
use_cargo
step "formatting" cargo fmt --all --check
step "clippy" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step "layering" cargo xtask layering
step "RocksDB 10's headers" sh crates/rocks/tests/headers.sh
step "a statically linked RocksDB" sh crates/rocks/tests/static_link.sh
