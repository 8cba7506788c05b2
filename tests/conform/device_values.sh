#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The modules of tests/golden compiled whole and run on the CPU device, against the evaluator on the
# same random inputs (1e-4 of the largest value; 2e-3 and 1.6e-2 where the program has f16 or bf16):
# passes, plan, kernels and library together. Modules that hlo-run refuses (weights without a file,
# tuple inputs, dynamic ones) are named. Usage: device_values.sh BUILD
for f in tests/golden/*/*.hlo; do
    out=$(timeout 120 "$1/hlo-run" --compare "$f" 2>&1)
    rc=$?
    case $out in # collectives, and what only a plugin or an evaluator takes
    *'needs more participants than one'* | *'parameter with a dynamic dimension'*)
        [ $rc = 0 ] || rc=3 ;;
    esac
    case $rc in
    0) echo "PASS $f" ;;
    3) printf 'refused %s: %s\n' "$f" "$(printf '%s\n' "$out" | tail -1)" ;;
    *) printf '%s\n' "$out"; echo "FAIL $f" ;;
    esac
done
