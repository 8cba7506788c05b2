// SPDX-License-Identifier: Apache-2.0
// The GNU build id of the running program, which the linker derives from its contents: two
// compilers that could differ have different ids. Read from the program's own ELF notes.
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "compiler/compile.h"

static int find_note(struct dl_phdr_info *info, UNUSED size_t size, void *out) {
    for (int k = 0; k < info->dlpi_phnum; k++) {
        if (info->dlpi_phdr[k].p_type != PT_NOTE) continue;
        const char *p = (const char *)(info->dlpi_addr + info->dlpi_phdr[k].p_vaddr),
                   *end = p + info->dlpi_phdr[k].p_memsz;
        while (p + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) n;
            memcpy(&n, p, sizeof n);
            const unsigned char *desc =
                (const unsigned char *)p + sizeof n + ((n.n_namesz + 3) & ~3u);
            if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && n.n_descsz <= 20) {
                for (unsigned b = 0; b < n.n_descsz; b++)
                    snprintf((char *)out + 2 * b, 3, "%02x", desc[b]);
                return 1;
            }
            p = (const char *)desc + ((n.n_descsz + 3) & ~3u);
        }
    }
    return 1; // only the main program, which comes first
}

static char hex[64];
static void look(void) {
    dl_iterate_phdr(find_note, hex);
    if (!hex[0]) snprintf(hex, sizeof hex, "unknown");
}
const char *compile_build_id(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    return hex;
}
