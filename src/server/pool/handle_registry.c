/* SPDX-License-Identifier: Apache-2.0 */
/* The table of handles of cuIpc, by token; those of a session are also in a list, by age. */
#include "server/pool/handle_registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"

struct tows_handle {
    struct tows_handle *next;              /* owned by the table */
    struct tows_handle *later;             /* borrowed: the next that the same session made */
    const struct tows_handle_owner *owner; /* borrowed: who has made it */
    struct tows_who who;
    struct tow_token token;
    struct tows_ipc_handle handle;
};

static struct tows_handle **handles_bucket(const struct tows_handle_registry *handles,
                                           const struct tow_token *token)
{
    return (struct tows_handle **)&handles->buckets[token->word[0] % TOW_HANDLES_BUCKETS];
}

static struct tows_handle *handles_look(const struct tows_handle_registry *handles,
                                        const struct tow_token *token)
{
    struct tows_handle *entry = *handles_bucket(handles, token);
    while (entry != NULL && !tow_token_equal(&entry->token, token)) {
        entry = entry->next;
    }
    return entry;
}

/* Who has no key cannot tell a token from random bits. */
static int handles_token(struct tows_handle_registry *handles, uint64_t session,
                         const struct tows_ipc_handle *handle, struct tow_token *ret_token)
{
    uint8_t bytes[sizeof session + sizeof *handle], digest[TOW_SHA256_SIZE];
    if (!handles->keyed &&
        getrandom(handles->key, sizeof handles->key, 0) != (ssize_t)sizeof handles->key) {
        return -EIO;
    }
    handles->keyed = true;
    memcpy(bytes, &session, sizeof session);
    memcpy(bytes + sizeof session, handle, sizeof *handle);
    tow_hmac_sha256(handles->key, sizeof handles->key, bytes, sizeof bytes, digest);
    memcpy(ret_token, digest, sizeof *ret_token);
    return 0;
}

static void drop_oldest(struct tows_handle_registry *handles, struct tows_handle_owner *owner)
{
    struct tows_handle *entry = owner->first;
    struct tows_handle **at = handles_bucket(handles, &entry->token);
    while (*at != entry) {
        at = &(*at)->next;
    }
    *at = entry->next;
    owner->first = entry->later;
    if (owner->first == NULL) {
        owner->last = NULL;
    }
    owner->count--;
    free(entry);
}

int tows_handle_registry_add(struct tows_handle_registry *handles, struct tows_handle_owner *owner,
                             uint64_t session, const struct tows_who *who,
                             const struct tows_ipc_handle *handle, struct tow_token *ret_token)
{
    struct tow_token token;
    int error = handles_token(handles, session, handle, &token);
    if (error < 0) {
        return error;
    }
    if (handles_look(handles, &token) == NULL) {
        struct tows_handle *entry = calloc(1, sizeof *entry);
        if (entry == NULL) {
            return -ENOMEM;
        }
        if (owner->count >= TOW_HANDLES_SESSION_MAX) {
            drop_oldest(handles, owner);
        }
        struct tows_handle **at = handles_bucket(handles, &token);
        entry->owner = owner;
        entry->who = *who;
        entry->token = token;
        entry->handle = *handle;
        entry->next = *at;
        *at = entry;
        *(owner->last != NULL ? &owner->last->later : &owner->first) = entry;
        owner->last = entry;
        owner->count++;
    }
    *ret_token = token;
    return 0;
}

int tows_handle_registry_find(const struct tows_handle_registry *handles,
                              const struct tow_token *token, const struct tows_who *who,
                              struct tows_ipc_handle *ret_handle,
                              const struct tows_handle_owner **ret_owner)
{
    const struct tows_handle *entry = handles_look(handles, token);
    if (entry == NULL || !tows_who_same(&entry->who, who)) {
        return -ENOENT;
    }
    *ret_handle = entry->handle;
    *ret_owner = entry->owner;
    return 0;
}

void tows_handle_registry_end(struct tows_handle_registry *handles, struct tows_handle_owner *owner)
{
    while (owner->first != NULL) {
        drop_oldest(handles, owner);
    }
}
