#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tarball of `make dist`: what `make install` leaves, with the programs and libraries of the
# bundle instead. May lie anywhere. Usage: dist.sh BUNDLE VERSION OUT MAKE
set -eu
bundle=$1
version=$2
out=$3
name=hlod-$version
stage=$bundle/dist
dir=$stage/$name
rm -rf "$stage"
mkdir -p "$stage" "$(dirname "$out")"
# shellcheck disable=SC2086
$4 install DESTDIR="$PWD/$stage" PREFIX="/$name" >/dev/null
rm -rf "$dir/bin" "$dir"/lib/libhlod.*
cp -r "$bundle/tree/bin" "$bundle/tree/lib" "$bundle/tree/share" "$dir/"
ln -s hlod/libhlod.so.0 "$dir/lib/libhlod.so.0"
ln -s libhlod.so.0 "$dir/lib/libhlod.so"
cp LICENSE "$dir/share/licenses/hlod/hlod"
# Places that name the prefix: pkg-config knows where its file lies; the unit is for /opt/hlod
# (docs/install.md).
sed -i "s|^prefix=.*|prefix=\${pcfiledir}/../..|" "$dir/lib/pkgconfig/hlod.pc"
sed -i "s|/$name/|/opt/hlod/|g" "$dir/lib/systemd/system/hlod.service"
# The same input gives the same bytes.
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - "$name" |
    gzip -n -6 >"$out.tmp"
mv "$out.tmp" "$out"
rm -rf "$stage"
echo "$out  $(du -m "$out" | cut -f1) MB"
