// SPDX-License-Identifier: Apache-2.0
#include "devices/queue/queue_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void queue_keep_files(const char *name, const char *variable) {
    const char *dir = getenv("HLOD_DEVICE_CACHE");
    char path[4096];
    if (!dir || !*dir || getenv(variable)) return;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n >= (int)sizeof path) return;
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0700); // what cannot be made, the next will say
        *at = '/';
    }
    if (mkdir(path, 0700) == 0 || errno == EEXIST) setenv(variable, path, 0);
}
