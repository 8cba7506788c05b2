#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The OpenGL device over Mesa's llvmpipe, or whatever driver is there: the device contract, cases of
# tests/ops (one of every third operation, or all with --all), some of them, or all, in textures so
# small that values lie in several rows, contractions in tiles, what falls back beside fallback.txt,
# a driver that fails, the daemon over it. Prints PASS and FAIL lines; SKIP where no driver is. Usage:
# run.sh BUILD [--all]
kind=gl
build=$1
all=$2
here=$(dirname "$0")
case $build in *address*|*thread*) echo "SKIP gl: drivers are not built for a sanitizer"; \
    exit 0 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MESA_SHADER_CACHE_DIR="$work/cache"
mkdir "$work/cache"
. "$here/../queue/cases.sh"
if ! queue_probe; then
    echo "SKIP gl: $(tail -1 "$work/probe")"
    exit 0
fi
timeout 600 "$build/device_test" gl 2>&1 || echo "FAIL gl device contract"

queue_collect "convolution dot fusion transpose dynamic-update-slice convert"
queue_cases gl "$work/ops"
HLOD_GL_SIDE=128 queue_cases "gl in rows of 128 words" "$work/some"
mkdir "$work/tiles"
ln -s "$PWD"/tests/ops/dot.hlo "$PWD"/tests/ops/convolution.hlo "$work/tiles"
HLOD_GL_FORM=tiles queue_cases "gl in tiles" "$work/tiles"
HLOD_GL_FORM=tiles HLOD_GL_SIDE=128 queue_cases "gl in tiles, in rows of 128 words" "$work/tiles"
queue_fallbacks "$work/logs"
timeout 600 build/venv/bin/python "$here/daemon_test.py" "$build" "$work" || echo "FAIL gl daemon"
