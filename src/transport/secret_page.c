/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are in no core dump and in no child. */
#include "transport/secret_page.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

void *tow_secret_page_make(size_t size)
{
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return NULL;
    }
    madvise(page, size, MADV_DONTDUMP);
    madvise(page, size, MADV_WIPEONFORK);
    return page;
}

void tow_secret_page_forget(void *page, size_t size)
{
    explicit_bzero(page, size);
    munmap(page, size);
}
