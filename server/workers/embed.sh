#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The worker page's files as C arrays: embed.sh FILE... > worker_page.c (server/http/
# http_dashboard.h). worker.html is /worker, the others lie in /worker/.
set -eu
echo '#include "server/http/http_dashboard.h"'
table=""
n=0
for f in "$@"; do
    case $f in
    *.html) type="text/html; charset=utf-8" ;;
    *.css) type="text/css; charset=utf-8" ;;
    *.js) type="text/javascript; charset=utf-8" ;;
    *) echo "embed.sh: what is $f?" >&2; exit 1 ;;
    esac
    case $f in
    *worker.html) path=/worker ;;
    *) path=/worker/$(basename "$f") ;;
    esac
    echo "static const unsigned char f$n[] = {"
    od -An -v -tu1 "$f" | sed 's/  */,/g; s/^,//; s/$/,/'
    echo "};"
    table="$table    {\"$path\", \"$type\", f$n, sizeof f$n},
"
    n=$((n + 1))
done
printf 'const struct dashboard_file worker_files[] = {\n%s};\nconst int n_worker_files = %d;\n' "$table" "$n"
