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

struct tow_handle_entry {
    _Atomic uint64_t id;     /* 0: free; with the highest bit: it ends */
    void *handle;            /* the driver's; borrowed from it */
    _Atomic(CUresult) error; /* why there is none, or none that may be used */
    uint32_t context;    /* in which it was made; of a free one of the server's: the next free */
    uint32_t generation; /* of the server's ids: of the last one here */
};

struct tow_handle_side {
    struct tow_handle_entry *_Atomic chunks[TOW_HANDLES_CHUNKS_MAX];
};

struct tow_handles {
    struct tow_handle_side sides[2]; /* by owner: 0 the client, 1 the server */
    struct tow_mutex lock;           /* guards binding and all below */
    struct tow_handle_reverse *reverse;
    size_t reverse_size, reverse_used;
    uint32_t next_index; /* of the server's: never used yet */
    uint32_t free_index; /* of the server's: to be used again; 0: none */
};

int tow_handles_init(struct tow_handles *handles);
void tow_handles_fini(struct tow_handles *handles);

/* The entry of a live id; NULL if stale, never bound or of another kind than the id says. */
const struct tow_handle_entry *tow_handles_find(const struct tow_handles *handles, uint64_t id);
/* The entry of the client's with this index, if it is of that kind (contexts travel as numbers). */
const struct tow_handle_entry *tow_handles_at(const struct tow_handles *handles,
                                              enum tow_handle_kind kind, uint32_t index);
/* -EINVAL for an id that cannot be or is in use, -ENOMEM. */
int tow_handles_bind(struct tow_handles *handles, uint64_t id, void *handle, CUresult error,
                     uint32_t context);
/* The same for one that must be new: -EEXIST if the client's index is in use, or the handle has an
 * id already. */
int tow_handles_bind_new(struct tow_handles *handles, uint64_t id, void *handle, uint32_t context);
/* True for the one caller that ended it. */
bool tow_handles_unbind(struct tow_handles *handles, uint64_t id);
/* What an id stood for. */
struct tow_handle_taken {
    uint64_t id;
    void *handle;
    CUresult error;
    uint32_t context;
};
/* Unbinds the id, of which *ret_taken tells enough to give it back. */
bool tow_handles_take(struct tow_handles *handles, uint64_t id, struct tow_handle_taken *ret_taken);
/* It stands for the same again. */
int tow_handles_give_back(struct tow_handles *handles, const struct tow_handle_taken *taken);
/* The same for what is known by its number, as contexts are: the id means nothing any more, but its
 * index and its handle stay its own until tow_handles_ended. */
bool tow_handles_end(struct tow_handles *handles, uint64_t id);
void tow_handles_ended(struct tow_handles *handles, uint64_t id);
/* Whether somebody ends it just now. */
bool tow_handles_is_ending(const struct tow_handles *handles, uint64_t id);
/* Every use of the id fails from now on, if there is one. */
void tow_handles_spoil(struct tow_handles *handles, uint64_t id, CUresult error);
/* The id of a handle, minted by the server if it has none; 0 if memory is used up. */
uint64_t tow_handles_export(struct tow_handles *handles, enum tow_handle_kind kind, void *handle,
                            uint32_t context);
/* The id of a handle that has one, also if it ends just now; else 0. */
uint64_t tow_handles_known(struct tow_handles *handles, enum tow_handle_kind kind, void *handle);
/* Visits every live entry of a kind (0: of all kinds). `visit` may unbind the entry it is given. */
void tow_handles_each(struct tow_handles *handles, enum tow_handle_kind kind,
                      void (*visit)(void *user, uint64_t id, const struct tow_handle_entry *entry),
                      void *user);

#endif
