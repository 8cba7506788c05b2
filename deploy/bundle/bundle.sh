#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes programs linked by deploy.mk a tree that runs on any x86-64 Linux: bundle.sh DIR LIBHLOD.
# DIR/bin has the programs; they are stripped, the libraries that they load go to DIR/lib/hlod, the
# C library's own and its loader to DIR/lib/hlod/c, and start.c brings them together. libhlod.so.0
# goes beside them, for programs of others: it finds the libraries, but not our C library, since
# those programs have theirs, maybe an older one (older.py); DIR/lib/hlod/libhlod.glibc says which
# is the oldest that will do.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$1
lib=$dir/lib/hlod
rm -rf "$dir/lib" "$dir/share"
mkdir -p "$lib/c" "$dir/share/licenses/hlod"
cp "$2" "$lib/libhlod.so.0"
cp "$(dirname "$2")/libhlod_older.so.0" "$lib"
# Lines of ldd: NAME => PATH (ADDRESS), and the loader's PATH (ADDRESS).
for f in "$dir"/bin/* "$lib/libhlod.so.0"; do ldd "$f"; done |
    awk '/not found/ {print > "/dev/stderr"; exit 1} /=> \// {print $3} /^\t\// {print $1}' |
    sort -u >"$dir/closure"
while read -r f; do
    to=$lib
    case $(basename "$f") in
    ld-linux-x86-64.so.2 | libc.so.6 | libm.so.6 | libmvec.so.1 | libpthread.so.0 | libdl.so.2 | \
        librt.so.1 | libresolv.so.2 | libutil.so.1 | libanl.so.1) to=$lib/c ;;
    libhlod*) continue ;;
    esac
    cp -L "$f" "$to/"
    chmod 755 "$to/$(basename "$f")"
    strip --strip-unneeded "$to/$(basename "$f")"
    # Whose it is, and on what terms.
    package=$(dpkg -S "$(readlink -f "$f")" 2>/dev/null ||
        dpkg -S "*/$(basename "$(readlink -f "$f")")" 2>/dev/null || true)
    package=$(printf '%s' "$package" | head -n 1 | cut -d: -f1)
    [ -z "$package" ] || [ ! -f "/usr/share/doc/$package/copyright" ] ||
        cp -L "/usr/share/doc/$package/copyright" "$dir/share/licenses/hlod/$package"
done <"$dir/closure"
strip --strip-unneeded "$lib/libhlod.so.0" "$lib/libhlod_older.so.0"
for f in "$dir"/bin/*; do
    strip "$f"
    sh "$here/nointerp.sh" "$f"
done
python3 "$here/older.py" "$lib" >"$lib/libhlod.glibc"
rm "$dir/closure"
