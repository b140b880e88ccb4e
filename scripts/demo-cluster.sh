#!/usr/bin/env bash
# A cluster of five servers over etcd, on this machine: a load, a primary, a backup and a witness killed in turn (kill -9) and
# started again, and every acknowledged record compared. About a minute.
#
#   scripts/demo-cluster.sh FURROW     the program: target/release/furrow
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_packages etcd-server curl python3
exec python3 scripts/cluster/demo.py --furrow "${1:?the program}"
