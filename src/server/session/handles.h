/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of the wire and the driver's handles for them.
 *
 * Looking up takes no lock (launches do it); binding and exporting take one. Entries are found by
 * the id's index and hold the whole id, so that a stale generation or a wrong kind is known as
 * such.
 */
#ifndef TOW_SERVER_HANDLES_H
#define TOW_SERVER_HANDLES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"
#include "gen/cuda_types.h"
#include "gen/functions.h"

enum {
    TOW_HANDLES_CHUNK = 1024,
    TOW_HANDLES_CHUNKS_MAX =
        16384, /* 16 million live handles a side: more than any program has had */
};

struct tows_handle_entry {
    _Atomic uint64_t id;     /* 0: free; with the highest bit: it ends */
    void *handle;            /* the driver's; borrowed from it */
    _Atomic(CUresult) error; /* why there is none, or none that may be used */
    uint32_t context;    /* in which it was made; of a free one of the server's: the next free */
    uint32_t generation; /* of the server's ids: of the last one here */
};

struct tows_handle_space {
    struct tows_handle_entry *_Atomic chunks[TOW_HANDLES_CHUNKS_MAX];
};

struct tows_handles {
    struct tows_handle_space spaces[2]; /* by owner: 0 the client, 1 the server */
    struct tow_mutex lock;              /* guards binding and all below */
    struct tows_handle_reverse *reverse;
    size_t reverse_size, reverse_used;
    uint32_t next_index; /* of the server's: never used yet */
    uint32_t free_index; /* of the server's: to be used again; 0: none */
};

/* Of zeroed memory: what no program uses of it takes none. */
int tows_handles_init(struct tows_handles *handles);
void tows_handles_fini(struct tows_handles *handles);

/* The entry of a live id; NULL if stale, never bound or of another kind than the id says. */
const struct tows_handle_entry *tows_handles_find(const struct tows_handles *handles, uint64_t id);
/* The entry of the client's with this index, if it is of that kind (contexts travel as numbers). */
const struct tows_handle_entry *tows_handles_at(const struct tows_handles *handles,
                                                enum tow_handle_kind kind, uint32_t index);
/* -EINVAL for an id that cannot be or is in use, -ENOMEM. */
int tows_handles_bind(struct tows_handles *handles, uint64_t id, void *handle, CUresult error,
                      uint32_t context);
/* The same for one that must be new: -EEXIST if the client's index is in use, or the handle has an
 * id already. */
int tows_handles_bind_new(struct tows_handles *handles, uint64_t id, void *handle,
                          uint32_t context);
/* True for the one caller that ended it. */
bool tows_handles_unbind(struct tows_handles *handles, uint64_t id);
/* What an id stood for. */
struct tows_handle_taken {
    uint64_t id;
    void *handle;
    CUresult error;
    uint32_t context;
};
/* Unbinds the id, of which *ret_taken tells enough to give it back. */
bool tows_handles_take(struct tows_handles *handles, uint64_t id,
                       struct tows_handle_taken *ret_taken);
/* It stands for the same again. */
int tows_handles_give_back(struct tows_handles *handles, const struct tows_handle_taken *taken);
/* The same for what is known by its number, as contexts are: the id means nothing any more, but its
 * index and its handle stay its own until tows_handles_ended. */
bool tows_handles_end(struct tows_handles *handles, uint64_t id);
void tows_handles_ended(struct tows_handles *handles, uint64_t id);
/* Whether somebody ends it just now. */
bool tows_handles_is_ending(const struct tows_handles *handles, uint64_t id);
/* Every use of the id fails from now on, if there is one. */
void tows_handles_spoil(struct tows_handles *handles, uint64_t id, CUresult error);
/* The id of a handle, minted by the server if it has none; 0 if memory is used up. */
uint64_t tows_handles_export(struct tows_handles *handles, enum tow_handle_kind kind, void *handle,
                             uint32_t context);
/* The id of a handle that has one, also if it ends just now; else 0. */
uint64_t tows_handles_known(struct tows_handles *handles, enum tow_handle_kind kind, void *handle);
/* Visits every live entry of a kind (0: of all kinds). `visit` may unbind the entry it is given. */
void tows_handles_each(struct tows_handles *handles, enum tow_handle_kind kind,
                       void (*visit)(void *user, uint64_t id,
                                     const struct tows_handle_entry *entry),
                       void *user);

#endif
