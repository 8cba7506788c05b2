#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every rule of the algebraic simplifier fires in a golden that runs algsimp: a rule that never does
# is not tested. Usage: rules.sh BUILD
opt=$1/hlo-opt
fired=$(grep -l -- '--passes=[a-z,@-]*algsimp' tests/golden/*/*.hlo | while read -r f; do
    "$opt" --passes=algsimp --explain-rules --no-output "$f" |
        sed -n 's/^algsimp: \([a-z_0-9]*\): .*/\1/p'
done | sort -u)
for rule in $("$opt" --list-rules | sed -n 's/^| `\([a-z_0-9]*\)` .*/\1/p'); do
    if printf '%s\n' "$fired" | grep -qx "$rule"; then echo "PASS rule $rule"; else \
        echo "FAIL rule $rule fires in no golden"; fi
done
