#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes an installed tree (make install DESTDIR=DIR PREFIX=/usr) one that runs on its own: stripped
# programs, the libraries that they load, a user, an empty data folder. What only developers want
# goes: headers, archives, the compiler developer's tools, documents, completion. Prints what became
# of it, by part.
set -eu
dir=$1
cd "$dir/usr"
rm -rf include lib share/doc share/man share/bash-completion share/zsh bin/hlo-opt bin/hlo-run
strip bin/*
# Every library once, at the path where the loader looks for it; symbolic links followed. The loader
# itself is the line without =>.
for p in bin/*; do ldd "$p"; done | awk '/=> \// {print $3} /^\t\// {print $1}' | sort -u |
    while read -r lib; do
    mkdir -p "$dir$(dirname "$lib")"
    cp -L "$lib" "$dir$lib"
    strip --strip-unneeded "$dir$lib" 2>/dev/null || true
done
mkdir -p "$dir/etc" "$dir/tmp" "$dir/var/lib/hlod" "$dir/usr/share/licenses"
chmod 1777 "$dir/tmp"
echo 'hlod:x:65532:65532:hlod:/var/lib/hlod:/nonexistent' >"$dir/etc/passwd"
echo 'hlod:x:65532:' >"$dir/etc/group"
chown 65532:65532 "$dir/var/lib/hlod"
chmod 700 "$dir/var/lib/hlod"
# Whose libraries these are, and on what terms.
for p in bin/*; do ldd "$p"; done | awk '/=> \// {print $3}' | sort -u | while read -r lib; do
    dpkg -S "$(readlink -f "$lib")" 2>/dev/null || dpkg -S "*/$(basename "$(readlink -f "$lib")")" \
        2>/dev/null || true
done | sed 's/:.*//' | sort -u | while read -r package; do
    [ -f "/usr/share/doc/$package/copyright" ] && cp "/usr/share/doc/$package/copyright" \
        "share/licenses/$package"
done
cp /src/LICENSE share/licenses/hlod

size() { cat "$@" | wc -c; }
lib_dir=$(dirname "$(find "$dir/lib" "$dir/usr/lib" -name 'libc.so.6' 2>/dev/null | head -1)")
dnnl=$(find "$dir" -name 'libdnnl.so*' | head -1)
worker_only=$( (ldd bin/hlod-worker | awk '/=> \// {print $3}' | sort >/tmp/w; (ldd bin/hlod; \
    ldd bin/hlo) | awk '/=> \// {print $3}' | sort -u >/tmp/o; comm -23 /tmp/w /tmp/o) |
    grep -v libdnnl | sed "s|^|$dir|")
hlo_only=$( (ldd bin/hlo | awk '/=> \// {print $3}' | sort >/tmp/h; (ldd bin/hlod; \
    ldd bin/hlod-worker) | awk '/=> \// {print $3}' | sort -u >/tmp/o; comm -23 /tmp/h /tmp/o) |
    sed "s|^|$dir|")
all=$(find "$dir" -type f -exec cat {} + | wc -c)
worker=$(size bin/hlod-worker)
dnnl_bytes=$(size "$dnnl")
# shellcheck disable=SC2086
worker_libs=$(size $worker_only)
hlo_bytes=$(size bin/hlo)
# shellcheck disable=SC2086
hlo_libs=$(size $hlo_only)
mb() { awk -v n="$1" 'BEGIN {printf "%.1f MB", n / 1e6}'; }
echo "size: worker program with LLVM $(mb "$worker"), oneDNN $(mb "$dnnl_bytes")," \
    "the worker's other libraries $(mb "$worker_libs")"
echo "size: hlo with libraries of its own $(mb "$((hlo_bytes + hlo_libs))")"
shared=$((all - worker - dnnl_bytes - worker_libs - hlo_bytes - hlo_libs))
echo "size: daemon, C library and what is shared $(mb "$shared")"
echo "size: all $(mb "$all")"
