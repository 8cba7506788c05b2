#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The OpenCL device over PoCL, or whatever driver is there: the device contract, cases of tests/ops
# (one of every third operation, or all with --all), some of them with kernels as for a GPU with f64
# and without, contractions in tiles, what falls back beside fallback.txt, a driver that fails, the daemon over it. Prints PASS and FAIL
# lines; SKIP where no driver is. Usage: run.sh BUILD [--all]
kind=opencl
build=$1
all=$2
here=$(dirname "$0")
case $build in *address*|*thread*) echo "SKIP opencl: drivers are not built for a sanitizer"; \
    exit 0 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export POCL_CACHE_DIR="$work/cache"
mkdir "$work/cache"
. "$here/../queue/cases.sh"
if ! queue_probe; then
    echo "SKIP opencl: $(tail -1 "$work/probe")"
    exit 0
fi
timeout 600 "$build/device_test" opencl 2>&1 || echo "FAIL opencl device contract"

queue_collect "convolution dot fusion power scatter sort"
queue_cases opencl "$work/ops"
mkdir "$work/tiles"
ln -s "$PWD"/tests/ops/dot.hlo "$PWD"/tests/ops/convolution.hlo "$work/tiles"
HLOD_OPENCL_FORM=gpu queue_cases "opencl as for a GPU" "$work/some"
HLOD_OPENCL_FORM=tiles queue_cases "opencl in tiles" "$work/tiles"
mv "$work/logs" "$work/counted" # without f64 more falls back
HLOD_OPENCL_FORM=narrow queue_cases "opencl without f64" "$work/some"
queue_fallbacks "$work/counted"
timeout 600 build/venv/bin/python "$here/daemon_test.py" "$build" "$work" ||
    echo "FAIL opencl daemon"
