#!/usr/bin/env bash
# Stock clients of Redis Cluster, unmodified: redis-cli, redis-benchmark, redis-py, ioredis, go-redis, Jedis. Each sends the same
# commands (scripts/clients/commands.txt) to three stock redis-server in a cluster and to a cluster of three furrow serve: the
# replies must be equal, but for those in scripts/clients/differences.txt. Then the leader of a group is killed in turn under load.
#
#   scripts/clients.sh [KILLS]     5 kills if not given, with the clients' default settings and with more attempts each
#
# Prints a table of replies, and one of what each client saw of the kills. Ends with 1 if a reply differs, if an acknowledged record
# is lost or if a read is wrong. Errors that reach a program are counted. Kills only what it started.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

kills=${1:-5}
redis_py=8.1.0 ioredis=5.9.3
need_packages etcd-server redis-server redis-tools curl python3-pip python3-setuptools
# Node, Go, Java and Maven may come from elsewhere than Debian.
need_program() { # program package
  command -v "$1" >/dev/null || need_packages "$2"
}
need_program node nodejs
need_program npm npm
need_program go golang-go
need_program javac openjdk-17-jdk-headless
need_program mvn maven

# FURROW_BUILT: where a built program is, instead of building one.
built=${FURROW_BUILT:-$(scripts/build.sh)}
# What is fetched stays for the next run. The names have the versions.
kept=$(realpath -m "${CARGO_TARGET_DIR:-target}/clients")
python=/usr/bin/python3
work=$(mktemp -d)
cleanup() { rm -rf "$work"; }

# Runs a client's package manager with a new directory, which takes its place once it is whole.
fetch() { # directory command...
  local directory=$1
  shift
  [ ! -d "$directory" ] || return 0
  rm -rf "$directory.new"
  timeout 170 "$@" >"$work/fetch.out" 2>&1 </dev/null || { tail -n 20 "$work/fetch.out" >&2; die "a client cannot be fetched: $*"; }
  mv "$directory.new" "$directory"
}

programs() {
  local jars
  jars=$kept/jedis-$(cksum <scripts/clients/pom.xml | cut -d ' ' -f 1)
  mkdir -p "$kept"
  fetch "$kept/redis-py-$redis_py" "$python" -m pip --quiet --disable-pip-version-check install --root-user-action ignore \
    --target "$kept/redis-py-$redis_py.new" "redis==$redis_py"
  fetch "$kept/ioredis-$ioredis" npm install --silent --no-save --ignore-scripts --prefix "$kept/ioredis-$ioredis.new" "ioredis@$ioredis"
  fetch "$jars" mvn -q -B -f scripts/clients/pom.xml org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies \
    -DoutputDirectory="$jars.new"
  ln -sfn "$jars" "$work/jars"
  javac -d "$work/classes" -cp "$jars/*" scripts/clients/JedisClient.java
  # No other version of Go is fetched than the one that is here.
  (cd scripts/clients/goredis && GOTOOLCHAIN=local timeout 170 go build -o "$work/goredis" .) || die "the program with go-redis cannot be built"
}

clusters() {
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$kept/redis-py-$redis_py:scripts/cluster NODE_PATH=$kept/ioredis-$ioredis/node_modules \
    timeout 300 "$python" scripts/clients/run.py --furrow "$built/furrow" --programs "$work" --work "$work" --kills "$kills"
}

step "clients" programs
step "replies and failovers" clusters
