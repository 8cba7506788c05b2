# SPDX-License-Identifier: Apache-2.0
# Cases of tests/ops on a device over a driver's queue, read by opencl/run.sh and gl/run.sh with $kind,
# $build, $work, $here and the second argument of the script ("" or --all) as $all. Prints PASS and
# FAIL lines.

# Is a driver here? $work/probe has why not.
queue_probe() {
    timeout 120 "$build/hlo-run" --device "$kind" --plan "$here/../queue/twice.hlo" >"$work/probe" 2>&1
}
# A case of a file: which one changes from file to file.
queue_one_case() {
    awk -v n="$1" 'BEGIN {RS = "// ----\n"} {c[NR] = $0} END {printf "%s", c[1 + n % NR]}' "$2"
}
# $work/ops has one case of every third operation, or all; $work/some, in every form, those of SOME.
queue_collect() { # SOME: "convolution dot"
    n=0
    mkdir "$work/ops" "$work/some"
    for f in tests/ops/*.hlo; do
        n=$((n + 1))
        op=$(basename "$f")
        if [ "$all" = --all ]; then
            cp "$f" "$work/ops"
            cp "$f" "$work/some"
        elif [ $((n % 3)) = 0 ]; then
            queue_one_case "$n" "$f" >"$work/ops/$op"
        fi
        case " $1 " in *" ${op%.hlo} "*)
            [ "$all" = --all ] || queue_one_case "$((n + 1))" "$f" >"$work/some/$op" ;;
        esac
    done
}
queue_cases() { # NAME FOLDER: the cases of a folder
    timeout 3000 "$build/hlo-run" --cases --list-reference --device "$kind" "$2"/*.hlo \
        >"$work/log" 2>&1 || echo "FAIL $1 cases of tests/ops"
    cat "$work/log" >>"$work/logs"
    grep -v "on the reference evaluator$" "$work/log" | sed "s|$2|$1 tests/ops|"
}
queue_fallbacks() { # LOG: what fell back there, beside fallback.txt
    sed -n 's/^case at line [0-9]*: \(.*\) on the reference evaluator$/\1/p' "$1" | sort -u \
        >"$work/fell"
    grep -v '^#' "$here/fallback.txt" | sort >"$work/list"
    more=$(comm -23 "$work/fell" "$work/list" | tr '\n' ' ')
    gone=
    [ "$all" != --all ] || gone=$(comm -13 "$work/fell" "$work/list" | tr '\n' ' ')
    [ -z "$more" ] || echo "FAIL $kind falls back on: $more"
    [ -z "$gone" ] || echo "FAIL $kind falls back no more (shorten fallback.txt): $gone"
    [ -n "$more$gone" ] || echo "PASS $kind falls back on what is listed alone"
}
