#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main job on real input: EfficientNet-lite0 with its ImageNet weights names the cat in a
# photograph, through a daemon on a port of its own choosing.
# Usage: sh deploy/demo.sh BUILD_DIR   (make demo). Leaves nothing running.
set -eu
cd "$(dirname "$0")/.."
bin=$1
models=build/models
work=$(mktemp -d)
pid=
stop() {
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap stop EXIT INT TERM

build/venv/bin/python tests/models/efficientnet.py "$models"
"$bin/hlod" --http 127.0.0.1:0 --grpc 127.0.0.1:0 --data "$work/data" --port-file "$work/port" \
    2>"$work/log" &
pid=$!
n=0
until [ -s "$work/port" ]; do
    n=$((n + 1))
    [ $n -lt 100 ] || { echo "hlod did not start:"; cat "$work/log"; exit 1; }
    sleep 0.1
done
port=$(sed 's/.*://' "$work/port")
export HLOD_ADDR="127.0.0.1:$port"
hlo="$bin/hlo"

echo "== 1. upload and compile efficientnet_lite0.onnx (18.8 MB)"
"$hlo" compile "$models/efficientnet_lite0.onnx" --shape image=1x3x224x224 | tee "$work/compiled"
digest=$(sed -n 's/^executable *//p' "$work/compiled")
model=$(sed -n 's/^model *//p' "$work/compiled")

echo
echo "== 2. run it on $models/cat.png, 20 times: the five best classes"
"$hlo" run "$model" -i image=@"$models/cat.png" --crop 0.875 --size 224x224 --mean 127 --std 128 \
    --repeat 20 --top 5 --labels "$models/labels.txt" 2>&1

echo
echo "== 3. the same upload again"
"$hlo" compile "$models/efficientnet_lite0.onnx" --shape image=1x3x224x224 | sed -n '/^cache/p'

echo
echo "== 4. the end of the program that ran (hlo inspect $digest --stage hlo-after)"
"$hlo" inspect "$digest" --stage hlo-after | tail -9 | cut -c1-150
