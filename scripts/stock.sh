#!/usr/bin/env bash
# Unmodified programs against Furrow: redis-cli, redis-benchmark, db_bench, ldb, sst_dump. Loopback only; ends by
# itself; kills only what it started.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

built=$(scripts/build.sh)
furrow=$built/furrow
work=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
  rm -rf "$work"
}

# No step takes longer than this many seconds; one that does hangs.
LIMIT=400

# Runs a command, its output to a file; shows the output where it fails.
quiet() {
  timeout "$LIMIT" "$@" >"$work/out" 2>"$work/err" </dev/null && return 0
  local code=$?
  say "failed with $code: $*"
  tail -n 40 "$work/out" "$work/err" >&2
  return 1
}

# Fails unless the last output has a line that matches $1.
expect() {
  grep -Eq -- "$1" "$work/out" || { say "no line matches: $1"; tail -n 40 "$work/out" "$work/err" >&2; return 1; }
}

start_server() { # device
  port=$(free_port)
  FURROW_LOG=warn "$furrow" serve --device "$1" --port "$port" --http none >"$work/server" 2>&1 </dev/null &
  server=$!
  wait_ready "$port" "$server" || { cat "$work/server" >&2; return 1; }
}

stop_server() {
  redis-cli -p "$port" shutdown >/dev/null 2>&1 || true
  local left=300
  while kill -0 "$server" 2>/dev/null; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || { say "the server did not stop after SHUTDOWN"; return 1; }
    sleep 0.1
  done
  wait "$server" || { say "the server ended with $?"; cat "$work/server" >&2; return 1; }
  server=
}

# One redis-cli command and the answer it must give.
answer() {
  local wanted=$1 got
  shift
  got=$(timeout 10 redis-cli -p "$port" "$@")
  [ "$got" = "$wanted" ] || { say "redis-cli $*: '$got', not '$wanted'"; return 1; }
}

redis_cli() {
  start_server "emu:$work/redis.img?zones=64&zone-size=16MiB"
  answer PONG ping
  answer OK set greeting hello
  answer hello get greeting
  answer 2 append counter 41
  answer 42 incr counter
  answer OK mset a 1 b 2 c 3
  answer "$(printf '1\n2\n3')" mget a b c
  answer 2 del a b
  answer 0 exists a
  answer 1 expire greeting 1000
  # A kill is a power cut: what was acknowledged is there afterwards.
  kill -9 "$server"
  wait "$server" 2>/dev/null || true
  server=
  start_server "emu:$work/redis.img"
  answer hello get greeting
  answer 3 get c
  stop_server
  start_server "emu:$work/redis.img"
  answer 3 get c
  stop_server
}

redis_benchmark() {
  start_server "emu:$work/bench.img?zones=64&zone-size=16MiB"
  quiet redis-benchmark -p "$port" -t set,get,mset,incr -P 16 -n 20000 -r 10000 -q
  tr '\r' '\n' <"$work/out" >"$work/lines" && mv "$work/lines" "$work/out"
  for test in 'SET:' 'GET:' 'MSET \(10 keys\):' 'INCR:'; do
    expect "^$test [0-9.]+ requests per second"
  done
  grep -E 'requests per second' "$work/out" | grep -v 'rps=' >&2
  stop_server
}

BENCHMARKS=fillseq,fillrandom,overwrite,readrandom,readwhilewriting

db_bench() { # name, arguments
  local name=$1 benchmark
  shift
  quiet "$furrow" db-bench --device "emu:$work/$name.img?zones=96&zone-size=16MiB" -- --db=/db \
    --benchmarks="$BENCHMARKS" --threads=4 --write_buffer_size=4194304 "$@"
  for benchmark in ${BENCHMARKS//,/ }; do
    expect "^$benchmark +:.* ops/sec"
  done
  grep -E ' ops/sec' "$work/out" | cut -c 1-78 >&2
}

db_bench_unsynced() { db_bench unsynced --num=40000 --sync=0; }
db_bench_synced() { db_bench synced --num=400 --sync=1; }

# A drive is filled, says so, still reads, and takes data again once some is gone.
full_drive() {
  local device="emu:$work/full.img?zones=40&zone-size=4MiB"
  local common=(--db=/db --value_size=4000 --compression_type=none --write_buffer_size=2097152 --target_file_size_base=2097152)
  if timeout "$LIMIT" "$furrow" db-bench --device "$device" -- "${common[@]}" --benchmarks=fillrandom --num=100000 \
    >"$work/out" 2>"$work/err" </dev/null; then
    say "400 MB went into a drive of 160 MiB"
    return 1
  fi
  cat "$work/err" >>"$work/out"
  expect 'No space|no space|NoSpace'
  quiet "$furrow" fs check --device "emu:$work/full.img"
  quiet "$furrow" ldb --device "emu:$work/full.img" -- --db=/db scan --max_keys=5
  # db_bench removes the old database first: that frees the space.
  quiet "$furrow" db-bench --device "emu:$work/full.img" -- "${common[@]}" --benchmarks=fillseq,readrandom --num=4000
  expect '^readrandom +:.* ops/sec.*\(4000 of 4000 found\)'
  quiet "$furrow" fs check --device "emu:$work/full.img"
}

tools() {
  local device="emu:$work/unsynced.img"
  quiet "$furrow" ldb --device "$device" -- --db=/db scan --max_keys=10
  [ "$(wc -l <"$work/out")" -ge 10 ] || { say "ldb scan showed too few keys"; return 1; }
  quiet "$furrow" ldb --device "$device" -- --db=/db checkpoint --checkpoint_dir=/copy
  quiet "$furrow" ldb --device "$device" -- --db=/copy scan --max_keys=10
  [ "$(wc -l <"$work/out")" -ge 10 ] || { say "ldb scan of the checkpoint showed too few keys"; return 1; }
  quiet "$furrow" ldb --device "$device" -- --db=/db backup --backup_dir=/backup
  quiet "$furrow" fs ls --device "$device" -r /
  expect '/backup/'
  quiet "$furrow" sst-dump --device "$device" -- --file=/db --command=verify
  expect '^The file is ok'
  [ "$(grep -c '^Process ' "$work/out")" = "$(grep -c '^The file is ok' "$work/out")" ] || { cat "$work/out" >&2; return 1; }
  quiet "$furrow" fs check --device "$device"
}

step "redis-cli" redis_cli
step "redis-benchmark" redis_benchmark
step "db_bench, not synced" db_bench_unsynced
step "db_bench, synced" db_bench_synced
step "a full drive" full_drive
step "ldb, sst_dump" tools
say "stock programs: all passed in $SECONDS s"
