#!/usr/bin/env bash
# Furrow beside what people use now, alternating in one run:
#   db_bench fillrandom and readrandom on a zero-delay drive in memory beside tmpfs, same options and log buffer;
#   redis-benchmark SET and GET beside Debian's redis-server;
#   gets: latencies of pipelined GETs from 50 clients, beside Debian's redis-server;
#   logs: redis-benchmark SET with furrow serve --wal group and auto on a zn540, and on a drive without delay. BEFORE=FILE
#   measures another build of furrow beside them.
# Prints medians, spread and ratios. Wants a quiet machine; not part of CI.
#
#   scripts/compare.sh [db_bench|redis|gets|logs]...
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
  if [ "${code:-0}" != 0 ] && [ -s "$shm/server.err" ]; then
    say "the end of the server's log:"
    tail -n 20 "$shm/server.err" >&2
  fi
  rm -rf "$shm"
}

# Ends the measured server. The figures of a server that ended by itself do not count.
stop() {
  local pid=${pids[0]} code=0
  kill -9 "$pid" || die "the server (pid $pid) ended by itself"
  wait "$pid" 2>/dev/null || code=$?
  pids=()
  [ "$code" = 137 ] || die "the server (pid $pid) ended by itself, with $code"
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

# The rate of each of the two benchmarks; fails without both. db_bench also prints a line "Read rate: 0 ops/second".
db_bench_figures() {
  awk '/ ops\/sec( |$)/ {print $1, $5; found++} END {exit found != 2}'
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
      db_bench_figures >>"$shm/ours" || die "furrow db-bench gave no figures of both benchmarks"
    db_bench "${options[@]}" --db="$shm/db" </dev/null 2>/dev/null | db_bench_figures >>"$shm/theirs" ||
      die "db_bench gave no figures of both benchmarks"
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
    awk -F '"' '$2 == "SET" || $2 == "GET" {print $2, $4; found++} END {exit found != 2}'
}

# Starts a server with synced writes on tmpfs; its port is in $port.
start() { # furrow or redis
  port=$(free_port)
  case $1 in
    furrow)
      FURROW_LOG=warn "$furrow" serve --device "emu:$shm/drive.img?zones=128&zone-size=64MiB" --port "$port" --http none \
        >/dev/null 2>"$shm/server.err" </dev/null &
      ;;
    redis)
      # redis-tools has the server's program under another name; the program acts by the name it is started with.
      (exec -a redis-server redis-check-rdb --port "$port" --bind 127.0.0.1 --dir "$shm" --appendonly yes --appendfsync always \
        --save '' >"$shm/server.err" 2>&1 </dev/null) &
      ;;
  esac
  pids=($!)
  wait_ready "$port" "${pids[0]}"
}

stop_and_remove() {
  stop
  rm -rf "$shm/drive.img" "$shm/appendonlydir"
}

compare_redis() {
  local i
  : >"$shm/ours"
  : >"$shm/theirs"
  for i in $(seq "$runs"); do
    say "redis-benchmark, run $i of $runs"
    start furrow
    redis_figures "$port" >>"$shm/ours"
    stop_and_remove
    start redis
    redis_figures "$port" >>"$shm/theirs"
    stop_and_remove
  done
  header
  echo "redis-benchmark -P 16 -r 1000000 -n $requests: furrow serve beside redis-server, both synced, both on tmpfs"
  report SET "$shm/ours" "$shm/theirs" redis-server
  report GET "$shm/ours" "$shm/theirs" redis-server
}

# One run of GETs from 50 clients: "requests/s p50 p99 max", latencies in ms.
get_figures() { # port, commands in a pipeline
  redis-benchmark -p "$1" -t get -c 50 -P "$2" -n "$requests" -r 100000 --csv </dev/null 2>/dev/null |
    awk -F '"' '$2 == "GET" {print $4, $10, $14, $16; found++} END {exit found != 1}'
}

