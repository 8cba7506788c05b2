#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No pass changes what a module computes: hlo-opt --check-passes over every module of tests/ops and
# tests/golden, and of XLA's tests where ../shared is there.
# Usage: pass_values.sh BUILD
compared=0
modules=0
for f in tests/ops/*.hlo tests/golden/*/*.hlo ../shared/data/hlo/*/*.hlo; do
    [ -f "$f" ] || continue
    out=$("$1/hlo-opt" --check-passes "$f" 2>&1)
    rc=$?
    line=$(printf '%s\n' "$out" | tail -1)
    case $line in *" failed") ;; *) rc=1 ;; esac
    if [ $rc -ne 0 ]; then printf '%s\n' "$out" | grep -v '^not evaluated'; \
        echo "FAIL values of $f"; continue; fi
    modules=$((modules + $(printf '%s' "$line" | cut -d' ' -f1)))
    compared=$((compared + $(printf '%s' "$line" | cut -d' ' -f3)))
done
echo "$modules modules, $compared comparisons of values before and after a pass"
if [ $compared -ge 2000 ]; then echo "PASS values before and after passes"; else \
    echo "FAIL fewer comparisons than before: $compared"; fi
