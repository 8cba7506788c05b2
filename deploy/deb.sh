#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian packages of what is built: deb.sh VERSION OUT. Takes the tree around it as it is (make
# install) and packs it with debhelper; changelog and version come from here.
set -eu
version=$1
out=$2
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$out/work/hlod-$version
rm -rf "$out/work" "$out"/*.deb
mkdir -p "$work"
cp -r "$root/deploy/debian" "$work/debian"
cp "$root/CHANGELOG.md" "$work"
# The date of the last commit, so that the same tree gives the same package; without git, of the
# change log.
date=$(git -C "$root" log -1 --format=%cd --date=rfc2822 2>/dev/null ||
    date -R -r "$root/CHANGELOG.md")
printf 'hlod (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- hlod developers <hlod@localhost>  %s\n' "$version" "$date" >"$work/debian/changelog"
cd "$work"
SOURCE_DATE_EPOCH=$(date -d "$date" +%s) HLOD_ROOT=$root MAKEFLAGS='' fakeroot debian/rules binary \
    >"$out/log" 2>&1 || { tail -n 30 "$out/log"; exit 1; }
ls "$out"/work/*.deb >/dev/null
mv "$out"/work/*.deb "$out"
rm -rf "$out/work"
ls -l "$out"/*.deb
