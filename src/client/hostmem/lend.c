/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the file behind a shared mapping that is page-locked and lends it to the worker. */
#include "client/hostmem/lend.h"

#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "client/link/share.h"
#include "client/stream/stream.h"
#include "client/hostmem/vma.h"

struct lend {
    struct towc_link *link; /* borrowed */
    uint64_t low, high;
    struct lend *next;
};

/* Process-wide: addresses are the process's; each names its link. */
static struct {
    struct tow_mutex lock; /* guards the list */
    struct lend *list;
} lends = {.lock = TOW_MUTEX(CLIENT_LENT)};

/* The mapping that holds an address. */
struct search {
    uint64_t at;
    struct towc_vma found; /* high is 0: none */
    char path[512];
};

static bool look_for(const struct towc_vma *vma, void *user)
{
    struct search *search = user;
    if (vma->high <= search->at) {
        return true;
    }
    if (vma->low <= search->at) {
        snprintf(search->path, sizeof search->path, "%s", vma->path);
        search->found = *vma;
        search->found.path = search->path;
    }
    return false;
}

/* A shared mapping of a file in memory, which the worker can have too. */
static bool lend_run(struct towc_link *link, uint64_t low, uint64_t high)
{
    struct search search = {.at = low};
    const struct towc_vma *vma = &search.found;
    struct statfs system;
    struct stat status;
    if (towc_vma_visit(look_for, &search) < 0 || vma->high < high ||
        strcmp(vma->access, "rw-s") != 0) {
        return false;
    }
    uint64_t offset = vma->offset + (low - vma->low);
    int fd = towc_vma_open(vma);
    CUresult answer = CUDA_SUCCESS;
    bool lent = fd >= 0 && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC &&
                fstat(fd, &status) == 0 && offset + (high - low) <= (uint64_t)status.st_size &&
                towc_share_lend(link, fd, low, high - low, &offset, &answer) &&
                answer == CUDA_SUCCESS;
    if (fd >= 0) {
        close(fd);
    }
    return lent;
}

bool towc_lend_begin(struct towc_link *link, uint64_t base, uint64_t size, uint64_t *ret_low,
                     uint64_t *ret_high)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t low = (base + page - 1) & ~(page - 1), high = (base + size) & ~(page - 1);
    /* A capture would not like the worker's calls. */
    if (link->share == NULL || low >= high || atomic_load(&towc_captures) != 0) {
        return false;
    }
    struct lend *l = calloc(1, sizeof *l);
    if (l == NULL || !lend_run(link, low, high)) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_DEBUG, "registered memory at 0x%llx is staged",
                (unsigned long long)base);
        free(l);
        return false;
    }
    *l = (struct lend){.link = link, .low = low, .high = high};
    tow_mutex_lock(&lends.lock);
    l->next = lends.list;
    lends.list = l;
    tow_mutex_unlock(&lends.lock);
    *ret_low = low;
    *ret_high = high;
    return true;
}

CUresult towc_lend_end(struct towc_link *link, uint64_t low)
{
    CUresult status = towc_share_take_back(link, low);
    tow_mutex_lock(&lends.lock);
    struct lend **at = &lends.list;
    while (*at != NULL && ((*at)->link != link || (*at)->low != low)) {
        at = &(*at)->next;
    }
    struct lend *l = *at;
    if (l != NULL) {
        *at = l->next;
    }
    tow_mutex_unlock(&lends.lock);
    free(l);
    return status;
}

uint64_t towc_lend_until(const struct towc_link *link, uint64_t at, uint64_t end, bool *ret_lent)
{
    *ret_lent = false;
    tow_mutex_lock(&lends.lock);
    for (const struct lend *l = lends.list; l != NULL; l = l->next) {
        if (link != NULL && l->link != link) {
            continue;
        }
        if (at - l->low < l->high - l->low) {
            *ret_lent = true;
            end = l->high;
            break;
        }
        if (l->low > at && l->low < end) {
            end = l->low;
        }
    }
    tow_mutex_unlock(&lends.lock);
    return end;
}
