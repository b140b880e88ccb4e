#!/usr/bin/env bash
# Formatting, clippy, layering.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

step "setup" scripts/setup.sh lint
use_cargo
step "formatting" cargo fmt --all --check
step "clippy" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step "layering" cargo xtask layering
