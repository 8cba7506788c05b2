// SPDX-License-Identifier: Apache-2.0
// folder: the end of a test's own folder of files.
#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

// 0 where it and its files are gone.
static inline int folder_remove(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    return rmdir(dir);
}
