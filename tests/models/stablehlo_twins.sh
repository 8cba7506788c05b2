#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# StableHLO's text and its bytecode, of whatever version, read as one tree.
# Usage: stablehlo_twins.sh BUILD [DIR...]: in each DIR x.mlir.bc beside x.mlir; without any the
# fuzzers' corpus: x.VERSION.bc in stablehlo_bytecode beside x.mlir in stablehlo.
build=$1
shift
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
same=0
failed=0
twin() { # BYTECODE TEXT
    if "$build/hlo-opt" --stage=tree "$1" >"$out/bytecode" 2>"$out/why" &&
        "$build/hlo-opt" --stage=tree "$2" >"$out/text" 2>"$out/why" &&
        cmp -s "$out/bytecode" "$out/text"; then
        same=$((same + 1))
    else
        head -c 300 "$out/why"
        diff "$out/bytecode" "$out/text" | head -n 6 | cut -c1-200
        echo "FAIL $1 and $2 differ"
        failed=$((failed + 1))
    fi
}
if [ $# -eq 0 ]; then
    for bc in tests/fuzz/corpus/stablehlo_bytecode/*.bc; do
        name=${bc##*/}
        text=tests/fuzz/corpus/stablehlo/${name%%.*}.mlir
        if [ -f "$text" ]; then twin "$bc" "$text"; fi
    done
fi
for dir in "$@"; do
    for bc in "$dir"/*.mlir.bc; do twin "$bc" "${bc%.bc}"; done
done
if [ $failed -eq 0 ] && [ $same -ge 10 ]; then
    echo "PASS $same files of bytecode and their texts are one tree each"
else
    echo "FAIL $same files of bytecode are like their texts, $failed are not"
    exit 1
fi
