#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every gradient rule against central differences: the modules of tests/ops in double precision,
# through hlo-opt --check-gradient. Each opcode with a rule must have a case that is compared;
# convert, reduce-precision and stochastic-convert, whose roundings let the derivative through, and
# operations of integers have none. Usage: gradients.sh BUILD
none='convert reduce-precision stochastic-convert parameter topk-ties'
for f in tests/ops/*.hlo; do
    op=$(basename "$f" .hlo)
    case " $none bitcast-convert " in *" $op "*) continue ;; esac
    out=$(sed -E 's/\b(f32|f16|bf16)\[/f64[/g; s/\bc64\[/c128[/g' "$f" |
        timeout 120 "$1/hlo-opt" --check-gradient - 2>&1)
    rc=$?
    rule=$(awk -F'[(), ]+' -v op="\"$op\"" '/^OP\(/ && $3 == op { print $(NF - 1) }' \
        compiler/ir/ops.def)
    equal=$(printf '%s\n' "$out" | sed -n 's/^\([0-9]*\) equal.*/\1/p')
    case $rule in
    NONE | zero) least=0 ;;
    *) least=1 ;;
    esac
    if [ $rc -eq 0 ] && [ "${equal:-0}" -ge $least ]; then
        echo "PASS derivative of $op (rule $rule): $equal cases"
    else
        printf '%s\n' "$out" | tail -5
        echo "FAIL derivative of $op (rule $rule): ${equal:-no} cases"
    fi
done
