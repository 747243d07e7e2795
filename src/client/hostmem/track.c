/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel which pages of managed memory were written (PAGEMAP_SCAN). */
#include "client/hostmem/track.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

/* The C library's headers may be older than the kernel. */
enum {
    USER_MODE_ONLY = 1,
    WP_UNPOPULATED = 1 << 13, /* features */
    WP_ASYNC = 1 << 15,
    SCAN_WP_MATCHING = 1, /* flags of a scan */
    PAGE_WPALLOWED = 1 << 0,
    PAGE_WRITTEN = 1 << 1,
};

struct region {
    uint64_t start, end, categories;
};

struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN_IOCTL _IOWR('f', 16, struct scan)

enum { REGIONS = 64 };

/* Process-wide: they are about this process's pages, whichever server's memory is on them. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int uffd = -1;
static int pagemap = -1;
static atomic_bool refused;

static bool track_protect(uint64_t low, uint64_t high)
{
    struct uffdio_register reg = {.range = {low, high - low}, .mode = UFFDIO_REGISTER_MODE_WP};
    return ioctl(uffd, UFFDIO_REGISTER, &reg) == 0;
}

/* Whether this kernel does all that is needed, tried on two pages. */
static bool try_out(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return false;
    }
    uint64_t low = (uint64_t)(uintptr_t)pages, high = low + 2 * page, at = low;
    struct towc_track_run runs[2];
    bool works = track_protect(low, high);
    *(volatile uint8_t *)(pages + page) = 1;
    /* The first time it tells of pages, too, that nobody has touched. */
    works = works && towc_track_next(&at, high, runs, 2) == 1 && runs[0].high == high;
    at = low;
    works = works && towc_track_next(&at, high, runs, 2) == 0 && at == high;
    *(volatile uint8_t *)(pages + page) = 2;
    at = low;
    works = works && towc_track_next(&at, high, runs, 2) == 1 && runs[0].low == low + page;
    munmap(pages, 2 * page);
    return works;
}

static void track_begin(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = WP_ASYNC | WP_UNPOPULATED};
    const char *wish = getenv("TOWLINE_MANAGED");
    if (wish != NULL && strcmp(wish, "compare") == 0) {
        atomic_store(&refused, true);
        return;
    }
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE_ONLY);
    pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    bool works = uffd >= 0 && pagemap >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0 && try_out();
    atomic_store(&refused, !works);
}

bool towc_track_begin(uint64_t low, uint64_t high)
{
    pthread_once(&once, track_begin);
    if (!atomic_load(&refused) && low < high && !track_protect(low, high)) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO, "managed memory is compared from now on: %s",
                strerror(errno));
        atomic_store(&refused, true);
    }
    return !atomic_load(&refused);
}

int towc_track_next(uint64_t *at, uint64_t high, struct towc_track_run *runs, int room)
{
    struct region regions[REGIONS];
    struct scan scan = {.size = sizeof scan,
                        .flags = SCAN_WP_MATCHING,
                        .start = *at,
                        .end = high,
                        .vec = (uint64_t)(uintptr_t)regions,
                        .vec_len = room < REGIONS ? (uint64_t)room : REGIONS,
                        .category_mask = PAGE_WPALLOWED | PAGE_WRITTEN,
                        .return_mask = PAGE_WRITTEN};
    int n;
    do {
        n = ioctl(pagemap, PAGEMAP_SCAN_IOCTL, &scan);
    } while (n < 0 && errno == EINTR);
    for (int i = 0; i < n; i++) {
        runs[i] = (struct towc_track_run){regions[i].start, regions[i].end};
    }
    *at = n >= 0 ? scan.walk_end : high;
    return n;
}
