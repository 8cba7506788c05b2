#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Debian packages: lintian finds no error and no warning, they are for what this machine has,
# and the daemon out of the unpacked tree compiles a model.
# FULL=1: also installed by apt into a Debian made by debootstrap (build/image/base), with what they
# depend on, and started there. Usage: deb.sh VERSION FOLDER
set -eu
version=$1
debs=$2
fail=0
work=$(mktemp -d)
pid=
end() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    ! mountpoint -q "$work/chroot/proc" || umount "$work/chroot/proc"
    rm -rf "$work"
}
trap end EXIT
check() { # name, command...
    name=$1
    shift
    if "$@" >"$work/out" 2>&1; then echo "PASS $name"; else cat "$work/out"; echo "FAIL $name"; \
        fail=1; fi
}
daemon() { # a command that runs hlod, and how the data folder is called there
    # shellcheck disable=SC2086
    $1 --http 127.0.0.1:18810 --grpc 127.0.0.1:18811 --data "$2" 2>"$work/log" &
    pid=$!
    n=0
    until curl -fs http://127.0.0.1:18810/readyz >/dev/null || [ $n -ge 300 ]; do n=$((n + 1)); \
        sleep 0.1; done
    printf 'HloModule m\nENTRY e {\n  x = f32[8,8] parameter(0)\n  ROOT r = f32[8,8] tanh(x)\n}\n' \
        >"$work/m.hlo"
    curl -fs --data-binary @"$work/m.hlo" -H 'Content-Type: text/x-hlo' \
        -H 'Accept: application/json' http://127.0.0.1:18810/v1/executables |
        grep -q '"digest":"[0-9a-f]\{64\}"'
    status=$?
    kill "$pid"
    wait "$pid" || status=1
    pid=
    return $status
}
main=$debs/hlod_$version-1_$(dpkg --print-architecture).deb
# A package built here has no maintainer's address and closes no bug of the archive's.
check "lintian: no error, no warning" lintian --allow-root --fail-on error,warning \
    --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs "$debs"/*.deb
check "it says its version" sh -c "[ \"\$(dpkg-deb -f '$main' Version)\" = $version-1 ]"
dpkg-deb -f "$main" Depends | tr ',' '\n' | sed -E 's/^ *([^ (]+).*/\1/' >"$work/depends"
check "what it depends on is what its programs were linked with" \
    sh -c "xargs dpkg-query -W <'$work/depends' && grep -q libllvm19 '$work/depends' && grep -q libdnnl2 '$work/depends'"
check "options are a conffile" \
    sh -c "dpkg-deb --info '$main' conffiles | grep -qx /etc/hlod/hlod.toml"
mkdir "$work/root"
for d in "$debs"/*.deb; do dpkg-deb -x "$d" "$work/root"; done
check "stripped" \
    sh -c "file '$work/root/usr/bin/hlod' 2>/dev/null | grep -qw stripped || ! readelf -S '$work/root/usr/bin/hlod' | grep -q '\.debug_info'"
check "the unpacked daemon compiles a model" daemon \
    "$work/root/usr/bin/hlod --config $work/root/etc/hlod/hlod.toml" "$work/data"
if [ "${FULL:-}" ]; then
    base=build/image/base
    [ -f build/image/base.done ] || { mkdir -p build/image; debootstrap --variant=minbase bookworm \
        "$base" >build/image/debootstrap.log && touch build/image/base.done; }
    cp -a "$base" "$work/chroot"
    cp "$debs"/*.deb "$work/chroot/tmp"
    mkdir -p "$work/chroot/proc"
    mount -t proc proc "$work/chroot/proc"
    check "apt installs it, with everything it needs, into an empty Debian" chroot "$work/chroot" \
        sh -c "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends /tmp/hlod_*.deb /tmp/libhlod*.deb"
    check "it runs there" daemon "chroot $work/chroot /usr/bin/hlod --config /etc/hlod/hlod.toml" \
        /tmp/data
    check "apt removes it; purge leaves no options" chroot "$work/chroot" \
        sh -c "apt-get purge -q -y hlod && ! [ -e /etc/hlod/hlod.toml ] && ! [ -e /usr/bin/hlod ]"
else
    echo "SKIP installing into a Debian of its own: FULL=1 (fetches what the package depends on)"
fi
exit $fail
