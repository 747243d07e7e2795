/* SPDX-License-Identifier: Apache-2.0 */
/* Which user the workers of a tenant have: a number by the hash of his name. Two tenants that have
 * sessions at the same time never have the same one. */
#ifndef TOW_SERVER_TENANT_USERS_H
#define TOW_SERVER_TENANT_USERS_H

#include <stdint.h>

#include "server/login/who.h"

struct tows_worker_pool;

/* For a worker that is about to serve him; the table is the workers themselves (`user`). 0: workers
 * keep the server's user, or (which the settings exclude) all numbers are taken. */
uint32_t tows_tenant_users_pick(const struct tows_worker_pool *pool, const struct tows_who *who);

/* The number that he has when nobody else has it: one of `count`. */
uint64_t tows_tenant_users_hash(const struct tows_who *who, uint64_t count);

#endif
