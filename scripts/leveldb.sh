#!/usr/bin/env bash
# Unmodified LevelDB programs against Furrow: plyvel's own tests under Debian's python3-plyvel, plyvel's wheel with its own LevelDB, LevelDB's own
# tests and db_bench from Debian's source package, its tests of inner parts over a shared library of that source with all symbols visible, Debian's Minetest server and
# Litecoin daemon. Where these cannot be fetched the script says so and does what is left; with FURROW_REQUIRE_LEVELDB=1 that is a failure.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What is fetched stays for the next run.
kept=$(realpath -m "${CARGO_TARGET_DIR:-target}/leveldb")
python=/usr/bin/python3
plyvel=1.5.0 # Debian's; its tests are in the source distribution of that version
wheel=1.5.1  # a wheel with a LevelDB 1.22 of its own

built=$(scripts/build.sh)
work=$(mktemp -d)
cleanup() {
  [ -z "$(jobs -p)" ] || kill $(jobs -p) 2>/dev/null || true
  rm -rf "$work"
}
mkdir -p "$kept" "$work/root"
daemons=$kept/daemons/usr
# Runs a program with the libraries that came with the daemons.
with_libraries=(env "LD_LIBRARY_PATH=$daemons/lib/$(uname -m)-linux-gnu" "HOME=$work")
minetest=("${with_libraries[@]}" "$daemons/lib/minetest/minetestserver" --config "$work/minetest.conf" --logfile "" --world "$work/root/world")

# Longest time of one program.
LIMIT=240

skip() {
  [ "${FURROW_REQUIRE_LEVELDB:-0}" = 0 ] || die "$1, and FURROW_REQUIRE_LEVELDB is set"
  say "SKIPPED: $1"
}

# Runs a program on the drive `$1` of its own. Its temporary files lie below the root. Prints what it printed if it fails.
on_drive() { # drive program arguments
  local drive=$1
  shift
  TMPDIR=$work/root TEST_TMPDIR=$work/root/$drive timeout "$LIMIT" "$built/furrow" leveldb --root "$work/root" \
    -d "emu:$work/$drive.img?zones=96&zone-size=16MiB" -- "$@" >"$work/$drive.out" 2>&1 </dev/null && return 0
  local code=$?
  say "failed with $code: $*"
  tail -n 40 "$work/$drive.out" >&2
  return 1
}

expect() { # drive pattern
  grep -Eq -- "$2" "$work/$1.out" || { say "no line matches: $2"; tail -n 40 "$work/$1.out" >&2; return 1; }
}

# apt with package lists of its own, which need no root and have source packages too.
own_apt() { # arguments
  (cd "$work/apt" && apt-get -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/apt/parts" -o "Dir::State::lists=$work/apt/lists" \
    -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@") >>"$work/apt.out" 2>&1 </dev/null
}

update_lists() {
  [ ! -d "$work/apt" ] || return 0
  mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/apt/parts"
  # The machine's own sources.
  local list
  for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -f "$list" ] || sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' "$list" >"$work/apt/parts/$(basename "$list" .list).list"
  done
  for list in /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb deb-src/' "$list" >"$work/apt/parts/$(basename "$list")"
  done
  own_apt update
}

# The functions below are called by `if`, and so go on after an error: each command's outcome is looked at.

# The source package of Debian's LevelDB.
fetch_leveldb() {
  [ ! -d "$kept/leveldb/db" ] || return 0
  update_lists && own_apt source --download-only leveldb || return 1
  rm -rf "$kept/leveldb.part" "$kept/leveldb" &&
    mkdir "$kept/leveldb.part" &&
    tar xzf "$work"/apt/leveldb_*.orig.tar.gz -C "$kept/leveldb.part" --strip-components=1 &&
    mv "$kept/leveldb.part" "$kept/leveldb"
}

# Debian's Minetest server and Litecoin daemon, and what they need that the machine lacks. They are unpacked and not installed: the package of the
# server starts a service.
fetch_daemons() {
  local package
  [ ! -d "$kept/daemons" ] || return 0
  update_lists && own_apt -y install --download-only --reinstall --no-install-recommends minetest-server minetest-data litecoind || return 1
  rm -rf "$kept/daemons.part" && mkdir -p "$kept/daemons.part/usr/lib/share" || return 1
  for package in "$work"/apt/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$kept/daemons.part" || return 1
  done
  # The server looks for its data at ../share/minetest from its own directory.
  ln -s ../../share/games/minetest "$kept/daemons.part/usr/lib/share/minetest" &&
    mv "$kept/daemons.part" "$kept/daemons"
}

