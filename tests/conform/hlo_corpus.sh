#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Modules of XLA's own parser and evaluator tests, where ../shared is there: each must parse, print, and print the same when parsed again; what is
# refused must say why: four modules, whose asynchronous calls do not fit the computations they call, do not verify. Usage: hlo_corpus.sh BUILD
dir=../shared/data/hlo
[ -d "$dir" ] || { echo "SKIP corpus: ../shared is not here"; exit 0; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
good=0
refused=0
for f in "$dir"/*/*.hlo; do
    if "$1/hlo-opt" "$f" >"$tmp/a" 2>"$tmp/err"; then
        if "$1/hlo-opt" "$tmp/a" >"$tmp/b" 2>&1 && cmp -s "$tmp/a" "$tmp/b"; then
            good=$((good + 1))
        else
            echo "FAIL round trip of $f"
        fi
    else
        refused=$((refused + 1))
        [ -s "$tmp/err" ] && grep -q INVALID_ARGUMENT "$tmp/err" || echo "FAIL $f was not refused in words"
    fi
done
echo "$good modules round-trip, $refused refused with a reason"
if [ $good -ge 366 ]; then echo "PASS corpus"; else echo "FAIL corpus: fewer modules than before"; fi
