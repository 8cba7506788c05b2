#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the PT_INTERP header of a 64-bit little-endian ELF program PT_NULL, so that the kernel
# starts the program itself (start.c) and not a loader. Usage: nointerp.sh PROGRAM
set -eu
number() { od -An "-t$2" -j"$3" -N"$4" "$1" | tr -d ' '; } # file, type, place, bytes
at=$(number "$1" u8 32 8) # e_phoff, e_phentsize, e_phnum
size=$(number "$1" u2 54 2)
n=$(number "$1" u2 56 2)
while [ "$n" -gt 0 ]; do
    [ "$(number "$1" u4 "$at" 4)" != 3 ] || printf '\0\0\0\0' |
        dd of="$1" bs=1 seek="$at" conv=notrunc status=none
    at=$((at + size))
    n=$((n - 1))
done
