#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A network of two convolutions learns scikit-learn's handwritten digits through a daemon, from
# nothing, and then serves.
# Usage: sh deploy/demo_train.sh BUILD_DIR   (make demo-train). Leaves nothing running.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
bin=$root/$1
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

build/venv/bin/python tests/models/digits.py "$work"
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
cd "$work"

echo "== 1. train on 1,437 pictures; 360 are held back"
"$bin/hlo" train digits.onnx --loss softmax-cross-entropy -d image=@image.npy -d label=@label.npy \
    --validate image=@held_image.npy --validate label=@held_label.npy \
    --optimizer adam --batch 64 --epochs 10 -o trained.onnx --job 2>&1

echo
echo "== 2. serve it: the first five pictures that were held back"
"$bin/hlo" models set digits trained.onnx --shape image=5x1x8x8
"$root/build/venv/bin/python" - <<'PY'
import json, os, urllib.request
import numpy as np
x, y = np.load("held_image.npy")[:5], np.load("held_label.npy")[:5]
q = {"inputs": [{"name": "image", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}]}
at = "http://%s/v2/models/digits/infer" % os.environ["HLOD_ADDR"]
r = json.load(urllib.request.urlopen(urllib.request.Request(at, json.dumps(q).encode())))
scores = np.array(r["outputs"][0]["data"]).reshape(5, 10)
print("says", *scores.argmax(1), "- it is", *y)
PY
