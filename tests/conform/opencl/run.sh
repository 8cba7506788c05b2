#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The OpenCL device over PoCL, or whatever driver is there: the device contract, cases of tests/ops
# (one of every third operation, or all with --all), some of them with kernels as for a GPU with f64
# and without, what falls back beside fallback.txt, a driver that fails, the daemon over it. Prints PASS and FAIL
# lines; SKIP where no driver is. Usage: run.sh BUILD [--all]
build=$1
here=$(dirname "$0")
case $build in *address*|*thread*) echo "SKIP opencl: drivers are not built for a sanitizer"; \
    exit 0 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export POCL_CACHE_DIR="$work/cache"
mkdir "$work/cache" "$work/ops" "$work/gpu"
if ! timeout 120 "$build/hlo-run" --device opencl --plan "$here/twice.hlo" >"$work/probe" 2>&1; then
    echo "SKIP opencl: $(tail -1 "$work/probe")"
    exit 0
fi
timeout 600 "$build/device_test" opencl 2>&1 || echo "FAIL opencl device contract"

# A case of a file: which one changes from file to file.
one_case() {
    awk -v n="$1" 'BEGIN {RS = "// ----\n"} {c[NR] = $0} END {printf "%s", c[1 + n % NR]}' "$2"
}
n=0
for f in tests/ops/*.hlo; do
    n=$((n + 1))
    op=$(basename "$f")
    if [ "$2" = --all ]; then
        cp "$f" "$work/ops"
        cp "$f" "$work/gpu"
    elif [ $((n % 3)) = 0 ]; then
        one_case "$n" "$f" >"$work/ops/$op"
    fi
    case $op in convolution.hlo|dot.hlo|fusion.hlo|power.hlo|scatter.hlo|sort.hlo)
        [ "$2" = --all ] || one_case "$((n + 1))" "$f" >"$work/gpu/$op" ;;
    esac
done
cases() { # NAME FOLDER: the cases of a folder
    timeout 3000 "$build/hlo-run" --cases --list-reference --device opencl "$2"/*.hlo \
        >"$work/log" 2>&1 || echo "FAIL $1 cases of tests/ops"
    cat "$work/log" >>"$work/logs"
    grep -v "on the reference evaluator$" "$work/log" | sed "s,$2,$1 tests/ops,"
}
cases opencl "$work/ops"
HLOD_OPENCL_FORM=gpu cases "opencl as for a GPU" "$work/gpu"
mv "$work/logs" "$work/counted" # without f64 more falls back
HLOD_OPENCL_FORM=narrow cases "opencl without f64" "$work/gpu"

sed -n 's/^case at line [0-9]*: \(.*\) on the reference evaluator$/\1/p' "$work/counted" | sort -u \
    >"$work/fell"
grep -v '^#' "$here/fallback.txt" | sort >"$work/list"
more=$(comm -23 "$work/fell" "$work/list" | tr '\n' ' ')
gone=
[ "$2" != --all ] || gone=$(comm -13 "$work/fell" "$work/list" | tr '\n' ' ')
[ -z "$more" ] || echo "FAIL opencl falls back on: $more"
[ -z "$gone" ] || echo "FAIL opencl falls back no more (shorten fallback.txt): $gone"
[ -n "$more$gone" ] || echo "PASS opencl falls back on what is listed alone"
timeout 600 build/venv/bin/python "$here/daemon_test.py" "$build" "$work" ||
    echo "FAIL opencl daemon"
