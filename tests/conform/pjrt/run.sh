#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The PJRT device over a CPU plugin from PyPI (deploy/setup.sh): the device contract, every case of
# tests/ops, executables of another process, and the daemon over it. Then plugins that misbehave
# (bad_plugin.c). Prints PASS and FAIL lines; SKIP where the plugin is not there. Usage: run.sh
# BUILD
build=$1
here=$(dirname "$0")
HLOD_PJRT_PLUGIN=$(ls \
    -1 build/venv/lib/python3*/site-packages/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so \
    2>/dev/null | head -1)
case $build in *address*|*thread*) echo "SKIP pjrt: plugins are not built for a sanitizer"; \
    exit 0 ;; esac
if [ -z "$HLOD_PJRT_PLUGIN" ]; then \
    echo "SKIP pjrt: no CPU plugin in build/venv (sh deploy/setup.sh)"; exit 0; fi
export HLOD_PJRT_PLUGIN
"$build/device_test" pjrt 2>&1
files=""
for f in tests/ops/*.hlo; do
    op=$(basename "$f" .hlo)
    grep -q "^$op " "$here/not_here.txt" || files="$files $f"
done
# shellcheck disable=SC2086
"$build/hlo-run" --cases --device pjrt $files
build/venv/bin/python "$here/daemon_test.py" "$build" "$HLOD_PJRT_PLUGIN"
build/venv/bin/python "$here/targets_test.py" "$build" "$HLOD_PJRT_PLUGIN"
# ONNX over HTTP on the plugin's device: every fourth of the cases that our CPU device passes in the
# group onnx, to the same expected values.
build/venv/bin/python tests/conform/run_onnx.py "$build" --list tests/conform/onnx_cases.txt \
    --every 4 --daemon "--device=pjrt --pjrt-plugin=$HLOD_PJRT_PLUGIN" |
    sed 's/^\(PASS\|FAIL\) /\1 pjrt onnx /'
build/venv/bin/python "$here/verifier_test.py" "$build"