# plyvel's tests, and the wheel. pip runs the package's set-up script to name the package.
fetch_plyvel() {
  local pip=("$python" -m pip --quiet --disable-pip-version-check)
  if [ ! -f "$kept/plyvel/test_plyvel.py" ]; then
    "${pip[@]}" download --no-deps --no-binary plyvel --no-build-isolation -d "$work" "plyvel==$plyvel" >"$work/pip.out" 2>&1 || return 1
    mkdir -p "$kept/plyvel"
    # Apart from the package's own directory, which has no compiled module.
    tar xzf "$work/plyvel-$plyvel.tar.gz" -C "$kept/plyvel" --strip-components=2 "plyvel-$plyvel/test/test_plyvel.py" || return 1
  fi
  [ -d "$kept/wheel" ] || "${pip[@]}" install --no-deps --only-binary :all: --root-user-action ignore --target "$kept/wheel" "plyvel==$wheel" \
    >"$work/pip.out" 2>&1
}

# As root one test fails, on the host as on the drive: it makes a directory that root may not write to.
plyvel_tests() {
  on_drive plyvel "$python" -m pytest -q -p no:cacheprovider --rootdir "$kept/plyvel" -k 'not test_open_read_only_dir' \
    "$kept/plyvel/test_plyvel.py"
  expect plyvel '^[0-9]+ passed'
  tail -n 1 "$work/plyvel.out" >&2
  "$built/furrow" fs check -d "emu:$work/plyvel.img" >&2
}

plyvel_wheel() {
  on_drive wheel env PYTHONPATH="$kept/wheel" "$python" -c "
import os, plyvel
db = plyvel.DB('$work/root/wheel', create_if_missing=True)
db.put(b'a', b'b', sync=True)
assert plyvel.__leveldb_version__ == '1.22' and db.get(b'a') == b'b' and 'CURRENT' in os.listdir('$work/root/wheel')"
  expect wheel '^furrow: .* is LevelDB 1.22.* stay on the host'
}

# Tests that use LevelDB's public interface alone, and so run with Debian's library.
PUBLIC_TESTS=(issues/issue320_test.cc issues/issue178_test.cc db/fault_injection_test.cc util/env_test.cc issues/issue200_test.cc
  util/status_test.cc util/no_destructor_test.cc)
# Tests of inner parts.
INNER_TESTS=(db/db_test.cc db/recovery_test.cc db/corruption_test.cc db/autocompact_test.cc)

compile() { # library test [more]
  g++ -O0 -w -std=c++17 -DLEVELDB_PLATFORM_POSIX=1 -I"$kept/leveldb" -o "$work/$(basename "$2" .cc)" "$kept/leveldb/$2" "$work/testutil.o" \
    "$1" -lgtest -lgmock -lpthread ${3:-}
}

run_test() { # test
  local name
  name=$(basename "$1" .cc)
  on_drive "$name" env "LD_LIBRARY_PATH=$work/lib" "$work/$name"
  expect "$name" '^\[  PASSED  \] [0-9]+ test|^PASS$'
  say "$name: $(grep -E '^\[  PASSED  \] [0-9]+ test|^PASS$' "$work/$name.out")"
}

leveldb_tests() {
  local test waiting=()
  g++ -O0 -w -std=c++17 -DLEVELDB_PLATFORM_POSIX=1 -I"$kept/leveldb" -c -o "$work/testutil.o" "$kept/leveldb/util/testutil.cc"
  # The first tests take longest, so they run while others are compiled.
  for test in "${PUBLIC_TESTS[@]}"; do
    compile -lleveldb "$test"
    run_test "$test" &
    waiting+=($!)
  done
  gcc -O0 -w -DLEVELDB_PLATFORM_POSIX=1 -I"$kept/leveldb" -o "$work/c_test" "$kept/leveldb/db/c_test.c" -lleveldb
  run_test c_test
  for test in "${waiting[@]}"; do
    wait "$test"
  done
}

