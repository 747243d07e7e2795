/* SPDX-License-Identifier: Apache-2.0 */
/* The table of exported descriptors, by token and by session. */
#include "server/daemon/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

struct tows_kept_entry {
    struct tows_kept_entry *next; /* owned by the table */
    const void *owner;            /* a name only */
    struct tow_token token;
    int fd; /* owned */
};

void tows_kept_init(struct tows_kept *kept)
{
    struct rlimit limit = {.rlim_cur = 1024};
    memset(kept, 0, sizeof *kept);
    getrlimit(RLIMIT_NOFILE, &limit);
    kept->max = limit.rlim_cur > 2u << 20 ? 1u << 20 : (unsigned)limit.rlim_cur / 2;
}

static struct tows_kept_entry **kept_bucket(const struct tows_kept *kept,
                                            const struct tow_token *token)
{
    return (struct tows_kept_entry **)&kept->buckets[token->word[0] % TOW_KEPT_BUCKETS];
}

int tows_kept_add(struct tows_kept *kept, const void *owner, unsigned *count, int fd,
                  struct tow_token *ret_token)
{
    struct tows_kept_entry *entry = NULL;
    int error = 0;
    if (*count >= TOW_KEPT_SESSION_MAX || kept->count >= kept->max) {
        error = -EMFILE;
    } else if ((entry = calloc(1, sizeof *entry)) == NULL) {
        error = -ENOMEM;
    } else if (getrandom(&entry->token, sizeof entry->token, 0) != (ssize_t)sizeof entry->token) {
        error = -EIO;
    }
    if (error < 0) {
        free(entry);
        close(fd);
        return error;
    }
    struct tows_kept_entry **at = kept_bucket(kept, &entry->token);
    entry->owner = owner;
    entry->fd = fd;
    entry->next = *at;
    *at = entry;
    *count += 1;
    kept->count++;
    *ret_token = entry->token;
    return 0;
}

int tows_kept_find(const struct tows_kept *kept, const struct tow_token *token)
{
    const struct tows_kept_entry *entry = *kept_bucket(kept, token);
    while (entry != NULL && !tow_token_equal(&entry->token, token)) {
        entry = entry->next;
    }
    return entry != NULL ? entry->fd : -ENOENT;
}

static void kept_drop(struct tows_kept *kept, struct tows_kept_entry **at, unsigned *count)
{
    struct tows_kept_entry *entry = *at;
    *at = entry->next;
    close(entry->fd);
    free(entry);
    kept->count--;
    *count -= 1;
}

void tows_kept_forget(struct tows_kept *kept, const void *owner, unsigned *count,
                      const struct tow_token *token)
{
    for (struct tows_kept_entry **at = kept_bucket(kept, token); *at != NULL; at = &(*at)->next) {
        if ((*at)->owner == owner && tow_token_equal(&(*at)->token, token)) {
            kept_drop(kept, at, count);
            return;
        }
    }
}

void tows_kept_end(struct tows_kept *kept, const void *owner, unsigned *count)
{
    for (unsigned i = 0; *count > 0 && i < TOW_KEPT_BUCKETS; i++) {
        struct tows_kept_entry **at = &kept->buckets[i];
        while (*at != NULL) {
            if ((*at)->owner == owner) {
                kept_drop(kept, at, count);
            } else {
                at = &(*at)->next;
            }
        }
    }
}
