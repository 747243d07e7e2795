/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a tenant's user among those that no live worker of another tenant has. */
#include "server/pool/tenant_users.h"

#include <string.h>

#include "base/hash.h"
#include "server/pool/worker_pool.h"

uint64_t tows_tenant_users_hash(const struct tows_who *who, uint64_t count)
{
    char text[TOW_WHO_TEXT_MAX];
    uint8_t digest[TOW_SHA256_SIZE];
    uint64_t number;
    struct tows_who tenant = *who;
    tenant.certificate = false; /* by a token or a certificate, he is the same */
    tows_who_text(&tenant, text);
    tow_sha256_of(text, strlen(text), digest);
    memcpy(&number, digest, sizeof number);
    return number % count;
}

/* A worker that has that user, or (0) that serves this tenant. */
static const struct tows_worker *users_find(const struct tows_worker_pool *pool, uint32_t user,
                                            const struct tows_who *who)
{
    const struct tows_worker *worker = pool->workers;
    while (worker != NULL &&
           (worker->user == 0 ||
            (user != 0 ? worker->user != user : !tows_who_same(&worker->who, who)))) {
        worker = worker->next;
    }
    return worker;
}

uint32_t tows_tenant_users_pick(const struct tows_worker_pool *pool, const struct tows_who *who)
{
    const struct tows_config_range *range = &pool->config->tenant_users;
    if (range->count == 0) {
        return 0;
    }
    const struct tows_worker *same = users_find(pool, 0, who);
    if (same != NULL) {
        return same->user;
    }
    uint64_t first = tows_tenant_users_hash(who, range->count);
    for (uint64_t i = 0; i < range->count; i++) {
        uint32_t user = (uint32_t)(range->first + (first + i) % range->count);
        if (users_find(pool, user, who) == NULL) {
            return user;
        }
    }
    return 0;
}
