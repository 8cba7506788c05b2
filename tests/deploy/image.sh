#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Dockerfile with buildah in chroot isolation (works as root inside a container, without
# a daemon) on a Debian made by debootstrap, starts what came out of it, compiles and runs a model
# over HTTP, also as an engine would with a read-only root (contained.py), and holds its size to 250
# MB. The base is kept in build/image between runs. Usage: image.sh VERSION
set -eu
cd "$(dirname "$0")/../.."
version=$1
dir=$PWD/build/image
mkdir -p "$dir"
b() { buildah --root "$dir/storage" --runroot "$dir/run" --storage-driver vfs "$@"; }
say() { echo "$*"; }
fail=0
check() { # name, command...
    name=$1
    shift
    if "$@" >"$dir/out" 2>&1; then say "PASS $name"; else cat "$dir/out"; say "FAIL $name"; \
        fail=1; fi
}
if ! b inspect --type image localhost/debian:bookworm-slim >/dev/null 2>&1; then
    [ -f "$dir/base.done" ] || { rm -rf "$dir/base"; debootstrap --variant=minbase bookworm \
        "$dir/base" >"$dir/debootstrap.log" && touch "$dir/base.done"; }
    c=$(b from scratch)
    b add -q "$c" "$dir/base" / >/dev/null
    b commit -q "$c" localhost/debian:bookworm-slim >/dev/null
    b rm "$c" >/dev/null
fi
# nice: a build from nothing of everything takes minutes.
check "the image builds" nice \
    sh -c "buildah --root '$dir/storage' --runroot '$dir/run' --storage-driver vfs bud --isolation chroot --network host \
  --build-arg BASE=localhost/debian:bookworm-slim -t hlod:$version . >'$dir/log' 2>&1 || { tail -n 40 '$dir/log'; exit 1; }"
[ $fail = 0 ] || exit 1
grep '^size:' "$dir/log" | tail -n 4 | tee "$dir/size" || true
c=$(b from "localhost/hlod:$version")
root=$(b mount "$c")
pid=
# The daemon stands below two processes of buildah, which do not hand signals on; told to stop, it
# ends and they with it.
stop() {
    below=$(ps -o pid= --ppid "$1" || true)
    for p in $below; do stop "$p"; done
    [ "$(cat "/proc/$1/comm" 2>/dev/null)" != hlod ] || kill "$1"
}
end() {
    [ -z "$pid" ] || { stop "$pid"; wait "$pid" 2>/dev/null || true; }
    b rm "$c" >/dev/null 2>&1 || true
}
trap end EXIT
bytes=$(find "$root" -type f -exec cat {} + | wc -c)
check "the image has $(awk -v n="$bytes" 'BEGIN {printf "%.1f", n / 1e6}') MB, at most 250" test \
    "$bytes" -le 250000000
check "no shell, no package manager, no plugin" \
    sh -c "! ls $root/bin/sh $root/usr/bin/apt $root/usr/bin/bash 2>/dev/null && ! find $root -name '*pjrt*' | grep ."
check "licences of the libraries are inside" test "$(find "$root/usr/share/licenses" -type f |
    wc -l)" -gt 20
check "it does not run as root" \
    sh -c "b() { :; }; buildah --root '$dir/storage' --runroot '$dir/run' --storage-driver vfs inspect --format '{{.OCIv1.Config.User}}' '$c' | grep -qx 65532:65532"
check "without tokens it refuses to listen for everybody, in words" \
    sh -c "buildah --root '$dir/storage' --runroot '$dir/run' --storage-driver vfs run --isolation chroot '$c' -- /usr/bin/hlod 2>&1 | grep -q -- --tokens"
# A token as docs/operations.md says: made in the container as its root, read by its user.
check "hlo tokens add --group hlod inside" b run --isolation chroot --user 0 "$c" -- /usr/bin/hlo \
    -q tokens add ci --group hlod --file /tmp/tokens
check "hlod's user reads what it wrote" b run --isolation chroot --network host \
    -e HLOD_HTTP=127.0.0.1:18800 -e HLOD_GRPC=127.0.0.1:18801 "$c" -- /usr/bin/hlod --check-config \
    --tokens /tmp/tokens
check "hlo tokens add without it" b run --isolation chroot --user 0 "$c" -- /usr/bin/hlo \
    -q tokens add ci --file /tmp/own
check "a file that its user may not read: said with the way out" \
    sh -c "buildah --root '$dir/storage' --runroot '$dir/run' --storage-driver vfs run --isolation chroot --network host \
  -e HLOD_HTTP=127.0.0.1:18800 -e HLOD_GRPC=127.0.0.1:18801 '$c' -- /usr/bin/hlod --check-config --tokens /tmp/own 2>&1 | grep -q 'mode 0600.*--group'"
python3 tests/deploy/contained.py "$root" || fail=1
b run --isolation chroot --network host -e HLOD_HTTP=127.0.0.1:18800 -e HLOD_GRPC=127.0.0.1:18801 \
    "$c" -- /usr/bin/hlod >"$dir/hlod.log" 2>&1 &
pid=$!
n=0
until curl -fs http://127.0.0.1:18800/readyz >/dev/null || [ $n -ge 200 ]; do n=$((n + 1)); \
    sleep 0.1; done
check "it is ready" curl -fs http://127.0.0.1:18800/readyz
check "hlo health inside" b run --isolation chroot --network host -e HLOD_ADDR=127.0.0.1:18800 \
    "$c" -- /usr/bin/hlo health
printf 'HloModule m\nENTRY e {\n  x = f32[8,8] parameter(0)\n  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n  ROOT r = f32[8,8] tanh(d)\n}\n' >"$dir/m.hlo"
digest=$(curl -fs --data-binary @"$dir/m.hlo" -H 'Content-Type: text/x-hlo' \
    -H 'Accept: application/json' http://127.0.0.1:18800/v1/executables |
    sed -E 's/^\{"digest":"([0-9a-f]+)".*/\1/')
check "it compiles a model" test "${#digest}" = 64
x=$(awk 'BEGIN {for (k = 0; k < 64; k++) printf "%s0.25", k ? "," : ""}')
curl -fs -H 'Accept: application/json' \
    -d "{\"model\":\"$digest\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[8,8],\"data\":[$x]}]}" http://127.0.0.1:18800/v1/run >"$dir/reply" || true
check "it runs it: tanh(0.5) everywhere" sh -c "grep -q '\"data\":\[0.46211[0-9]*,' '$dir/reply'"
check "its workers run in their filter" \
    sh -c "curl -fs http://127.0.0.1:18800/v1/devices | grep -q '\"workerFilter\":\"on\"'"
stop "$pid"
check "it ends when it is told to" wait "$pid"
pid=
exit $fail
