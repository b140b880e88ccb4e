#!/usr/bin/env bash
# SETs a second of a cluster of five servers beside one server alone, on this machine, in turn; and Debian's tools against the cluster.
#
#   scripts/cluster-rate.sh [REPETITIONS]     5 repetitions if not given
#
# Prints the rates, their medians and ratio. Ends with 1 if redis-cli -c, redis-cli --cluster check or redis-benchmark --cluster fails,
# not for a low rate: that is the machine's matter. FURROW names the program; without, it is built.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

repetitions=${1:-5}
need_packages etcd-server redis-tools curl
furrow=${FURROW:-$(scripts/build.sh)/furrow}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/bin/python3 scripts/cluster/rate.py --furrow "$furrow" --work "$work" --repetitions "$repetitions"
