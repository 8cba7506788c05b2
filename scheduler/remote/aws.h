// SPDX-License-Identifier: Apache-2.0
// aws: credentials, region and endpoint of an object store, from where AWS's tools have them:
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; else the profile AWS_PROFILE of
// AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config).
// AWS_REGION, AWS_DEFAULT_REGION, or the profile's region. AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL,
// or the profile's endpoint_url: a store of another maker, addressed by path. AWS_CA_BUNDLE.
// Not: roles of instances, containers and web identities. Thread: any.
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

struct aws {
    const char *id, *secret, *session; // session NULL: none
    const char *region, *endpoint;     // endpoint NULL: AWS's own
    const char *ca;                    // file; NULL: none
};
struct aws_files {           // "": there is none
    const char *credentials; // their names
    const char *config;
};
// env: its value, or NULL (getenv). In a.
void aws_files(struct arena *a, const char *(*env)(const char *name), struct aws_files *out);
// credentials, config: the files' texts. FAILED_PRECONDITION: there are no credentials;
// INVALID_ARGUMENT: an endpoint that is none. In a.
status_t aws_find(struct arena *a, const char *(*env)(const char *name), struct str credentials,
                  struct str config, struct aws *out) MUST_CHECK;
// The URL of a bucket's object, without the object's name and the slash before it. In a.
const char *aws_url(struct arena *a, const struct aws *x, const char *bucket, const char *prefix);
