#!/bin/sh
# Builds the Rust half without the preloaded library's part, compiles the Env with LevelDB's headers, and links both with a static LevelDB:
# programs that have LevelDB within themselves then use a database on an emulated drive, in C++ and in C.
# usage: static_link.sh      needs g++, libleveldb-dev and cargo
# LEVELDB_INCLUDE and LEVELDB_ARCHIVE name the headers and the archive of another LevelDB.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
shim=$root/crates/leveldb/cpp
programs=$root/crates/leveldb/tests/programs
include=${LEVELDB_INCLUDE:-/usr/include}
archive=${LEVELDB_ARCHIVE:--l:libleveldb.a -lsnappy}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$root"
cargo rustc --quiet --package furrow-leveldb --lib --no-default-features --crate-type staticlib
lib=${CARGO_TARGET_DIR:-$root/target}/debug/libfurrow_leveldb.a
test -f "$lib" || { echo "static_link.sh: cargo built no $lib" >&2; exit 1; }

for file in zoned_env env files status; do
    g++ -std=c++17 -Wall -Wextra -Werror -c -I"$include" -I"$shim" -o "$work/$file.o" "$shim/$file.cc"
done
g++ -std=c++17 -c -I"$include" -I"$shim" -o "$work/cc.main" "$programs/static_user.cc"
gcc -std=c99 -Wall -Werror -c -I"$include" -I"$shim" -o "$work/c.main" "$programs/static_user.c"
for language in cc c; do
    # shellcheck disable=SC2086 # the archive may be several words
    g++ -o "$work/$language" "$work/$language.main" "$work"/*.o "$lib" $archive -lpthread -ldl -lm
    if ldd "$work/$language" | grep -q libleveldb; then
        echo "static_link.sh: the program is not linked statically" >&2
        exit 1
    fi
done
url="emu:$work/drive.img?zones=32&zone-size=4MiB"
test "$("$work/cc" "$url")" = "$(printf 'OK value\nOK value')"
test "$("$work/c" "$url")" = value
# A wrong URL is an error in words.
if said=$("$work/c" "emu:$work/none/drive.img" 2>&1); then
    echo "static_link.sh: a drive that does not exist opens" >&2
    exit 1
fi
case $said in
*"$work/none/drive.img"*) ;;
*) echo "static_link.sh: a drive that does not exist: $said" >&2; exit 1 ;;
esac
echo "programs with LevelDB within themselves use the drive"
