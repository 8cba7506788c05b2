// SPDX-License-Identifier: Apache-2.0
#include "proto/tokens.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/store/file.h"
#include "base/vec.h"

enum { MAX_FILE = 4 << 20, MAX_WORD = 100, SECRET_BYTES = 32, ID_BYTES = 8 };

// ---- scopes

static const struct {
    const char *text;
    unsigned bit;
} scopes[] = {
#define SCOPE(name, text, bit, help) {text, SCOPE_##name},
#include "proto/scopes.def"
#undef SCOPE
};
enum { N_SCOPES = sizeof scopes / sizeof *scopes };

bool scopes_parse(struct str text, unsigned *out) {
    struct str one;
    unsigned all = 0;
    while (str_cut(&text, ',', &one)) {
        unsigned bit = 0;
        for (int i = 0; i < N_SCOPES; i++)
            if (str_is(one, scopes[i].text)) bit = scopes[i].bit;
        if (!bit) return false;
        all |= bit == SCOPE_ADMIN ? (unsigned)SCOPE_ALL : bit;
    }
    *out = all;
    return all != 0;
}
void scopes_print(struct strbuf *b, unsigned all) {
    const char *sep = "";
    if (all & SCOPE_ADMIN) all = SCOPE_ADMIN;
    for (int i = 0; i < N_SCOPES; i++) {
        if (!(all & scopes[i].bit)) continue;
        strbuf_printf(b, "%s%s", sep, scopes[i].text);
        sep = ",";
    }
}

// ---- hex


static struct digest hash_of(const uint8_t salt[16], struct str secret) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, salt, 16);
    sha256_add(&h, secret.p, secret.n);
    return sha256_end(&h);
}
// ---- the file

static bool word_fits(const char *z, const char *also) {
    size_t n = strlen(z);
    for (const char *p = z; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p) && !strchr(also, *p)) return false;
    return n > 0 && n <= MAX_WORD;
}
status_t tokens_check(const struct token *x) {
    const char *bad = !word_fits(x->name, "")                        ? "name"
                      : !word_fits(x->tenant, "")                    ? "tenant"
                      : x->subject && !word_fits(x->subject, ":@/*") ? "subject"
                                                                     : NULL;
    if (bad)
        return st_invalid("%s '%.100s': expected 1 to %d letters, digits, '.', '_' or '-'", bad,
                          !strcmp(bad, "name")     ? x->name
                          : !strcmp(bad, "tenant") ? x->tenant
                                                   : x->subject,
                          MAX_WORD);
    if (!x->scopes) return st_invalid("'%s' has no scope", x->name);
    return ST_OK;
}

static bool read_kind(struct arena *a, struct str text, struct token *x) {
    struct str kind, part;
    if (!str_cut(&text, ':', &kind)) return false;
    if (str_is(kind, "cert")) {
        x->subject = arena_strndup(a, text.p, text.n);
        return text.n > 0;
    }
    if (!str_is(kind, "token") || !str_cut(&text, ':', &part) || part.n != 2 * ID_BYTES)
        return false;
    memcpy(x->id, part.p, part.n);
    return str_cut(&text, ':', &part) && str_from_hex(part, x->salt, sizeof x->salt) &&
           str_from_hex(text, x->hash.b, sizeof x->hash.b);
}

static bool next_word(struct str *line, struct str *word) {
    *line = str_trim(*line);
    size_t n = 0;
    while (n < line->n && line->p[n] != ' ' && line->p[n] != '\t')
        n++;
    *word = (struct str){line->p, n};
    line->p += n;
    line->n -= n;
    return n > 0;
}

// A time that is written one way only, so that lists and messages say the same as the file.
static void set_expires(struct token *x, struct arena *a, int64_t ns) {
    char text[32];
    clock_wall_text(ns, text);
    x->expires_ns = ns - ns % 1000000000; // whole seconds
    x->expires = arena_printf(a, "%.19sZ", text);
}
static bool read_expires(struct arena *a, struct str word, struct token *x) {
    struct str key;
    int64_t ns;
    if (!str_starts(word, "expires:") || !str_cut(&word, ':', &key) || !clock_wall_read(word, &ns))
        return false;
    set_expires(x, a, ns);
    return true;
}

