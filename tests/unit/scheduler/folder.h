// SPDX-License-Identifier: Apache-2.0
// folder: the end of a test's own folder of files.
#pragma once
#include <ftw.h>
#include <stdio.h>

static inline int folder_remove_one(const char *path, const struct stat *st, int type,
                                    struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}
// 0 where it and all below it are gone.
static inline int folder_remove(const char *dir) {
    return nftw(dir, folder_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
