#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kit for a machine with an NVIDIA GPU and no network: made here, run there (README.md).
#     gpu.sh pack TREE OUT.tar.xz     TREE/bin has the programs (make gpu-kit)
#     gpu.sh run [OPTION...]          in the unpacked kit; options of gpu.py
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1-}" = run ]; then
    shift
    exec python3 "$here/gpu.py" "$here/../../.." "$@"
fi
[ "${1-}" = pack ] || { sed -n '3,5s/^# //p' "$0" >&2; exit 2; }
tree=$2
out=$3
rm -rf "$tree/lib" "$tree/src" "$tree/models"
mkdir -p "$tree/lib" "$tree/src" "$tree/models"
for name in hlo-run hlo-opt device_test; do ln -f "$tree/bin/hlod-worker" "$tree/bin/$name"; done
rm -f "$tree"/bin/*.d
for f in hlod-worker hlod hlo; do strip "$tree/bin/$f"; done
# Not the C library: a machine with such a GPU has one that is newer than ours, and the GPU's driver
# and libraries are made for it. What is loaded by name is not in ldd's lines.
for f in "$tree"/bin/hlod-worker "$tree"/bin/hlod "$tree"/bin/hlo; do ldd "$f"; done |
    awk '/not found/ {print > "/dev/stderr"; exit 1} /=> \// {print $3}' | sort -u |
    grep -vE '/(ld-linux-x86-64|libc|libm|libmvec|libpthread|libdl|librt|libresolv)\.so' |
    while read -r f; do
    cp -L "$f" "$tree/lib/"
    strip --strip-unneeded "$tree/lib/$(basename "$f")"
done
for f in libOpenCL.so.1; do
    path=$(ldconfig -p | awk -v f="$f" '$1 == f {print $NF; exit}')
    [ -z "$path" ] || cp -L "$path" "$tree/lib/"
done
mkdir "$tree/lib/glvnd" # for a machine with a driver and no libglvnd, which finds it
for f in libEGL.so.1 libGLdispatch.so.0 libGLESv2.so.2; do
    path=$(ldconfig -p | awk -v f="$f" '$1 == f {print $NF; exit}')
    [ -z "$path" ] || cp -L "$path" "$tree/lib/glvnd/"
done
git -C "$here" ls-files --full-name "$here/../.." | grep -E '^(tests|proto/[^/]*\.def)' >"$tree/list"
tar -C "$here/../.." -T "$tree/list" -cf - | tar -C "$tree/src" -xf -
rm "$tree/list"
cp build/models/efficientnet_lite0.onnx build/models/cat.npy build/models/labels.txt "$tree/models"
tar -C "$tree" -cf - bin lib src models | xz -T0 -6 >"$out.tmp"
mv "$out.tmp" "$out"
bytes=$(stat -c %s "$out")
echo "$out  $((bytes >> 20)) MiB"
[ "$bytes" -le 67108864 ] || { echo "gpu.sh: more than 64 MiB" >&2; exit 1; }