db_bench() {
  (cd "$kept/leveldb" && g++ -O0 -w -std=c++17 -DNDEBUG -DLEVELDB_PLATFORM_POSIX=1 -I. -o "$work/db_bench" benchmarks/db_bench.cc \
    util/testutil.cc util/crc32c.cc util/histogram.cc -lleveldb -lgtest -lgmock -lpthread)
  on_drive db_bench "$work/db_bench" --db="$work/root/bench" --num=100000 --histogram=0 \
    --benchmarks=fillseq,fillsync,fillrandom,overwrite,readrandom,readseq,readreverse,compact,readrandom,fill100K
  for benchmark in fillseq fillsync fillrandom overwrite readseq readreverse fill100K; do
    expect db_bench "$benchmark +: +[0-9.]+ micros/op"
  done
  expect db_bench 'readrandom +: +[0-9.]+ micros/op; \([0-9]+ of 100000 found\)'
  tr '\r' '\n' <"$work/db_bench.out" | grep -E 'micros/op' >&2
  "$built/furrow" fs check -d "emu:$work/db_bench.img" >&2
}

# LevelDB's own library hides what these tests use.
inner_tests() {
  need_packages libbenchmark-dev
  local sources=() source test waiting=()
  for source in "$kept"/leveldb/{db,table,util}/*.cc "$kept"/leveldb/helpers/memenv/memenv.cc; do
    case $source in
      *_test.cc | *windows* | */testutil.cc | */leveldbutil.cc) ;;
      *) sources+=("$source") ;;
    esac
  done
  mkdir -p "$work/lib" "$work/objects"
  printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} sh -c 'g++ -O1 -w -fPIC -std=c++17 -DLEVELDB_PLATFORM_POSIX=1 \
    -I"$1" -I"$1/include" -c -o "$2/$(echo "$3" | tr / _).o" "$3"' compile "$kept/leveldb" "$work/objects" {}
  g++ -shared -Wl,-soname,libleveldb.so.1d -o "$work/lib/libleveldb.so.1d" "$work"/objects/*.o -lpthread
  for test in "${INNER_TESTS[@]}"; do
    compile "$work/lib/libleveldb.so.1d" "$test" -lbenchmark
    run_test "$test" &
    waiting+=($!)
  done
  for test in "${waiting[@]}"; do
    wait "$test"
  done
}

# Migrates the world's map to the backend `$1`.
migrate() {
  on_drive minetest "${minetest[@]}" --migrate "$1"
  expect minetest "Successfully migrated $blocks blocks"
}

# A world that the server generates goes from SQLite to LevelDB on the drive and back.
minetest_migration() {
  local world=$work/root/world blocks
  mkdir -p "$world/worldmods/generate"
  printf '%s\n' 'bind_address = 127.0.0.1' 'fixed_map_seed = 1' >"$work/minetest.conf"
  printf '%s\n' 'gameid = devtest' 'backend = sqlite3' >"$world/world.mt"
  echo 'name = generate' >"$world/worldmods/generate/mod.conf"
  # The server ends when it has generated the blocks around the origin.
  cat >"$world/worldmods/generate/init.lua" <<'LUA'
minetest.after(0, function()
  minetest.emerge_area({x = -80, y = -40, z = -80}, {x = 79, y = 39, z = 79}, function(_, _, left)
    if left == 0 then minetest.request_shutdown() end
  end)
end)
LUA
  timeout "$LIMIT" "${minetest[@]}" --port "$(free_port)" >"$work/minetest.out" 2>&1 </dev/null || { tail -n 40 "$work/minetest.out" >&2; return 1; }
  blocks=$("$python" -c 'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("select count(*) from blocks").fetchone())' "$world/map.sqlite")
  [ "$blocks" -ge 1000 ] || die "the server generated only $blocks blocks"

  migrate leveldb
  [ ! -e "$world/map.db" ] || die "the map's LevelDB lies on the host"
  mv "$world/map.sqlite" "$work/before.sqlite"
  migrate sqlite3
  "$python" - "$work/before.sqlite" "$world/map.sqlite" <<'PYTHON'
import sqlite3, sys
before, after = (sqlite3.connect(name).execute("select pos, data from blocks order by pos").fetchall() for name in sys.argv[1:])
if before != after:
    sys.exit(f"{len(before)} blocks went to LevelDB and {len(after)} came back, {len(set(before) - set(after))} of them changed or missing")
PYTHON
  say "$blocks blocks came back as they were"
  "$built/furrow" fs check -d "emu:$work/minetest.img" >&2
}

litecoin_cli() { # arguments
  timeout 60 "${with_libraries[@]}" "$daemons/bin/litecoin-cli" "${litecoin[@]}" "$@"
}

# Starts the daemon, without peers and wallet, and waits until it answers. Sets `daemon`, its process number.
start_litecoind() { # drive flush
  "$built/furrow" leveldb --root "$work/root" --flush "$2" -d "$1" -- "${with_libraries[@]}" \
    "$daemons/lib/litecoin/litecoind" "${litecoin[@]}" -connect=0 -listen=0 -disablewallet >>"$work/litecoin.out" 2>&1 </dev/null &
  daemon=$!
  litecoin_cli -rpcwait getblockcount >/dev/null || { tail -n 40 "$work/litecoin.out" >&2; return 1; }
}

stop_litecoind() {
  local code=0
  litecoin_cli stop >/dev/null
  timeout "$LIMIT" tail --pid="$daemon" -f /dev/null || { kill -9 "$daemon"; die "litecoind did not end within $LIMIT s"; }
  wait "$daemon" || code=$?
  [ "$code" = 0 ] || die "litecoind ended with $code"
}

# The height, the last block and a hash of all unspent outputs. `gettxoutsetinfo` makes the daemon write its databases first: the index of blocks
# with sync, then the unspent outputs without.
chain_state() {
  litecoin_cli gettxoutsetinfo | grep -E '"(height|bestblock|hash_serialized_2)"'
}

# A killed daemon finds all blocks of its index again. The blocks that its database of unspent outputs lacks are connected anew: none where LevelDB
# hands each write to a drive that outlives the process.
litecoin_killed() { # when logs are flushed, the drive's cache
  local daemon written code drive="emu:$work/litecoin-$1.img?zones=96&zone-size=16MiB&cache=$2" data=$work/root/litecoin-$1
  local litecoin=(-regtest "-datadir=$data" "-rpcport=$(free_port)")
  mkdir -p "$data"
  start_litecoind "$drive" "$1"
  litecoin_cli generatetodescriptor 200 'raw(51)' >/dev/null
  written=$(chain_state)
  grep -q '"height": 200,' <<<"$written" || die "the chain has not 200 blocks: $written"
  litecoin_cli generatetodescriptor 20 'raw(51)' >/dev/null
  kill -KILL "$daemon"
  code=0
  wait "$daemon" 2>/dev/null || code=$?
  [ "$code" = 137 ] || die "the daemon ended with $code before it was killed"

  start_litecoind "$drive" "$1"
  [ "$1" = buffer ] || grep -q 'Loaded best chain: .* height=200 ' "$data/regtest/debug.log" || die "the unspent outputs are older than their last write"
  litecoin_cli waitforblockheight 200 30000 >/dev/null
  [ "$(chain_state)" = "$written" ] || die "the chain is another after the kill: $(chain_state), and was $written"
  [ "$(litecoin_cli verifychain 4 0)" = true ] || die "verifychain refuses the chain"
  litecoin_cli generatetodescriptor 20 'raw(51)' >/dev/null
  written=$(chain_state)
  stop_litecoind
  "$built/furrow" fs check -d "$drive" >&2

  start_litecoind "$drive" "$1"
  [ "$(chain_state)" = "$written" ] || die "the chain is another after the restart: $(chain_state), and was $written"
  stop_litecoind
}

if fetch_plyvel; then
  step "plyvel's own tests" plyvel_tests
  step "plyvel's wheel, with a LevelDB of its own" plyvel_wheel
else
  tail -n 5 "$work/pip.out" >&2
  skip "plyvel's tests cannot be fetched by pip"
fi
if fetch_leveldb; then
  step "LevelDB's own tests" leveldb_tests
  step "LevelDB's db_bench" db_bench
  step "LevelDB's tests of its inner parts" inner_tests
else
  tail -n 5 "$work/apt.out" >&2
  skip "LevelDB's source package cannot be fetched by apt"
fi
if fetch_daemons; then
  step "Minetest's server moves a map to LevelDB and back" minetest_migration
  step "Litecoin's daemon is killed" litecoin_killed buffer volatile
  step "Litecoin's daemon is killed, with each write on the drive" litecoin_killed drive none
else
  tail -n 5 "$work/apt.out" >&2
  skip "Minetest's server and Litecoin's daemon cannot be fetched by apt"
fi
say "LevelDB's programs: all passed in $SECONDS s"
