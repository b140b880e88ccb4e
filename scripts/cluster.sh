#!/usr/bin/env bash
# A cluster of five servers over three etcd, on this machine: clients write and read without pause while the leader of a group, a
# backup, a witness and etcd's leader are killed (kill -9) in turn and started again. Then every acknowledged record is compared. Then
# the same while nodes die for good, are drained, removed, and come back.
#
#   scripts/cluster.sh [KILLS]     20 kills if not given
#   scripts/cluster.sh upgrade     only: the servers of a cluster go to a newer program, back, and forth again under load, and the
#                                  cluster is raised to its version
#
# Prints what was acknowledged, and the pauses that clients saw. Ends with 1 if an acknowledged record is lost or a pause is too long.
# Afterwards, in another cluster, six leaders are killed while clients count by FURROW.ONCE: 1 if a command has not counted once.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

what=${1:-20}
need_packages etcd-server redis-tools curl python3-pip python3-setuptools
built=$(scripts/build.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=/usr/bin/python3
if ! "$python" -m pip --quiet --disable-pip-version-check install --root-user-action ignore --target "$work/python" redis==5.2.1; then
  say "pip has no redis 5.2.1 here: Debian's redis-py is taken, which connects anew after each error"
  rm -rf "$work/python"
  need_packages python3-redis
fi
# The older program is this one, built so that it speaks version 1 of clusters alone.
upgrade() {
  mkdir "$work/upgrade"
  CARGO_TARGET_DIR=$work/target cargo build --locked --quiet --profile test -p furrow-cli --features version-1 >&2
  local older=$work/target/debug/furrow
  PYTHONPATH=$work/python "$python" scripts/cluster/upgrade.py --older "$older" --newer "$built/furrow" --work "$work/upgrade"
}
if [ "$what" = upgrade ]; then
  use_cargo
  upgrade
  exit
fi
kills=$what
mkdir "$work/kills" "$work/replace" "$work/once"
PYTHONPATH=$work/python "$python" scripts/cluster/kills.py --furrow "$built/furrow" --work "$work/kills" --kills "$kills"
say "nodes are replaced, drained, removed, and come back"
PYTHONPATH=$work/python "$python" scripts/cluster/replace.py --furrow "$built/furrow" --work "$work/replace"
say "clients count by FURROW.ONCE while leaders are killed"
PYTHONPATH=$work/python "$python" scripts/cluster/once.py --furrow "$built/furrow" --work "$work/once"