static status_t read_line(struct tokens *t, struct str line) {
    struct str word[5], last;
    for (int i = 0; i < 5; i++)
        if (!next_word(&line, &word[i]))
            return st_invalid("expected NAME TENANT SCOPES CREATED KIND [expires:TIME]");
    struct token x = {.name = arena_strndup(&t->arena, word[0].p, word[0].n),
                      .tenant = arena_strndup(&t->arena, word[1].p, word[1].n),
                      .created = arena_strndup(&t->arena, word[3].p, word[3].n)};
    if (!scopes_parse(word[2], &x.scopes))
        return st_invalid("scopes '" STR_FMT "'", STR_ARG(word[2]));
    if (next_word(&line, &last) && !read_expires(&t->arena, last, &x))
        return st_invalid("'%s' ends with '" STR_FMT "': expected expires:2027-01-31T12:00:00Z",
                          x.name, STR_ARG(last));
    if (!read_kind(&t->arena, word[4], &x) || str_trim(line).n)
        return st_invalid("'%s' has no token:ID:SALT:HASH or cert:SUBJECT", x.name);
    RETURN_IF_ERR(tokens_check(&x));
    avec_push(&t->arena, t, x);
    return ST_OK;
}

status_t tokens_read(const char *path, struct tokens *out) {
    *out = (struct tokens){0};
    struct str text, line;
    unsigned mode;
    status_t st = file_read(&out->arena, path, MAX_FILE, &mode, &text);
    if (st_code(st) == ST_PERMISSION_DENIED) {
        status_t more = st_new(ST_PERMISSION_DENIED,
                               "%s. Let a group of that user read it: `hlo tokens add NAME --group "
                               "GROUP --file FILE`, or chgrp GROUP and chmod 640",
                               st_message(st));
        st_drop(st);
        return more;
    }
    RETURN_IF_ERR(st);
    if (mode & (S_IWGRP | S_IWOTH))
        return st_new(ST_PERMISSION_DENIED, "%s may be written by others: chmod go-w it", path);
    for (int number = 1; str_cut(&text, '\n', &line); number++) {
        line = str_trim(line);
        if (line.n && line.p[0] != '#')
            RETURN_IF_ERR(st_note(read_line(out, line), "%s:%d", path, number));
    }
    return ST_OK;
}
void tokens_done(struct tokens *t) {
    arena_done(&t->arena);
    *t = (struct tokens){0};
}

static void print_token(struct strbuf *b, const struct token *x) {
    strbuf_printf(b, "%s %s ", x->name, x->tenant);
    scopes_print(b, x->scopes);
    strbuf_printf(b, " %s ", x->created);
    if (x->subject)
        strbuf_printf(b, "cert:%s", x->subject);
    else {
        char salt[33], hash[65];
        str_put_hex(salt, x->salt, sizeof x->salt);
        digest_hex(x->hash, hash);
        strbuf_printf(b, "token:%s:%s:%s", x->id, salt, hash);
    }
    strbuf_printf(b, "%s%s\n", x->expires ? " expires:" : "", x->expires ? x->expires : "");
}
// A new file is its writer's alone. One that was there keeps owner, group and who may read it, as
// far as the writer may give them; no other user may write it.
static bool set_readers(int fd, const char *path, int64_t group) {
    struct stat sb;
    if (group >= 0) return fchown(fd, (uid_t)-1, (gid_t)group) == 0 && fchmod(fd, 0640) == 0;
    if (stat(path, &sb)) return errno == ENOENT;
    bool same = fchown(fd, sb.st_uid, sb.st_gid) == 0 || fchown(fd, (uid_t)-1, sb.st_gid) == 0;
    return !same || fchmod(fd, (sb.st_mode & 0644) | 0600) == 0;
}
status_t tokens_write(const char *path, const struct tokens *t, int64_t group) {
    char tmp[4100];
    if (snprintf(tmp, sizeof tmp, "%s.XXXXXX", path) >= (int)sizeof tmp)
        return st_invalid("path too long");
    struct strbuf b = {0};
    strbuf_puts(&b,
                "# name tenant scopes created token:id:salt:sha256 | cert:subject [expires:time]   "
                "(hlo tokens; docs/security.md)\n");
    for (size_t i = 0; i < t->n; i++)
        print_token(&b, &t->v[i]);
    int fd = mkostemp(tmp, O_CLOEXEC); // mode 0600
    status_t st = fd < 0 || !set_readers(fd, path, group) ? st_errno(errno, path) : ST_OK;
    if (!st) st = file_write(fd, b.p, b.n, path);
    if (!st && fsync(fd)) st = st_errno(errno, path);
    if (fd >= 0) close(fd);
    strbuf_done(&b);
    if (!st && rename(tmp, path)) st = st_errno(errno, path);
    if (st && fd >= 0) unlink(tmp);
    return st;
}

