/* SPDX-License-Identifier: Apache-2.0 */
/* What the listener and a worker tell each other, over a SOCK_SEQPACKET pair: one message, one
 * packet. */
#ifndef TOW_SERVER_POST_H
#define TOW_SERVER_POST_H

#include <stdint.h>

#include "wire/token.h"

/* Descriptors a worker finds open. */
enum {
    TOW_POST_FD = 3,  /* its end of the pair */
    TOW_STATS_FD = 4, /* memory shared with the listener: one struct tows_session_stats */
};

enum tows_post_what {
    TOW_POST_READY = 1,  /* worker: the backend is open; text: the JSON of `devices` */
    TOW_POST_FAILED = 2, /* worker: it cannot be opened; text: the sentence. It exits. */
    TOW_POST_SERVE = 3,  /* listener: serve this connection; one descriptor comes with it */
    TOW_POST_LANE = 4,   /* listener: a further connection of the session; the same */
    TOW_POST_WARM = 5,   /* worker: may it make a context ahead; then, that it has. Listener: it may
                            (it gets no connection meanwhile) */
    /* Worker: about descriptors for other sessions (server/daemon/kept.h). The first descriptor
     * that comes with it is a socket of which the worker has the other end: there it gets one
     * tows_post_answer. So threads ask at the same time, and whoever is never answered reads an end
     * of file. Without it, none is sent. */
    TOW_POST_KEEP = 6,   /* keep the second descriptor; answer: its token */
    TOW_POST_GET = 7,    /* answer: the descriptor of the token */
    TOW_POST_FORGET = 8, /* close the descriptor of the token, which this session exported */
};

enum { TOW_POST_TEXT_MAX = 64 << 10 };

struct tows_post {
    uint32_t what;
    uint32_t transport; /* SERVE: enum tow_transport_kind */
    uint64_t session;   /* SERVE: its number */
    char backend[16];   /* READY */
    char description[256];
    char peer[128]; /* SERVE */
    uint32_t text_size;
    uint32_t pageable;      /* READY: 1: GPUs reach pageable memory, see describe.h */
    struct tow_token token; /* GET, FORGET */
};

struct tows_post_answer {
    int32_t error; /* 0, or -Exxx */
    uint32_t zero;
    struct tow_token token;
};

#endif