compare_gets() {
  local i server pipeline column
  rm -f "$shm"/gets.*
  for i in $(seq "$runs"); do
    for server in furrow redis; do
      say "GETs, $server, run $i of $runs"
      start "$server"
      redis-benchmark -p "$port" -t set -P 64 -n 300000 -r 100000 -q >/dev/null 2>&1 </dev/null
      for pipeline in 1 16 64; do
        get_figures "$port" "$pipeline" >>"$shm/gets.$server.$pipeline" || die "redis-benchmark gave no figures"
      done
      stop_and_remove
    done
  done
  header
  echo "redis-benchmark -t get -c 50 -n $requests -r 100000"
  echo "| commands in a pipeline | server | requests/s | p50, ms | p99, ms | max, ms |"
  echo "|---|---|---|---|---|---|"
  for pipeline in 1 16 64; do
    for server in furrow redis; do
      printf '| %s | %s |' "$pipeline" "$server"
      for column in 1 2 3 4; do printf ' %s |' "$(column "$shm/gets.$server.$pipeline" "$column")"; done
      echo
    done
  done
}

# One run of redis-benchmark's SET: "requests/s p50 p99 max" and p99.9 from its histogram, latencies in ms.
set_figures() { # port, options...
  local port=$1
  shift
  redis-benchmark -p "$port" -t set -n "$requests" --precision 3 "$@" </dev/null 2>/dev/null | tr '\r' '\n' | awk '
    /requests per second/ && !/overall/ {for (i = 1; i < NF; i++) if ($(i + 1) == "requests") rate = $i}
    # "99.902% <= 1.607 milliseconds (cumulative count 999021)"
    /% <= .* milliseconds/ && !p999 {share = $1; sub("%", "", share); if (share + 0 >= 99.9) p999 = $3}
    /^ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ *$/ {p50 = $3; p99 = $5; max = $6}
    END {
      if (!(rate > 0 && p50 > 0 && p99 > 0 && p999 > 0 && max > 0)) exit 1
      print rate, p50, p99, p999, max
    }'
}

# The median of a column, and its least and largest.
column() { # file, column
  awk -v c="$2" '{print $c}' "$1" | sort -n | awk '
    {v[NR] = $1}
    END {m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; printf "%g (%g to %g)", m, v[1], v[NR]}'
}

logs_pair() { # title, device, options of redis-benchmark...
  local title=$1 device=$2 i kind name wal program flags port
  shift 2
  local kinds=("group group $furrow" "auto auto $furrow")
  # An older build may have no --wal.
  [ -z "${BEFORE:-}" ] || kinds=("before - $BEFORE" "${kinds[@]}")
  rm -f "$shm"/logs.*
  for i in $(seq "$runs"); do
    for kind in "${kinds[@]}"; do
      read -r name wal program <<<"$kind"
      say "$title, $name, run $i of $runs"
      flags=(--wal "$wal")
      [ "$wal" != - ] || flags=()
      port=$(free_port)
      FURROW_LOG=warn "$program" serve --device "$device" --port "$port" --http none "${flags[@]}" \
        >/dev/null 2>"$shm/server.err" </dev/null &
      pids=($!)
      wait_ready "$port" "${pids[0]}"
      set_figures "$port" "$@" >>"$shm/logs.$name" || die "redis-benchmark gave no figures"
      stop
    done
  done
  header
  echo "redis-benchmark -t set -n $requests $*: furrow serve --device '$device'"
  echo "| log | requests/s | p50, ms | p99, ms | p99.9, ms | max, ms |"
  echo "|---|---|---|---|---|---|"
  for kind in "${kinds[@]}"; do
    name=${kind%% *}
    printf '| %s |' "$name"
    for i in 1 2 3 4 5; do printf ' %s |' "$(column "$shm/logs.$name" "$i")"; done
    echo
  done
}

compare_logs() {
  # The drive is in memory: what is written has to fit.
  local zn540="emu:mem?profile=zn540&zones=24" plain="emu:mem?zones=128&zone-size=64MiB"
  logs_pair "zn540, keys apart" "$zn540" -c 64 -r 100000
  logs_pair "zn540, one key" "$zn540" -c 64
  logs_pair "zn540, pipelines of 16" "$zn540" -c 64 -r 100000 -P 16
  logs_pair "no delay, keys apart" "$plain" -c 64 -r 100000
  logs_pair "no delay, pipelines of 16" "$plain" -c 64 -r 100000 -P 16
}

for what in "$@"; do
  case $what in
    db_bench) compare_db_bench ;;
    redis) compare_redis ;;
    gets) compare_gets ;;
    logs) compare_logs ;;
    *) say "usage: scripts/compare.sh [db_bench|redis|gets|logs]..."; exit 2 ;;
  esac
done
