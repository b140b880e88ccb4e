#!/usr/bin/env bash
# Builds the program, the preloaded libraries and the guest's program with the profile of `cargo test`, and prints where they are. One
# command builds all for every script: cargo unites the features of the packages that a command names, and another set would be built again.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

use_cargo
cargo build --profile test --locked --quiet -p furrow-cli -p furrow-plugin -p furrow-leveldb -p furrow-guest >&2
printf '%s\n' "${CARGO_TARGET_DIR:-target}/debug"
