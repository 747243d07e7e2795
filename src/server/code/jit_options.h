/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the JIT compiler and linker, as the driver wants them. */
#ifndef TOW_SERVER_JIT_OPTIONS_H
#define TOW_SERVER_JIT_OPTIONS_H

#include "server/session/serve.h"
#include "wire/code.h"

struct tows_serve_jit {
    unsigned count;
    CUjit_option options[TOW_JIT_OPTIONS_MAX];
    void *values[TOW_JIT_OPTIONS_MAX];
    void *owned[TOW_JIT_OPTIONS_MAX]; /* owned: logs and lists that `values` point at */
    size_t log_rooms[2];              /* info, error */
};

/* Reads the options of a command; whether they are well formed says tows_serve_ready. Always end
 * with fini. */
void tows_serve_jit_init(struct tows_serve_jit *jit, struct tows_serve *call);
/* The part that must outlive the command is all in *jit: it may be moved. */
void tows_serve_jit_fini(struct tows_serve_jit *jit);
/* True if none of the options changes the code that comes out. */
bool tows_serve_jit_is_plain(const struct tows_serve_jit *jit);
/* Adds logs, their sizes and times to the reply. */
void tows_serve_jit_reply(const struct tows_serve_jit *jit, struct tows_serve *call);

#endif
