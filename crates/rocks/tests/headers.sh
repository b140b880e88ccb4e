#!/bin/sh
# Compiles the shim against RocksDB 10's headers, and the plug-in's half of it within RocksDB's own make variables.
# The headers come with a crate that carries RocksDB's source; only its source is used, nothing of it is built.
# usage: headers.sh [CRATE-VERSION]      needs g++, make and cargo; RocksDB's headers stay in cargo's own cache
set -eu
version=${1:-0.17.3}
shim=$(cd "$(dirname "$0")/../cpp" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/src"
: >"$work/src/lib.rs"
cat >"$work/Cargo.toml" <<EOF
[package]
name = "headers"
version = "0.0.0"
edition = "2021"
[workspace]
[dependencies]
librocksdb-sys = { version = "=$version", default-features = false }
EOF
(cd "$work" && cargo fetch --quiet)
tree=$(cd "$work" && cargo metadata --format-version 1 --offline |
    sed -n 's/.*"manifest_path":"\([^"]*librocksdb-sys[^"]*\)\/Cargo.toml".*/\1/p')/rocksdb
test -f "$tree/include/rocksdb/version.h" || { echo "headers.sh: no RocksDB source in $tree" >&2; exit 1; }
major=$(sed -n 's/^#define ROCKSDB_MAJOR //p' "$tree/include/rocksdb/version.h")
test "$major" -ge 10 || { echo "headers.sh: $tree is RocksDB $major, wanted 10 or newer" >&2; exit 1; }

for file in "$shim"/*.cc; do
    g++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -isystem "$tree/include" -I"$shim" "$file"
done

# What RocksDB's Makefile would do with furrow.mk: every source exists, and the entry has the type it declares.
cat >"$work/check.mk" <<EOF
include $shim/furrow.mk
all:
	@for f in \$(furrow_SOURCES) \$(furrow_HEADERS); do test -f $shim/\$\$f || { echo "no \$\$f" >&2; exit 1; }; done
	@printf '%s\n' '#include "register.h"' 'int (*entry)(ROCKSDB_NAMESPACE::ObjectLibrary&, const std::string&) = \$(furrow_FUNC);' >$work/entry.cc
EOF
make --silent -f "$work/check.mk" all
g++ -std=c++17 -fsyntax-only -isystem "$tree/include" -I"$shim" "$work/entry.cc"
echo "the shim compiles against RocksDB $major"
