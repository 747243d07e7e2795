/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the cache of code for workers, which may be in the hands of their clients and cannot write
 * there.
 *
 * An image comes as a sealed memfd. A process of its own compares it with its hash, makes room
 * within the limit, and writes it: the listener's loop does not wait for a disk. Small images and
 * facts of kernels are written at once. Nobody can check facts, so each tenant has his own. Only
 * the listener's one thread calls this.
 */
#ifndef TOW_SERVER_CACHE_WRITER_H
#define TOW_SERVER_CACHE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/hash.h"
#include "server/config/config.h"

struct tows_codecache;

enum {
    TOW_STORES_SMALL = 64 << 10, /* an image that the listener itself writes: a tenth of a ms */
    TOW_STORES_MAX = 16,         /* images that are written at once */
    TOW_STORES_SESSION_MAX = 4,  /* of one session, whose threads load code at once */
};

struct tows_cache_writer {
    const struct tows_config *config; /* borrowed */
    struct tows_codecache *cache;     /* owned; NULL until it is needed */
    bool given;                       /* the folder is `folder`, and no other */
    int folder;                       /* owned: of code; -1: it is named by the settings */
    _Atomic uint64_t *used;           /* owned mapping, shared with those that write; NULL: none */
    struct {
        pid_t pid; /* 0: none */
        uint64_t session;
    } stores[TOW_STORES_MAX];
};

void tows_cache_writer_init(struct tows_cache_writer *writer, const struct tows_config *config);
void tows_cache_writer_fini(struct tows_cache_writer *writer);
/* A listener that could not open it by its name is given the folder, which is its own from then on;
 * -1: nothing is kept. */
void tows_cache_writer_move(struct tows_cache_writer *writer, int folder);

/* Begins to write an image of a session, whose tenant may load it by its hash from then on. Both
 * descriptors are borrowed; `answer` gets a tows_worker_msg_answer when it is written or refused.
 * -EBUSY if too many are written already, -EINVAL if the image can still be changed. */
int tows_cache_writer_store(struct tows_cache_writer *writer, uint64_t session, const char *tenant,
                            const uint8_t hash[TOW_SHA256_SIZE], int image, int answer);
/* A child of the listener has ended: it may have been one that writes. */
void tows_cache_writer_reaped(struct tows_cache_writer *writer, pid_t pid);

/* Bytes of disk that all code takes, when some was last kept; 0: none was yet. */
uint64_t tows_cache_writer_used(const struct tows_cache_writer *writer);
/* The same, of what a tenant is charged for. */
uint64_t tows_cache_writer_used_by(const struct tows_cache_writer *writer, const char *tenant);

void tows_cache_writer_facts(struct tows_cache_writer *writer, const char *tenant,
                             const uint8_t hash[TOW_SHA256_SIZE], uint64_t key, const void *bytes,
                             size_t size);
/* A worker has used an image (key 0) or facts: those that nobody uses go first. */
void tows_cache_writer_use(struct tows_cache_writer *writer, const char *tenant,
                           const uint8_t hash[TOW_SHA256_SIZE], uint64_t key);

#endif
