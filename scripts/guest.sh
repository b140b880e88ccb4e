#!/usr/bin/env bash
# The kernel backends on a stock Debian kernel, in QEMU in software emulation: conformance, stock programs, machine
# resets, faults, rates. Where the kernel's package or QEMU cannot be had, it says so loudly and tests nothing; with
# FURROW_REQUIRE_GUEST=1 that is a failure.
#
#   scripts/guest.sh [NAME...]    cargo xtask guest test --list says the names
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if ! (scripts/setup.sh guest); then
  [ "${FURROW_REQUIRE_GUEST:-0}" = 0 ] || die "the guest's packages cannot be installed, and FURROW_REQUIRE_GUEST is set"
  say "guest: SKIPPED, nothing was tested on a real kernel: the packages above are not installed"
  exit 0
fi
use_cargo
cargo xtask guest test "$@"
