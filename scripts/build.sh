#!/usr/bin/env bash
# Builds the program and the plug-in as `cargo test` does, so that nothing is built twice, and prints where they are.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

use_cargo
cargo build --profile test --locked --quiet -p furrow-cli -p furrow-plugin >&2
printf '%s\n' "${CARGO_TARGET_DIR:-target}/debug"
