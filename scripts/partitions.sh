#!/usr/bin/env bash
# What clients see when the network of a cluster fails: five servers and an etcd, each in a network namespace of its own, joined by
# a bridge. A leader is cut off from the others, cut off one way, and on a flapping link; etcd is cut off for a minute; power fails
# everywhere. Then every acknowledged record is compared.
#
#   scripts/partitions.sh [CASES]     such as 1,3; all five if not given
#
# Prints a table: the longest pause of a client in each case, the errors that reached clients, and the records that were lost. Ends
# with 1 if a record is lost, a read is stale, or a pause is too long. Needs root, for the namespaces.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cases=${1:-}
[ "$(id -u)" = 0 ] || die "network namespaces need root: nothing is shown"
need_packages etcd-server iproute2 nftables openssl python3-pip python3-setuptools
prefix=furrow-$$
# Built already: FURROW names the program.
program=${FURROW:-$(scripts/build.sh)/furrow}
work=$(mktemp -d)
# Removes the namespaces of a program below that was killed; one that ends removes its own.
cleanup() {
  local namespace
  for namespace in $(ip netns list | awk -v prefix="$prefix-" 'index($1, prefix) == 1 { print $1 }'); do
    ip netns del "$namespace" || say "the namespace $namespace is left: ip netns del $namespace"
  done
  rm -rf "$work"
}
# The same client as in scripts/cluster.sh.
python=/usr/bin/python3
"$python" -m pip --quiet --disable-pip-version-check install --root-user-action ignore --target "$work/python" redis==5.2.1 ||
  die "pip could not install redis 5.2.1"
PYTHONPATH=$work/python PYTHONDONTWRITEBYTECODE=1 "$python" scripts/cluster/partitions.py \
  --furrow "$program" --work "$work" --prefix "$prefix" --only "$cases"
