/* SPDX-License-Identifier: Apache-2.0 */
/* The table of exported descriptors, by token and by session. */
#include "server/pool/export_registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

struct tows_export {
    struct tows_export *next; /* owned by the table */
    const void *owner;        /* a name only */
    struct tow_token token;
    int fd; /* owned */
};

void tows_export_registry_init(struct tows_export_registry *exports)
{
    struct rlimit limit = {.rlim_cur = 1024};
    memset(exports, 0, sizeof *exports);
    getrlimit(RLIMIT_NOFILE, &limit);
    exports->max = limit.rlim_cur > 2u << 20 ? 1u << 20 : (unsigned)limit.rlim_cur / 2;
}

static struct tows_export **exports_bucket(const struct tows_export_registry *exports,
                                           const struct tow_token *token)
{
    return (struct tows_export **)&exports->buckets[token->word[0] % TOW_EXPORTS_BUCKETS];
}

int tows_export_registry_add(struct tows_export_registry *exports, const void *owner,
                             unsigned *count, int fd, struct tow_token *ret_token)
{
    struct tows_export *entry = NULL;
    int error = 0;
    if (*count >= TOW_EXPORTS_SESSION_MAX || exports->count >= exports->max) {
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
    struct tows_export **at = exports_bucket(exports, &entry->token);
    entry->owner = owner;
    entry->fd = fd;
    entry->next = *at;
    *at = entry;
    *count += 1;
    exports->count++;
    *ret_token = entry->token;
    return 0;
}

static const struct tows_export *exports_look(const struct tows_export_registry *exports,
                                              const struct tow_token *token)
{
    const struct tows_export *entry = *exports_bucket(exports, token);
    while (entry != NULL && !tow_token_equal(&entry->token, token)) {
        entry = entry->next;
    }
    return entry;
}

int tows_export_registry_find(const struct tows_export_registry *exports,
                              const struct tow_token *token)
{
    const struct tows_export *entry = exports_look(exports, token);
    return entry != NULL ? entry->fd : -ENOENT;
}

const void *tows_export_registry_owner(const struct tows_export_registry *exports,
                                       const struct tow_token *token)
{
    const struct tows_export *entry = exports_look(exports, token);
    return entry != NULL ? entry->owner : NULL;
}

static void exports_drop(struct tows_export_registry *exports, struct tows_export **at,
                         unsigned *count)
{
    struct tows_export *entry = *at;
    *at = entry->next;
    close(entry->fd);
    free(entry);
    exports->count--;
    *count -= 1;
}

void tows_export_registry_forget(struct tows_export_registry *exports, const void *owner,
                                 unsigned *count, const struct tow_token *token)
{
    for (struct tows_export **at = exports_bucket(exports, token); *at != NULL; at = &(*at)->next) {
        if ((*at)->owner == owner && tow_token_equal(&(*at)->token, token)) {
            exports_drop(exports, at, count);
            return;
        }
    }
}

void tows_export_registry_end(struct tows_export_registry *exports, const void *owner,
                              unsigned *count)
{
    for (unsigned i = 0; *count > 0 && i < TOW_EXPORTS_BUCKETS; i++) {
        struct tows_export **at = &exports->buckets[i];
        while (*at != NULL) {
            if ((*at)->owner == owner) {
                exports_drop(exports, at, count);
            } else {
                at = &(*at)->next;
            }
        }
    }
}
