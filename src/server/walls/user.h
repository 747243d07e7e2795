/* SPDX-License-Identifier: Apache-2.0 */
/* A worker becomes a user of its tenant's: docs/inside/walls.md.
 *
 * A worker may be started before its tenant is known. So it keeps the right to change its user, and
 * no other, until the listener says who its client is.
 */
#ifndef TOW_SERVER_USER_H
#define TOW_SERVER_USER_H

#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"

/* The listener, at its start: a child of it tries what workers will do. 0, or -Exxx with a sentence
 * without an end: why workers must keep the server's user. */
int tows_user_try(const struct tows_config *config, char *why, size_t size);

/* Whose the listener and the processes that shake hands and answer over HTTP become, where root
 * starts them: numbers that are nobody's, and no tenant's. 0: the tenants have all. */
enum tows_user_ours { TOW_USER_LISTENER, TOW_USER_SHAKER, TOW_USER_WEB };
uint32_t tows_user_ours(const struct tows_config *config, enum tows_user_ours which);

/* The same as tows_user_try for a listener that is to become that user. */
int tows_user_try_listener(const struct tows_config *config, uint32_t user, uint32_t group,
                           char *why, size_t size);

/* What this thread has. */
uint64_t tows_user_has(void);
/* Those of the capabilities that a parent of such a listener needs, which this process has. */
uint64_t tows_user_parent_rights(void);

/* Capabilities that a worker keeps until it becomes another user, as bits. */
uint64_t tows_user_rights(void);

/* All threads of this process get that user, his group and no other one, and lose all capabilities.
 * Then it looks whether that is so. Below 0 nobody must be served. */
int tows_user_become(uint32_t user);
/* The same with another group. */
int tows_user_become_in(uint32_t user, uint32_t group);

#endif
