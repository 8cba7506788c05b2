#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the groups of `make check` in turn and counts every test. A group is a command whose output
# is TAP ("ok ...", "not ok ..."), cmocka's summary ("[ PASSED ] N test(s)"), or lines "PASS name" /
# "FAIL name", or "api: N exchanges, N failures". A command that fails without naming a failure
# counts as one, and so does a group that takes longer than GROUP_LIMIT seconds (run_group.py).
# Closing line: N passed, N failed. Usage: check.sh NAME COMMAND [NAME COMMAND ...]
# SAN_REPORTS names a folder: each file that the group's processes, workers too, leave there is a
# sanitizer's report and counts as a failure; it is shown and set aside.
passed=0
failed=0
tests=$(dirname "$0")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
while [ $# -ge 2 ]; do
    name=$1
    command=$2
    shift 2
    began=$(date +%s)
    python3 "$tests/run_group.py" "${GROUP_LIMIT:-900}" "$command" >"$log" 2>&1
    rc=$?
    p=$(awk '/^ok /{n++} /^PASS /{n++} /^\[  PASSED  \] [0-9]+ test/{n+=$4} /^api: [0-9]+ exchanges, [0-9]+ failures/{n+=$2-$4}
        END{print n+0}' "$log")
    f=$(awk '/^not ok /{n++} /^FAIL /{n++} /^\[  FAILED  \] [0-9]+ test/{n+=$4}
        /^api: [0-9]+ exchanges, [0-9]+ failures/{n+=$4} END{print n+0}' "$log")
    if [ $rc -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    if grep -q '^SKIP ' "$log"; then grep '^SKIP ' "$log"; elif [ "$p" -eq 0 ] && [ "$f" -eq 0 ]; \
        then f=1; echo "group $name ran no test"; fi
    [ "$f" -eq 0 ] || { tail -n 60 "$log"; grep '^FAIL \|^not ok ' "$log"; }
    for r in ${SAN_REPORTS:+"$SAN_REPORTS"/report.*}; do
        [ -e "$r" ] || continue
        # LeakSanitizer's note of a thread that ended while it was looked at: no report follows.
        grep -qv 'Unable to get registers from thread' "$r" || { rm "$r"; continue; }
        head -n 60 "$r"
        mv "$r" "$SAN_REPORTS/seen.$name.${r##*.}"
        f=$((f + 1))
    done
    echo "$name: $p passed, $f failed, $(($(date +%s) - began)) s"
    passed=$((passed + p))
    failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
