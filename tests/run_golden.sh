#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the `// RUN:` lines of golden files; %s is the file, tools come from BUILD. A file without
# RUN lines fails. Usage: run_golden.sh BUILD FILE...
PATH=$(cd "$1" && pwd):$PATH
shift
status=0
for file in "$@"; do
    script=$(sed -n 's|^// RUN: *||p' "$file" | sed "s|%s|$file|g; s|FileCheck|FileCheck-19|g")
    if [ -n "$script" ] && out=$(sh -ec "$script" 2>&1); then
        echo "PASS $file"
    else
        echo "$out"
        echo "FAIL $file"
        status=1
    fi
done
exit $status
