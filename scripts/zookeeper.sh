#!/usr/bin/env bash
# A stock ZooKeeper ensemble under `furrow prio run`, with `furrow zk turns`: three servers on the loopback interface under load. The leader is killed in the middle of a turn, then
# `zk turns` itself, then all servers: every acknowledged write is there. Then writes are measured while snapshots are taken, under `prio run` and without. Where ZooKeeper's jars cannot be
# fetched the script says so; with FURROW_REQUIRE_ZOOKEEPER=1 that is a failure. Kills only what it started.
#
#     FURROW_ZK_RUNS=5 FURROW_ZK_SECONDS=10 FURROW_ZK_NODES=16000 scripts/zookeeper.sh     longer measurements, of more data: runs, seconds of each part, nodes of 4 KiB
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What is fetched stays for the next run.
kept=$(realpath -m "${CARGO_TARGET_DIR:-target}/zookeeper")
jars=$kept/jars-3.9.5
built=$(scripts/build.sh)
runs=${FURROW_ZK_RUNS:-1} seconds=${FURROW_ZK_SECONDS:-2} nodes=${FURROW_ZK_NODES:-6000}
work=$(mktemp -d)
export FURROW_PRIO_DIR=$work/pages
declare -A pids=()
cleanup() {
  local name
  for name in "${!pids[@]}"; do kill -9 "${pids[$name]}" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
# No wait takes longer than this many seconds.
LIMIT=40
secret=admin:$RANDOM$RANDOM

fetch_jars() {
  [ ! -d "$jars" ] || return 0
  command -v mvn >/dev/null || { echo "no mvn: install maven" >"$work/mvn.out"; return 1; }
  timeout 180 mvn -q -B -f scripts/zookeeper/pom.xml org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies \
    -DoutputDirectory="$work/jars" >"$work/mvn.out" 2>&1 </dev/null || return 1
  mkdir -p "$kept"
  mv "$work/jars" "$jars"
}

now_ms() { date +%s%3N; }

# Waits until the command succeeds.
wait_for() { # command
  local left=$((LIMIT * 10))
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || { say "waited in vain for: $*"; tail -n 20 "$work"/*.jsonl "$work/turns.err" >&2; return 1; }
    sleep 0.1
  done
}

java=(java "-Dlogback.configurationFile=$PWD/scripts/zookeeper/logback.xml" -cp "$jars/*:$work/classes")

# Starts a server: under prio run, which becomes the server, or "plain".
start_server() { # number [plain]
  local prio=("$built/furrow" prio run --join --profile zookeeper --counters "$work/counters-$1" --)
  [ "${2:-}" != plain ] || prio=()
  "${prio[@]}" "${java[@]}" -Xmx$((256 + nodes / 50))m \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zoo-$1.cfg" >>"$work/server-$1.log" 2>&1 </dev/null &
  pids[server-$1]=$!
}

start_load() { # writes a second
  : >"$work/load.log"
  "${java[@]}" -XX:TieredStopAtLevel=1 Load write "$(IFS=,; echo "${clients[*]}")" "$secret" "$nodes" 4096 "$1" "$work/acknowledged" >"$work/load.log" 2>&1 </dev/null &
  pids[load]=$!
  wait_for grep -q filled "$work/load.log"
}

# Kills a process that this script started, by its number.
kill_9() { # name
  kill -9 "${pids[$1]}"
  wait "${pids[$1]}" 2>/dev/null || true
  unset "pids[$1]"
}

ensemble() {
  local n m ports=()
  javac -d "$work/classes" -cp "$jars/*" scripts/zookeeper/Load.java
  for n in 1 2 3 4 5 6 7 8 9 10 11 12; do ports+=("$(free_port)"); done
  [ "$(printf '%s\n' "${ports[@]}" | sort -u | wc -l)" = 12 ] || { ensemble; return; }
  admin=() clients=()
  for n in 1 2 3; do
    mkdir -p "$work/data-$n" "$work/log-$n"
    echo "$n" >"$work/data-$n/myid"
    admin+=("127.0.0.1:${ports[n - 1]}")
    clients+=("127.0.0.1:${ports[n + 2]}")
    {
      printf '%s\n' tickTime=500 initLimit=20 syncLimit=10 "dataDir=$work/data-$n" "dataLogDir=$work/log-$n" clientPortAddress=127.0.0.1 \
        "clientPort=${ports[n + 2]}" admin.serverAddress=127.0.0.1 "admin.serverPort=${ports[n - 1]}" \
        snapCount=2000000000 snapSizeLimitInKb=-1 txnLogSizeLimitInKb=16384 preAllocSize=4096
      for m in 1 2 3; do printf 'server.%s=127.0.0.1:%s:%s\n' "$m" "${ports[m + 5]}" "${ports[m + 8]}"; done
    } >"$work/zoo-$n.cfg"
    start_server "$n"
  done
  printf '%s\n' "$secret" >"$work/credentials"
  chmod 600 "$work/credentials"
  listed=$(IFS=,; echo "${admin[*]}")
  turns=("$built/furrow" --json zk turns --ensemble "$listed" --interval 300ms --longest-snapshot 5s --longest-settle-time 5s --synced
    --least-log 1MiB --longest-log 3MiB)
  : >"$work/kills"
  start_load 100
}

# The program refuses, and says why.
refuses() { # pattern arguments
  local pattern=$1 code=0
  shift
  "$built/furrow" zk turns "$@" >"$work/refused" 2>&1 || code=$?
  [ "$code" != 0 ] && grep -Eq -- "$pattern" "$work/refused" || { say "not refused with '$pattern': $*"; cat "$work/refused" >&2; return 1; }
}

bad_input() {
  refuses '401' --ensemble "$listed" --dry-run
  printf 'admin:wrong\n' >"$work/wrong"
  refuses 'chmod 600' --ensemble "$listed" --credentials "$work/wrong" --dry-run
  chmod 600 "$work/wrong"
  refuses '403' --ensemble "$listed" --credentials "$work/wrong" --dry-run
  refuses 'nobody listens' --ensemble "${admin[0]},${admin[1]},127.0.0.1:$(free_port)" --dry-run
  refuses 'no answer|no JSON' --ensemble "${admin[0]},${admin[1]},${clients[2]}" --dry-run
  refuses 'even number' --ensemble "$listed,127.0.0.1:1" --dry-run
  refuses 'same server' --ensemble "${admin[0]},${admin[1]},localhost:${admin[1]##*:}" --dry-run
  "${turns[@]}" --credentials "$work/credentials" --dry-run >&2
}

start_turns() {
  "${turns[@]}" --credentials "$work/credentials" >>"$work/events.jsonl" 2>>"$work/turns.err" </dev/null &
  pids[turns]=$!
}

count() { grep -c "$1" "$work/events.jsonl" || true; }

# True if every server's snapshot was taken since line $1 of the events.
all_taken_since() { # line
  local n
  for n in 1 2 3; do
    tail -n "+$(($1 + 1))" "$work/events.jsonl" | grep '"event":"snapshot-taken"' | grep -q "\"server\":$n[,}]" || return 1
  done
}

begins_since() { [ "$(count '"event":"turn-begins"')" -gt "$1" ]; }

lines() { wc -l <"$work/events.jsonl"; }

one_after_another() {
  : >"$work/events.jsonl"
  start_turns
  wait_for all_taken_since 0
}

leader_dies() {
  local before line leader
  before=$(count '"event":"turn-begins"')
  wait_for begins_since "$before"
  leader=$(grep '"event":"leader"' "$work/events.jsonl" | tail -n 1 | grep -o '"server":[0-9]*' | cut -d: -f2)
  kill_9 "server-$leader"
  echo "$leader $(now_ms)" >>"$work/kills"
  line=$(lines)
  sleep 1
  start_server "$leader"
  wait_for all_taken_since "$line"
}

turns_die() {
  local before line
  before=$(count '"event":"turn-begins"')
  wait_for begins_since "$before"
  kill_9 turns
  line=$(lines)
  start_turns
  wait_for all_taken_since "$line"
}

acknowledged() { wc -l <"$work/acknowledged"; }

acknowledged_since() { [ "$(acknowledged)" -gt "$1" ]; }

# Reads all nodes from a server. A server that has just begun may drop a connection.
read_all() { # number
  timeout "$LIMIT" "${java[@]}" -XX:TieredStopAtLevel=1 Load read "${clients[$1 - 1]}" "$secret" "$nodes" "$work/read-$1" >"$work/read.log" 2>&1
}

# All servers end at once under the load, and come back.
all_die() {
  local n before
  kill_9 turns
  for n in 1 2 3; do
    kill -9 "${pids[server-$n]}"
    echo "$n $(now_ms)" >>"$work/kills"
  done
  for n in 1 2 3; do
    # The status of a killed process is no failure of the test.
    wait "${pids[server-$n]}" 2>/dev/null || true
    start_server "$n"
  done
  before=$(acknowledged)
  wait_for acknowledged_since "$((before + 100))"
  kill_9 load
  for n in 1 2 3; do read_all "$n" || read_all "$n" || { tail -n 20 "$work/read.log" >&2; return 1; }; done
  "$python" scripts/zookeeper/check.py writes "$work" >&2
}

verdict() { "$python" scripts/zookeeper/check.py turns "$work" >&2; }

# Measures writes without snapshots, with those of one server after the other, and with those of all servers at the same time, in an order that differs from run to run.
measure() { # name run
  local how times orders=("none turns together" "turns together none" "together none turns")
  wait_for "${turns[@]}" --credentials "$work/credentials" --dry-run
  start_load 300
  # The servers and the client have begun anew: their first writes are slow.
  sleep "$((seconds < 5 ? 2 : seconds))"
  for how in ${orders[$2 % 3]}; do
    if [ "$how" = none ]; then
      times=("$(now_ms)")
      sleep "$seconds"
      times+=("$(now_ms)")
    else
      times=($("$python" scripts/zookeeper/snapshots.py "$how" "$seconds" "$work/credentials" "${admin[@]}"))
    fi
    "$python" scripts/zookeeper/check.py latencies "$work" "$1, snapshots: $how" "${times[0]}" "${times[1]}"
  done
  kill_9 load
}

# Ends the servers in order, so that they write their counters.
stop_servers() {
  local n
  for n in 1 2 3; do kill "${pids[server-$n]}"; done
  for n in 1 2 3; do
    wait_for is_gone "${pids[server-$n]}"
    unset "pids[server-$n]"
  done
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }

compare() {
  local run n
  for ((run = 1; run <= runs; run++)); do
    # The servers run under prio run since the last step, or the last run.
    measure "prio run" "$run"
    stop_servers
    for n in 1 2 3; do start_server "$n" plain; done
    measure "plain" "$run"
    stop_servers
    [ "$run" = "$runs" ] || for n in 1 2 3; do start_server "$n"; done
  done
  "$python" scripts/zookeeper/check.py summary "$work" >&2
}

counted() {
  local n
  for n in 1 2 3; do expect_counters "$work/counters-$n"; done
}

python=/usr/bin/python3
if fetch_jars; then
  step "an ensemble of three" ensemble
  step "faults are refused in words" bad_input
  step "turns, one after the other, the leader last" one_after_another
  step "the leader is killed" leader_dies
  step "zk turns is killed" turns_die
  step "all servers are killed" all_die
  step "the servers' logs" verdict
  step "snapshots beside writes, with prio run and without" compare
  step "counters of the servers" counted
  say "ZooKeeper: all passed in $SECONDS s"
else
  tail -n 5 "$work/mvn.out" >&2
  [ "${FURROW_REQUIRE_ZOOKEEPER:-0}" = 0 ] || die "ZooKeeper's jars cannot be fetched by mvn, and FURROW_REQUIRE_ZOOKEEPER is set"
  say "SKIPPED: ZooKeeper's jars cannot be fetched by mvn"
fi
