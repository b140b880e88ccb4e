#!/usr/bin/env bash
# Furrow beside what people use now, alternating in one run:
#   db_bench fillrandom and readrandom on a zero-delay drive in memory beside tmpfs, same options and log buffer;
#   redis-benchmark SET and GET beside Debian's redis-server.
# Prints medians, spread and ratios. Wants a quiet machine; not part of CI.
#
#   scripts/compare.sh [db_bench|redis]...
#   RUNS=5 NUM=1000000 REQUESTS=1000000 scripts/compare.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

runs=${RUNS:-5}
num=${NUM:-1000000}
requests=${REQUESTS:-1000000}
[ $# -gt 0 ] || set -- db_bench redis

scripts/setup.sh test
use_cargo
cargo build --release --locked --quiet -p furrow-cli -p furrow-plugin
furrow=${CARGO_TARGET_DIR:-target}/release/furrow
[ "$(df --output=fstype /dev/shm | tail -n 1)" = tmpfs ] || die "/dev/shm is no tmpfs"
shm=$(mktemp -d /dev/shm/furrow-compare.XXXXXX)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$shm"
}

# The figures of column $1 of the file, as "median min max".
summary() {
  awk -v what="$1" '$1 == what {print $2}' "$2" | sort -n | awk '
    {v[NR] = $1}
    END {print (NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2), v[1], v[NR]}'
}

report() { # what, ours, theirs, name of theirs
  local our_median our_min our_max their_median their_min their_max
  read -r our_median our_min our_max < <(summary "$1" "$2")
  read -r their_median their_min their_max < <(summary "$1" "$3")
  awk -v w="$1" -v n="$4" -v a="$our_median" -v al="$our_min" -v ah="$our_max" \
    -v b="$their_median" -v bl="$their_min" -v bh="$their_max" 'BEGIN {
      printf "%-12s furrow %9.0f/s (%.0f to %.0f)   %s %9.0f/s (%.0f to %.0f)   ratio %.2f\n", w, a, al, ah, n, b, bl, bh, a / b }'
}

header() {
  say ""
  echo "$(date -u +%Y-%m-%d), $(nproc) cores, $(awk -F ': ' '/^model name/ {print $2; exit}' /proc/cpuinfo), Linux $(uname -r), median of $runs"
}

db_bench_pair() { # title, further options
  local title=$1 i
  shift
  : >"$shm/ours"
  : >"$shm/theirs"
  # Debian's RocksDB has its assertions on, for both.
  local options=(--db=/db --benchmarks=fillrandom,readrandom --num="$num" --compression_type=none
    --write_buffer_size=16777216 --writable_file_max_buffer_size=65536 --seed=1 --disable_wal=0 "$@")
  for i in $(seq "$runs"); do
    say "db_bench, $title, run $i of $runs"
    "$furrow" db-bench --device "emu:mem?zones=128&zone-size=64MiB" -- "${options[@]}" </dev/null 2>/dev/null |
      awk '/ ops\/sec/ {print $1, $5}' >>"$shm/ours"
    db_bench "${options[@]}" --db="$shm/db" </dev/null 2>/dev/null |
      awk '/ ops\/sec/ {print $1, $5}' >>"$shm/theirs"
    rm -rf "$shm/db"
  done
  header
  echo "db_bench --num=$num, $title: emu:mem without delay beside tmpfs"
  report fillrandom "$shm/ours" "$shm/theirs" tmpfs
  report readrandom "$shm/ours" "$shm/theirs" tmpfs
}

compare_db_bench() {
  # On tmpfs RocksDB hands every record to the kernel; our log keeps unsynced ones in its buffer of 64 KiB. With the
  # manual flush both keep them: the same log buffer on both sides.
  db_bench_pair "the same log buffer (manual_wal_flush)" --manual_wal_flush=1
  db_bench_pair "defaults"
}

redis_figures() { # port
  redis-benchmark -p "$1" -t set,get -P 16 -n "$requests" -r 1000000 --csv </dev/null 2>/dev/null |
    awk -F '"' '$2 == "SET" || $2 == "GET" {print $2, $4}'
}

compare_redis() {
  local i port
  : >"$shm/ours"
  : >"$shm/theirs"
  for i in $(seq "$runs"); do
    say "redis-benchmark, run $i of $runs"
    port=$(free_port)
    FURROW_LOG=warn "$furrow" serve --device "emu:$shm/drive.img?zones=128&zone-size=64MiB" --port "$port" --http none \
      >/dev/null 2>&1 </dev/null &
    pids=($!)
    wait_ready "$port" "${pids[0]}"
    redis_figures "$port" >>"$shm/ours"
    kill -9 "${pids[0]}"
    wait "${pids[0]}" 2>/dev/null || true
    rm -f "$shm/drive.img"
    port=$(free_port)
    # Acknowledged means durable for both. redis-tools has the server's program; its name says what it is to be.
    (exec -a redis-server redis-check-rdb --port "$port" --bind 127.0.0.1 --dir "$shm" --appendonly yes --appendfsync always --save '' \
      >/dev/null 2>&1 </dev/null) &
    pids=($!)
    wait_ready "$port" "${pids[0]}"
    redis_figures "$port" >>"$shm/theirs"
    kill -9 "${pids[0]}"
    wait "${pids[0]}" 2>/dev/null || true
    rm -rf "$shm/appendonlydir"
    pids=()
  done
  header
  echo "redis-benchmark -P 16 -r 1000000 -n $requests: furrow serve beside redis-server, both synced, both on tmpfs"
  report SET "$shm/ours" "$shm/theirs" redis-server
  report GET "$shm/ours" "$shm/theirs" redis-server
}

for what in "$@"; do
  case $what in
    db_bench) compare_db_bench ;;
    redis) compare_redis ;;
    *) say "usage: scripts/compare.sh [db_bench|redis]..."; exit 2 ;;
  esac
done
