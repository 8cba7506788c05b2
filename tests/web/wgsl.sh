#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# WGSL that the compiler prints, read by naga (cargo install naga-cli) or tint, whichever is there.
# Usage: wgsl.sh BUILD FILE...
build=$1
shift
if command -v naga >/dev/null; then
    reader="naga"
elif command -v tint >/dev/null; then
    reader="tint --format wgsl"
else
    echo "SKIP WGSL as a compiler of it reads it: neither naga nor tint"
    exit 0
fi
out=$(mktemp) text=$(mktemp --suffix=.wgsl)
trap 'rm -f "$out" "$text"' EXIT
status=0
for file in "$@"; do
    if "$build/hlo-opt" --target=webgpu --stage=wgsl "$file" >"$text" && [ -s "$text" ] &&
        timeout 60 $reader "$text" >"$out" 2>&1; then
        echo "PASS $file by $reader"
    else
        cat "$out"
        echo "FAIL $file by $reader"
        status=1
    fi
done
exit $status
