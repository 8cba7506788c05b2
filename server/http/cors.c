// SPDX-License-Identifier: Apache-2.0
#include "server/http/cors.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"

static bool is_origin(struct str s) {
    if (str_is(s, "*")) return true;
    const char *sep = memmem(s.p, s.n, "://", 3);
    size_t scheme = sep ? (size_t)(sep - s.p) : 0;
    if (!scheme || scheme + 3 == s.n) return false;
    for (size_t k = 0; k < s.n; k++) {
        unsigned char c = (unsigned char)s.p[k];
        bool apart = k >= scheme && k < scheme + 3;
        if (c <= ' ' || c >= 127 || (!apart && strchr("/?#@*", c))) return false;
    }
    return true;
}

status_t cors_check(const char *list) {
    struct str all = str_of(list), one;
    while (all.n && str_cut(&all, ',', &one))
        if (!is_origin(str_trim(one)))
            return st_invalid("--cors-origin: '" STR_FMT
                              "': expected scheme://host[:port] without a path, or *",
                              STR_ARG(one));
    return ST_OK;
}

bool cors_any(const char *list) {
    struct str all = str_of(list), one;
    while (all.n && str_cut(&all, ',', &one))
        if (str_is(str_trim(one), "*")) return true;
    return false;
}

bool cors_allows(const char *list, const char *origin) {
    struct str all = str_of(list), one;
    if (!origin || !*origin) return false;
    while (all.n && str_cut(&all, ',', &one)) {
        one = str_trim(one);
        if (str_is(one, "*")) return true;
        if (one.n == strlen(origin) && !strncasecmp(one.p, origin, one.n)) return true;
    }
    return false;
}
