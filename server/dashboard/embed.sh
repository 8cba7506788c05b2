#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The dashboard's files as C arrays: embed.sh FILE... > dashboard.c (see
# server/http/http_dashboard.h). index.html is "/"; modules of a folder `runtime` lie in /runtime/.
set -eu
echo '#include "server/http/http_dashboard.h"'
table=""
n=0
for f in "$@"; do
    name=$(basename "$f")
    case $name in
    *.html) type="text/html; charset=utf-8" ;;
    *.css) type="text/css; charset=utf-8" ;;
    *.js) type="text/javascript; charset=utf-8" ;;
    *) echo "embed.sh: what is $f?" >&2; exit 1 ;;
    esac
    [ "$name" = index.html ] && name=""
    case $f in */runtime/*) name=runtime/$name ;; esac
    echo "static const unsigned char f$n[] = {"
    od -An -v -tu1 "$f" | sed 's/  */,/g; s/^,//; s/$/,/'
    echo "};"
    table="$table    {\"/$name\", \"$type\", f$n, sizeof f$n},
"
    n=$((n + 1))
done
printf 'const struct dashboard_file dashboard_files[] = {\n%s};\nconst int n_dashboard_files = %d;\n' "$table" "$n"
