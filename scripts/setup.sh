#!/usr/bin/env bash
# Installs the packages that this machine lacks. An installed cargo is used if it is new enough, else Debian's
# newer one is installed.
#
#   scripts/setup.sh           what `make serve` needs
#   scripts/setup.sh test      the same, for `make test`
#   scripts/setup.sh lint      and rustfmt and clippy
#   scripts/setup.sh guest     and QEMU, and the tools that unpack Debian's kernel package
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

what=${1:-build}
case $what in
  build | test | lint | guest) ;;
  *) say "usage: scripts/setup.sh [build|test|lint|guest]"; exit 2 ;;
esac

packages=(g++ make ca-certificates protobuf-compiler libprotobuf-dev librocksdb-dev rocksdb-tools libleveldb-dev redis-tools)
cargo_dir >/dev/null || packages+=(rustc-web cargo-web)
[ "$what" != test ] ||
  packages+=(libisal-dev python3-plyvel python3-pytest python3-pip python3-setuptools libgtest-dev libgmock-dev postgresql libzookeeper-java libaio1 pkg-config openjdk-17-jdk-headless maven etcd-server)
[ "$what" != guest ] || packages+=(qemu-system-x86 fio btrfs-progs f2fs-tools kmod xz-utils zstd binutils libc-bin)
need_packages "${packages[@]}"
use_cargo

if [ "$what" = lint ] && { ! cargo fmt --version || ! cargo clippy --version; } >/dev/null 2>&1; then
  # Debian's tools fit Debian's compiler; another toolchain brings its own.
  [ "$(command -v cargo)" = /usr/bin/cargo ] ||
    die "cargo is $(command -v cargo), which has no rustfmt or clippy: add them to that toolchain"
  need_packages rustfmt-web rust-web-clippy
fi
