#!/usr/bin/env bash
# What clients and operators of a cluster see on this machine: reads of backups, processes that are ended or killed, a leader
# without its majority, the lead of groups after restarts. Each check has a cluster of its own.
#
#   scripts/cluster-views.sh [CHECK...]     all checks if none is named
#
# Prints a line for each check. Ends with 1 if one does not hold.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_packages etcd-server curl
built=$(scripts/build.sh)
/usr/bin/python3 scripts/cluster/views.py --furrow "$built/furrow" "$@"
