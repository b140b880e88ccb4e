#!/usr/bin/env bash
# What a cluster must stand on this machine: a plan in etcd that changes, an etcd restored from an older copy, bad values there, a
# drive that was copied or replaced, drives that fill up. Each check has a cluster of its own.
#
#   scripts/cluster-faults.sh [CHECK...]     all checks if none is named
#
# Prints a line for each check. Ends with 1 if one does not hold.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_packages etcd-server curl
built=$(scripts/build.sh)
/usr/bin/python3 scripts/cluster/faults.py --furrow "$built/furrow" "$@"
