// SPDX-License-Identifier: Apache-2.0
// digest_memo: digests of large model files, remembered between commands by what stat says of the
// files they were made from (device, inode, size, times of change), in $XDG_CACHE_HOME/hlo/digests
// or ~/.cache/hlo/digests. A file changed less than two seconds ago is not remembered: a second
// change might leave the same times. Losing the folder costs time alone. Thread: any.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// What stands for these files as they are now: asked before they are read, so that one that changes
// meanwhile is another. False: a file is missing or too new.
bool digest_memo_key(const char *const *paths, size_t n, char out_key[65]);
// The digest of what was read from them.
bool digest_memo_get(const char key[65], char out_hex[65]);
void digest_memo_put(const char key[65], const char hex[65]);
