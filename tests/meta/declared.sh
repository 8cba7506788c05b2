#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the functions that a header of ours declares and that stand nowhere else but in their
# definition: nobody calls them, not even a test. libhlod's own headers are for others, and hlo_dump
# is for gdb.
words=$(mktemp)
trap 'rm -f "$words"' EXIT
git ls-files '*.c' '*.h' '*.def' | xargs sed 's,//.*,,' | grep -oE '\b[a-z][a-z0-9_]+\b' | sort |
    uniq -c >"$words"
git ls-files '*.h' | grep -vE '^tests/|^client/hlod' | while read -r h; do
    sed 's,//.*,,' "$h" |
        sed -nE -e 's/^[a-z].*[ *]([a-z][a-z0-9_]+)\([^()]*[,;{]?$/\1/p' \
            -e 's/^[a-z].*[ *]([a-z][a-z0-9_]+)\(.*\).*;$/\1/p' | sort -u | while read -r f; do
        awk -v f="$f" -v h="$h" '$2 == f && $1 <= 2 {print h ": " f}' "$words"
    done
done | grep -vE ': (hlo_dump|hlo_(text|proto)_[a-z]+|(stablehlo_(text|bytecode)|jax_export)_[a-z]+|onnx_[a-z]+)$'
