// SPDX-License-Identifier: Apache-2.0
#include "scheduler/remote/aws.h"

#include <ctype.h>
#include <string.h>

typedef const char *(*env_fn)(const char *name);

// What is empty is not there.
static const char *of_env(env_fn env, const char *name) {
    const char *v = env(name);
    return v && *v ? v : NULL;
}
static const char *file_of(struct arena *a, env_fn env, const char *name, const char *in_home) {
    const char *said = of_env(env, name), *home = of_env(env, "HOME");
    if (said) return said;
    return home ? arena_printf(a, "%s/.aws/%s", home, in_home) : "";
}
void aws_files(struct arena *a, env_fn env, struct aws_files *out) {
    out->credentials = file_of(a, env, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
    out->config = file_of(a, env, "AWS_CONFIG_FILE", "config");
}

// The value of `key` in [section], or NULL; a later one goes before an earlier one.
static const char *value(struct arena *a, struct str text, const char *section, const char *key) {
    struct str line, name;
    const char *found = NULL;
    bool inside = false;
    while (str_cut(&text, '\n', &line)) {
        if (line.n && isspace((unsigned char)line.p[0])) continue; // of a nested section
        line = str_trim(line);
        if (!line.n || line.p[0] == '#' || line.p[0] == ';') continue;
        if (line.p[0] == '[') {
            const char *end = memchr(line.p, ']', line.n);
            struct str in = {line.p + 1, end ? (size_t)(end - line.p - 1) : 0};
            inside = str_is(str_trim(in), section);
            continue;
        }
        if (!inside || !str_cut(&line, '=', &name) || !str_is(str_trim(name), key)) continue;
        line = str_trim(line);
        found = line.n ? arena_strndup(a, line.p, line.n) : NULL;
    }
    return found;
}

static bool is_word(const char *z) {
    size_t n = strlen(z);
    for (const char *p = z; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_.", *p)) return false;
    return n > 0 && n < 100;
}
// "https://HOST[:PORT]", without a slash at the end, or NULL.
static const char *endpoint(struct arena *a, const char *text) {
    struct str s = str_of(text), rest;
    while (s.n && s.p[s.n - 1] == '/')
        s.n--;
    bool tls = str_starts(s, "https://");
    if (!tls && !str_starts(s, "http://")) return NULL;
    size_t n = strlen(tls ? "https://" : "http://");
    rest = (struct str){s.p + n, s.n - n};
    for (size_t i = 0; i < rest.n; i++)
        if (!isalnum((unsigned char)rest.p[i]) && !strchr("-._:[]", rest.p[i])) return NULL;
    return rest.n ? arena_strndup(a, s.p, s.n) : NULL;
}

status_t aws_find(struct arena *a, env_fn env, struct str credentials, struct str config,
                  struct aws *out) {
    const char *profile = of_env(env, "AWS_PROFILE");
    if (!profile) profile = "default";
    const char *in_config =
        strcmp(profile, "default") ? arena_printf(a, "profile %s", profile) : "default";
    struct aws x = {.id = of_env(env, "AWS_ACCESS_KEY_ID"),
                    .secret = of_env(env, "AWS_SECRET_ACCESS_KEY"),
                    .session = of_env(env, "AWS_SESSION_TOKEN"),
                    .ca = of_env(env, "AWS_CA_BUNDLE")};
    const struct {
        struct str text;
        const char *section;
    } places[] = {{credentials, profile}, {config, in_config}};
    for (size_t i = 0; i < 2 && !(x.id && x.secret); i++) {
        x.id = value(a, places[i].text, places[i].section, "aws_access_key_id");
        x.secret = value(a, places[i].text, places[i].section, "aws_secret_access_key");
        x.session = value(a, places[i].text, places[i].section, "aws_session_token");
    }
    if (!x.id || !x.secret)
        return st_new(ST_FAILED_PRECONDITION,
                      "no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile "
                      "'%.80s' of AWS_SHARED_CREDENTIALS_FILE",
                      profile);

    x.region = of_env(env, "AWS_REGION");
    if (!x.region) x.region = of_env(env, "AWS_DEFAULT_REGION");
    if (!x.region) x.region = value(a, config, in_config, "region");
    if (!x.region) x.region = "us-east-1";
    if (!is_word(x.region)) return st_invalid("region '%.100s'", x.region);
    const char *said = of_env(env, "AWS_ENDPOINT_URL_S3");
    if (!said) said = of_env(env, "AWS_ENDPOINT_URL");
    if (!said) said = value(a, config, in_config, "endpoint_url");
    if (said && !(x.endpoint = endpoint(a, said)))
        return st_invalid("endpoint '%.200s': expected https://HOST or http://HOST:PORT", said);
    if (!x.ca) x.ca = value(a, config, in_config, "ca_bundle");
    *out = x;
    return ST_OK;
}

const char *aws_url(struct arena *a, const struct aws *x, const char *bucket, const char *prefix) {
    const char *slash = *prefix ? "/" : "";
    if (x->endpoint) return arena_printf(a, "%s/%s%s%s", x->endpoint, bucket, slash, prefix);
    if (strchr(bucket, '.')) // no certificate is for such a host
        return arena_printf(a, "https://s3.%s.amazonaws.com/%s%s%s", x->region, bucket, slash,
                            prefix);
    return arena_printf(a, "https://%s.s3.%s.amazonaws.com%s%s", bucket, x->region, slash, prefix);
}
