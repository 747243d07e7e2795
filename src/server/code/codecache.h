/* SPDX-License-Identifier: Apache-2.0 */
/* Code images on disk, named by their hash, so that they travel once.
 *
 * One folder is shared by all workers of a server, who read it, and by several servers: files
 * appear when they are whole, and are checked against their name whenever they are read. Beyond the
 * limit the files that were not used for longest go. Servers that write at the same time may exceed
 * it by a 64th part each.
 */
#ifndef TOW_SERVER_CODECACHE_H
#define TOW_SERVER_CODECACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"

#define TOW_CODECACHE_DEFAULT_MAX (UINT64_C(4) << 30)

struct tows_codecache;

/* Makes the folder if it is not there. `max`: bytes of all files together; 0 means the default.
 * `peer_max`: those that one tenant is charged for; 0: none is held to a part. */
int tows_codecache_open(const char *folder, uint64_t max, uint64_t peer_max,
                        struct tows_codecache **ret_cache);
void tows_codecache_close(struct tows_codecache *cache);

/* The image of that hash and size: malloc'ed, the caller frees it. -ENOENT if there is none, or
 * none that is what its name says (then it is removed). 1: whoever may write there must be told
 * that it was used (tows_codecache_use), or it goes early. Any thread. */
int tows_codecache_get(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                       size_t size, uint8_t **ret_bytes);
/* Keeps an image that a tenant has sent (NULL: there is one); the caller has checked the hash. A
 * larger one than a limit is not kept: -E2BIG. */
int tows_codecache_put(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                       const char *tenant, const void *bytes, size_t size);

/* Whether a tenant's sessions have sent an image: who knows no more of it than its hash does not
 * get it from here. 0 or 1, as above, or -ENOENT. NULL: there is one tenant, and it has. */
#define TOW_CODECACHE_SENT UINT64_MAX /* the key of that, as of facts */
int tows_codecache_was_sent(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                            const char *tenant);

/* Disk that all files take, as of its last look and with what it has written since, and what a
 * tenant is charged; 0: it has not written any. */
uint64_t tows_codecache_used(struct tows_codecache *cache);
uint64_t tows_codecache_used_by(struct tows_codecache *cache, const char *tenant);
/* Another process is about to put so many bytes of a tenant's. */
void tows_codecache_count(struct tows_codecache *cache, const char *tenant, uint64_t size);

/* What earlier sessions of a tenant learned of an image's kernels on a kind of GPU (`key`):
 * appended to `facts`, unchecked; so those of others are not believed. -ENOENT if nothing is known;
 * 1 as above. */
int tows_codecache_get_facts(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                             const char *tenant, uint64_t key, struct tow_buf *facts);
/* Somebody who could not say so has used an image or (`key` is not 0) facts. */
void tows_codecache_use(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                        const char *tenant, uint64_t key);
/* Adds to it. Facts count against the limit as images do. */
int tows_codecache_add_facts(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                             const char *tenant, uint64_t key, const void *bytes, size_t size);

#endif
