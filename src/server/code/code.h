/* SPDX-License-Identifier: Apache-2.0 */
/* Code images of one session: received, checked, kept while a library uses them. */
#ifndef TOW_SERVER_CODE_H
#define TOW_SERVER_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/session/serve.h"
#include "wire/code.h"

struct tows_code_image {
    uint8_t hash[TOW_SHA256_SIZE];
    enum tow_image_form form;
    size_t size;
    uint8_t *bytes; /* owned */
    /* What the driver is given: `bytes`, or the wrapper built for a bundle. */
    const void *handed;
    struct tow_image_wrapper wrapper;
    const void **parts; /* owned: of a bundle, ends with NULL */
    unsigned refs;      /* guarded by the code lock */
    struct tows_code_image *next;
};

/* Reads a tow_code_ref from the command and finds its image. NULL: the command is malformed or ends
 * with call->status, or *ret_send is set and the image has been asked for (the answer is then
 * TOW_CODE_SEND). The caller has a reference. */
struct tows_code_image *tows_code_take(struct tows_serve *call, bool *ret_send);
void tows_code_ref(struct tows_session *session, struct tows_code_image *image);
void tows_code_unref(struct tows_session *session, struct tows_code_image *image);

/* A library keeps its image as long as it lives (`whole`); a module only needs what it is called.
 * Takes the reference over if it keeps it. `handle`: the driver's. `plain`: it was compiled as
 * everybody's is, so that what is learned of it holds for all. */
void tows_code_keep(struct tows_session *session, uint64_t library, const void *handle,
                    struct tows_code_image *image, bool whole, bool plain);
/* Ends that in two steps, around the driver's unloading: from the first on nothing is learned of
 * it, with the second its image goes. NULL is fine. */
struct tows_code_keeper;
struct tows_code_keeper *tows_code_detach(struct tows_session *session, uint64_t library);
void tows_code_release(struct tows_session *session, struct tows_code_keeper *keeper);
/* Names what the id stands for just now, with the driver's handle that was found for it; 0: nothing
 * that can be learned of. */
uint64_t tows_code_name(struct tows_session *session, uint64_t library, const void *handle);

/* The device of the context that the command is in; the first one where there is none. */
int tows_code_device(struct tows_serve *call);
/* What is known of the image's kernels from earlier sessions is put into `facts`. */
void tows_code_recall(struct tows_serve *call, const struct tows_code_image *image,
                      struct tow_buf *facts);
/* Adds to a load's reply what is known of the image's kernels: i32 device, u32 bytes, facts, u32
 * 0, u32 0. */
void tows_code_reply_facts(struct tows_serve *call, const struct tow_buf *facts);
/* A kernel was described: put into `facts`, unless that is NULL, and kept for later sessions.
 * `name_of` is what tows_code_name gave before that: if it has ended since, the answers may be
 * another's. */
void tows_code_learn(struct tows_serve *call, uint64_t name_of, int device,
                     const struct tow_kernel_info *info, const void *params, const char *name,
                     struct tow_buf *facts);

/* link_state.c: ends the links of a session, whose inputs are images. */
void tows_link_state_end(struct tows_session *session);

#endif
