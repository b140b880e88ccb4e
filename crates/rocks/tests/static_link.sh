#!/bin/sh
# Builds the plug-in's Rust half without RocksDB, compiles the shim as RocksDB's own build would, and links both with
# the static librocksdb: a program that has its own RocksDB then opens a database on an emulated drive.
# usage: static_link.sh      needs g++, librocksdb-dev with its libraries' headers, and cargo
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
shim=$root/crates/rocks/cpp
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$root"
cargo rustc --quiet --package furrow-plugin --lib --no-default-features --crate-type staticlib
lib=${CARGO_TARGET_DIR:-$root/target}/debug/libfurrow_rocksdb.a
test -f "$lib" || { echo "static_link.sh: cargo built no $lib" >&2; exit 1; }

cat >"$work/main.cc" <<'EOF'
#include <cstdio>
#include <memory>
#include "register.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
int main() {
  register_furrow(*rocksdb::ObjectLibrary::Default(), "");
  std::shared_ptr<rocksdb::FileSystem> fs;
  auto s = rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), "furrow://emu:mem?zones=32&zone-size=4MiB", &fs);
  auto env = s.ok() ? rocksdb::NewCompositeEnv(fs) : nullptr;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.env = env.get();
  rocksdb::DB* db = nullptr;
  if (s.ok()) s = rocksdb::DB::Open(options, "/db", &db);
  if (s.ok()) s = db->Put(rocksdb::WriteOptions(), "key", "value");
  if (s.ok()) s = db->Flush(rocksdb::FlushOptions());
  std::string value;
  if (s.ok()) s = db->Get(rocksdb::ReadOptions(), "key", &value);
  delete db;
  printf("%s %s\n", s.ToString().c_str(), value.c_str());
  return s.ok() && value == "value" ? 0 : 1;
}
EOF
for file in $(sed -n 's/^furrow_SOURCES = //p' "$shim/furrow.mk"); do
    g++ -std=c++17 -c -I"$shim" -o "$work/$file.o" "$shim/$file"
done
g++ -std=c++17 -c -I"$shim" -o "$work/main.cc.o" "$work/main.cc"
# -Bstatic: RocksDB itself from its archive; what it needs may be shared.
g++ -o "$work/main" "$work"/*.o "$lib" -Wl,-Bstatic -lrocksdb -Wl,-Bdynamic \
    -lgflags -lsnappy -lz -lbz2 -llz4 -lzstd -lpthread -ldl -lm
if ldd "$work/main" | grep -q librocksdb; then
    echo "static_link.sh: the program is not linked statically" >&2
    exit 1
fi
"$work/main"
# A parallel log is not built in, and says so.
if said=$(FURROW_WAL=waltz "$work/main" 2>&1); then
    echo "static_link.sh: FURROW_WAL=waltz has no effect, unseen" >&2
    exit 1
fi
case $said in
*"only FURROW_WAL=group"*) ;;
*) echo "static_link.sh: FURROW_WAL=waltz says: $said" >&2; exit 1 ;;
esac
