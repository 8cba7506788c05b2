// SPDX-License-Identifier: Apache-2.0
// owners: whose content is: (tenant, digest) for models and blobs that a tenant brought, and for
// executables that its models were compiled to. Content is stored once for all tenants; a digest
// alone gives nothing: a tenant that does not own it gets the answer for an unknown digest
// (docs/decisions/0016). Rows lie in the journal; memory keeps those met lately.
// Thread: loop, but the functions that take a journal: pool.
#pragma once
#include <stdbool.h>

#include "base/hash.h"
#include "base/status.h"

struct journal;
struct loop;
struct owners;
struct owners *owners_new(struct loop *l, struct journal *j);
void owners_free(struct owners *o); // NULL is fine; when the loop's work is done
// In memory? *out_source: of an executable, the tenant's own model that it came by; else zero.
bool owners_knows(const struct owners *o, const char *tenant, struct digest d,
                  struct digest *out_source);
// Makes it the tenant's, now in memory and soon in the journal; source as above. Again is fine.
void owners_add(struct owners *o, const char *tenant, struct digest d, struct digest source);
// Only in memory: a row that was read.
void owners_keep(struct owners *o, const char *tenant, struct digest d, struct digest source);
void owners_forget(struct owners *o, const char *tenant, struct digest d); // only in memory
// How many tenants memory knows that own it.
int owners_count(const struct owners *o, struct digest d);

// The row, read or written. NOT_FOUND.
status_t owner_read(struct journal *j, const char *tenant, struct digest d,
                    struct digest *out_source) MUST_CHECK;
status_t owner_write(struct journal *j, const char *tenant, struct digest d,
                     struct digest source) MUST_CHECK;
status_t owners_written(struct journal *j, struct digest d, int *out) MUST_CHECK; // rows of d