// ---- entries

MUST_CHECK static status_t draw(uint8_t *p, size_t n) {
    return getrandom(p, n, 0) == (ssize_t)n ? ST_OK : st_errno(errno, "getrandom");
}
status_t tokens_add(struct tokens *t, const struct token *from, char out_text[TOKEN_TEXT]) {
    RETURN_IF_ERR(tokens_check(from));
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->v[i].name, from->name))
            return st_new(ST_ALREADY_EXISTS, "'%s' is there; remove it first", from->name);
    struct token x = *from;
    x.name = arena_strdup(&t->arena, from->name);
    x.tenant = arena_strdup(&t->arena, from->tenant);
    x.created = arena_strdup(&t->arena, from->created);
    if (from->expires) x.expires = arena_strdup(&t->arena, from->expires);
    if (from->subject)
        x.subject = arena_strdup(&t->arena, from->subject);
    else {
        uint8_t id[ID_BYTES], secret[SECRET_BYTES];
        RETURN_IF_ERR(draw(id, sizeof id));
        RETURN_IF_ERR(draw(secret, sizeof secret));
        RETURN_IF_ERR(draw(x.salt, sizeof x.salt));
        str_put_hex(x.id, id, sizeof id);
        memcpy(out_text, "hlod_", 5);
        str_put_hex(out_text + 5, id, sizeof id);
        out_text[5 + 2 * ID_BYTES] = '_';
        char *text = out_text + 5 + 2 * ID_BYTES + 1;
        str_put_hex(text, secret, sizeof secret);
        x.hash = hash_of(x.salt, (struct str){text, 2 * SECRET_BYTES});
    }
    avec_push(&t->arena, t, x);
    return ST_OK;
}
status_t tokens_expire(struct token *x, struct arena *a, const char *text, int64_t now_ns) {
    int64_t seconds, ns;
    if (str_to_seconds(str_of(text), &seconds)) {
        if (!sz_mul(seconds, 1000000000, &ns) || !sz_add(now_ns, ns, &ns))
            return st_invalid("expires '%.40s': too far away", text);
    } else if (!clock_wall_read(str_of(text), &ns))
        return st_invalid("expires '%.40s': expected a time from now (90d, 12h) or a moment "
                          "(2027-01-31, 2027-01-31T12:00:00Z)",
                          text);
    set_expires(x, a, ns);
    if (tokens_expired(x, now_ns)) return st_invalid("expires '%.40s': that is over", text);
    return ST_OK;
}
bool tokens_expired(const struct token *x, int64_t now_ns) {
    return x->expires && now_ns >= x->expires_ns;
}
bool tokens_remove(struct tokens *t, const char *name) {
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->v[i].name, name)) continue;
        memmove(&t->v[i], &t->v[i + 1], (--t->n - i) * sizeof *t->v);
        return true;
    }
    return false;
}

const struct token *tokens_find(const struct tokens *t, struct str text) {
    enum { HEAD = 5, ID = 2 * ID_BYTES, SECRET = 2 * SECRET_BYTES };
    if (text.n != HEAD + ID + 1 + SECRET || memcmp(text.p, "hlod_", HEAD) ||
        text.p[HEAD + ID] != '_')
        return NULL;
    const struct token *x = NULL;
    for (size_t i = 0; i < t->n && !x; i++) // the id is no secret
        if (!t->v[i].subject && !memcmp(t->v[i].id, text.p + HEAD, ID)) x = &t->v[i];
    static const struct token nobody;
    const struct token *against = x ? x : &nobody;
    struct digest hash = hash_of(against->salt, (struct str){text.p + HEAD + ID + 1, SECRET});
    return digest_eq_secret(hash, against->hash) ? x : NULL;
}
const struct token *tokens_find_subject(const struct tokens *t, const char *subject) {
    for (size_t i = 0; i < t->n; i++)
        if (t->v[i].subject && !strcmp(t->v[i].subject, subject)) return &t->v[i];
    return NULL;
}
