#!/usr/bin/env bash
# Builds the program, the preloaded libraries and the guest's program with the profile of `cargo test`, and prints where they are.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

use_cargo
cargo programs --bins --profile test >&2
printf '%s\n' "${CARGO_TARGET_DIR:-target}/debug"
