// SPDX-License-Identifier: Apache-2.0
// pem: certificates and keys as texts, for libcurl. Blocking. Thread: any.
#pragma once
#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"

// A file's text, in a. secret: others may not read it (file_read_secret). INVALID_ARGUMENT: no PEM
status_t pem_read(struct arena *a, const char *path, bool secret, const char **out) MUST_CHECK;
// Whom the system trusts: SSL_CERT_FILE, or where systems have it; a bundle that was built on
// another system would look where that one has it. *out stays as it is where nothing is found.
status_t pem_of_system(struct arena *a, const char **out) MUST_CHECK;
