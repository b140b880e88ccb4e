#!/usr/bin/env bash
# Unmodified servers under `furrow prio run`: Debian's PostgreSQL and redis, and its ZooKeeper where it is installed. Each is killed under a load of synced writes and
# started again: every acknowledged write is there, and every file has its class. Loopback only; ends by itself; kills only what it started.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

built=$(scripts/build.sh)
furrow=$built/furrow
work=$(mktemp -d)
server=
cleanup() {
  [ -z "$(jobs -p)" ] || kill $(jobs -p) 2>/dev/null || true
  [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
  # PostgreSQL's processes end by themselves once their first one is gone.
  [ -z "$server" ] || sleep 1
  rm -rf "$work"
}
# No wait takes longer than this many seconds.
LIMIT=60

# PostgreSQL does not run as root. Its user has the files, the pages and the program, which may lie where only root may look.
chmod 755 "$work"
mkdir "$work/bin" "$work/pages"
cp "$furrow" "$built/libfurrow_prio.so" "$work/bin"
furrow=$work/bin/furrow
export FURROW_PRIO_DIR=$work/pages/of-$(id -u)

# Waits until the command succeeds.
wait_for() { # command
  local left=$((LIMIT * 10))
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || { say "waited in vain for: $*"; return 1; }
    sleep 0.1
  done
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }

no_process_in() { # directory
  ! readlink /proc/[0-9]*/cwd 2>/dev/null | grep -qx "$1"
}

# --- redis

redis_start() {
  port=$(free_port)
  # redis-tools has the server's program under another name; the program acts by the name it is started with.
  ln -sf "$(command -v redis-check-rdb)" "$work/redis-server"
  "$furrow" prio run --profile redis --counters "$work/redis.json" -- "$work/redis-server" --port "$port" --bind 127.0.0.1 \
    --dir "$work/redis" --appendonly yes --appendfsync always --save '' --enable-debug-command yes >>"$work/redis.out" 2>&1 </dev/null &
  server=$!
  wait_ready "$port" "$server" || { tail -n 20 "$work/redis.out" >&2; return 1; }
}

redis() { timeout 10 redis-cli -p "$port" "$@"; }

# One counter for each acknowledged increment, until the server dies.
redis_load() {
  local answer
  while answer=$(redis incr acknowledged) && [[ $answer =~ ^[0-9]+$ ]]; do
    printf '%s\n' "$answer" >"$work/redis.acknowledged.new"
    mv "$work/redis.acknowledged.new" "$work/redis.acknowledged"
  done
}

redis_under_prio() {
  local load acknowledged found
  mkdir "$work/redis"
  redis_start
  # 64 MiB, so that the rewrite of the log is bulk for a while.
  redis debug populate 64000 key 1000 >/dev/null
  redis_load 2>/dev/null &
  load=$!
  sleep 1
  redis bgrewriteaof >/dev/null
  wait_for eval '[ "$(redis info persistence | grep -c aof_rewrite_in_progress:0)" = 1 ]'
  sleep 1
  kill -9 "$server"
  wait "$server" 2>/dev/null || true
  wait "$load" || true
  acknowledged=$(cat "$work/redis.acknowledged")

  redis_start
  found=$(redis get acknowledged)
  [ "$found" -ge "$acknowledged" ] || die "redis has $found increments, and acknowledged $acknowledged"
  [ "$(redis dbsize)" = 64001 ] || die "redis has $(redis dbsize) keys of 64,001"
  say "$acknowledged acknowledged increments are there ($found)"
  redis incr acknowledged >/dev/null
  redis bgrewriteaof >/dev/null
  wait_for eval '[ "$(redis info persistence | grep -c aof_rewrite_in_progress:0)" = 1 ]'
  redis shutdown >/dev/null 2>&1 || true
  wait_for is_gone "$server"
  server=
  expect_counters "$work/redis.json"
}

# --- PostgreSQL

# Runs a command as the user of the server.
as_postgres() {
  if [ "$(id -u)" = 0 ]; then
    setpriv --reuid=postgres --regid=postgres --init-groups env HOME="$work" FURROW_PRIO_DIR="$work/pages/of-postgres" "$@"
  else
    "$@"
  fi
}

postgres_start() {
  port=$(free_port)
  as_postgres "$furrow" prio run --profile postgres --counters "$work/pg/counters" -- "$postgres/postgres" -D "$work/pg/data" -p "$port" \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories="$work/pg" -c shared_buffers=16MB >>"$work/pg.out" 2>&1 </dev/null &
  wait_for sql 'select 1' || { tail -n 20 "$work/pg.out" >&2; return 1; }
  # The background job is the shell that became another user.
  server=$(head -n 1 "$work/pg/data/postmaster.pid")
}

sql() { as_postgres env PGCONNECT_TIMEOUT=5 "$postgres/psql" -h 127.0.0.1 -p "$port" -d postgres -qAtc "$1"; }

# A row for each acknowledged transaction, until the server dies.
postgres_load() {
  local n=0
  for ((n = 1; ; n++)); do
    printf "insert into acknowledged values (%d);\n\\\\echo %d\n" "$n" "$n"
  done | as_postgres "$postgres/psql" -h 127.0.0.1 -p "$port" -d postgres -qAt -v ON_ERROR_STOP=1 >"$work/pg.acknowledged" 2>/dev/null
}

postgres_under_prio() {
  local load acknowledged found
  mkdir "$work/pg"
  [ "$(id -u)" != 0 ] || { chown postgres: "$work/pg"; chmod 777 "$work/pages"; }
  as_postgres "$postgres/initdb" -D "$work/pg/data" -A trust -N >"$work/initdb.out" 2>&1 || { tail -n 20 "$work/initdb.out" >&2; return 1; }
  postgres_start
  sql 'create table acknowledged (n int primary key)'
  sql "create table bulk as select n, repeat('x', 500) as text from generate_series(1, 60000) n"
  postgres_load || true &
  load=$!
  sleep 1
  sql checkpoint
  sql "update bulk set text = repeat('y', 500)"
  kill -9 "$server"
  wait_for is_gone "$server"
  server=
  wait "$load" || true
  # A line that was cut off is no acknowledgement.
  acknowledged=$(sed '$d' "$work/pg.acknowledged" | tail -n 1)
  [ "${acknowledged:-0}" -gt 0 ] || die "PostgreSQL acknowledged nothing"
  # The other processes see that the first one is gone; until then a new server refuses to start.
  wait_for no_process_in "$work/pg/data"

  postgres_start
  found=$(sql 'select count(*) from acknowledged')
  [ "$found" -ge "$acknowledged" ] || die "PostgreSQL has $found rows, and acknowledged $acknowledged"
  [ "$(sql 'select count(*) from bulk')" = 60000 ] || die "the table of 60,000 rows has $(sql 'select count(*) from bulk')"
  say "$acknowledged acknowledged rows are there ($found)"
  sql "insert into acknowledged values (0)"
  sql "update bulk set text = repeat('z', 500)"
  sql checkpoint
  kill -INT "$server"
  wait_for is_gone "$server"
  server=
  expect_counters "$work/pg/counters"
}

# --- ZooKeeper

zookeeper_start() {
  port=$(free_port)
  printf '%s\n' tickTime=500 "dataDir=$work/zk" "clientPort=$port" clientPortAddress=127.0.0.1 admin.enableServer=false snapCount=400 >"$work/zoo.cfg"
  "$furrow" prio run --profile zookeeper --counters "$work/zk.json" -- java -Xmx256m -XX:TieredStopAtLevel=1 -cp "$zookeeper" \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zoo.cfg" >>"$work/zk.out" 2>&1 </dev/null &
  server=$!
  wait_for zk_answers || { tail -n 20 "$work/zk.out" >&2; return 1; }
}

zk_answers() { zk ls / | grep -q '^\[.*zookeeper\]'; }

# Runs commands of ZooKeeper's shell, one a line of stdin or the arguments.
zk() {
  timeout "$LIMIT" java -XX:TieredStopAtLevel=1 -cp "$zookeeper" org.apache.zookeeper.ZooKeeperMain -server "127.0.0.1:$port" "$@" 2>&1
}

zookeeper_load() { # first last
  local n
  for ((n = $1; n <= $2; n++)); do
    echo "create /a/n$n value"
  done | zk
}

zookeeper_under_prio() {
  local acknowledged missing load left
  mkdir "$work/zk"
  zookeeper_start
  zk create /a top >/dev/null
  zookeeper_load 1 20000 >"$work/zk.acknowledged" &
  load=$!
  left=$((LIMIT * 10))
  while [ "$(grep -c '^Created /a/' "$work/zk.acknowledged" || true)" -lt 600 ] && [ "$left" -gt 0 ]; do
    sleep 0.1
    left=$((left - 1))
  done
  kill -9 "$server"
  wait "$server" 2>/dev/null || true
  kill "$load" 2>/dev/null || true
  pkill -P "$load" 2>/dev/null || true
  wait "$load" 2>/dev/null || true
  grep -o '^Created /a/n[0-9]*$' "$work/zk.acknowledged" | sed 's#.*/##' | sort >"$work/zk.expected"
  acknowledged=$(wc -l <"$work/zk.expected")
  [ "$acknowledged" -ge 600 ] || die "ZooKeeper acknowledged $acknowledged nodes of 600: $(tail -n 3 "$work/zk.out")"

  zookeeper_start
  zk ls /a | grep '^\[' | grep -o 'n[0-9][0-9]*' | sort -u >"$work/zk.found"
  missing=$(comm -23 "$work/zk.expected" "$work/zk.found" | wc -l)
  [ "$missing" = 0 ] || die "ZooKeeper lacks $missing of $acknowledged acknowledged nodes"
  say "$acknowledged acknowledged nodes are there ($(wc -l <"$work/zk.found"))"
  zookeeper_load 20001 20900 >"$work/zk.more"
  kill "$server"
  wait_for is_gone "$server"
  server=
  expect_counters "$work/zk.json"
}

step "redis under prio run" redis_under_prio
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$postgres" ] || die "no PostgreSQL: run scripts/setup.sh test"
step "PostgreSQL under prio run" postgres_under_prio
if [ -f /usr/share/java/zookeeper.jar ] && command -v java >/dev/null; then
  zookeeper=$(printf '%s:' /usr/share/java/zookeeper.jar /usr/share/java/{zookeeper-jute,slf4j-api,slf4j-simple,netty-all,snappy-java,metrics-core,commons-cli,commons-io,jline2,jline,audience-annotations}.jar)
  step "ZooKeeper under prio run" zookeeper_under_prio
else
  [ "${FURROW_REQUIRE_ZOOKEEPER:-0}" = 0 ] || die "ZooKeeper is not installed, and FURROW_REQUIRE_ZOOKEEPER is set"
  say "SKIPPED: ZooKeeper is not installed (libzookeeper-java, default-jre-headless)"
fi
say "programs under prio run: all passed in $SECONDS s"
