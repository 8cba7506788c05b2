#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The runtime's files as C arrays: embed.sh FILE... > sources.c (see compiler/web/web_sources.h). Of
# scripts lines that are comments and what lines begin with in blanks is left out: a page is sent
# them. So no line of a text over several lines may count on either.
set -eu
echo '#include "compiler/web/web_sources.h"'
table=""
n=0
for f in "$@"; do
    echo "static const unsigned char f$n[] = {"
    case $f in
    *.js) sed -E 's/^ +//; /^\/\/ SPDX/b; /^\/\//d; /^\/\*\*.*\*\/$/d; /^\/\*\*/,/\*\/$/d; /^$/d' "$f" ;;
    *) cat "$f" ;;
    esac | od -An -v -tu1 | sed 's/  */,/g; s/^,//; s/$/,/'
    echo "};"
    table="$table    {\"$(basename "$f")\", {f$n, sizeof f$n}},
"
    n=$((n + 1))
done
printf 'const struct web_source web_sources[] = {\n%s};\nconst int n_web_sources = %d;\n' "$table" "$n"
