/* SPDX-License-Identifier: Apache-2.0 */
/* What the listener and a worker tell each other, over a SOCK_SEQPACKET pair: one message, one
 * packet. */
#ifndef TOW_SERVER_WORKER_MSG_H
#define TOW_SERVER_WORKER_MSG_H

#include <stdint.h>

#include "server/login/policy.h"
#include "server/session/session.h"
#include "wire/control.h"
#include "wire/token.h"

/* Descriptors a worker finds open. */
enum {
    TOW_WORKER_MSG_FD = 3, /* its end of the pair */
    TOW_STATS_FD = 4,      /* memory shared with the listener: one struct tows_session_stats */
};

enum tows_worker_msg_what {
    TOW_WORKER_MSG_READY = 1,  /* worker: the backend is open; text: the JSON of `devices` */
    TOW_WORKER_MSG_FAILED = 2, /* worker: it cannot be opened; text: the sentence. It exits. */
    TOW_WORKER_MSG_SERVE = 3,  /* listener: serve this connection; one descriptor comes with it, and
                           with `restart` the socket where the next listener comes */
    TOW_WORKER_MSG_LANE = 4,   /* listener: a further connection of the session; the same */
    TOW_WORKER_MSG_WARM = 5, /* worker: may it make a context ahead; then, that it has. Listener: it
                          may (it gets no connection meanwhile) */
    /* Worker: about descriptors for other sessions (server/pool/export_registry.h). The first
     * descriptor that comes with it is a socket of which the worker has the other end: there it
     * gets one tows_worker_msg_answer. So threads ask at the same time, and whoever is never
     * answered reads an end of file. Without it, none is sent. */
    TOW_WORKER_MSG_KEEP = 6,    /* keep the second descriptor; answer: its token */
    TOW_WORKER_MSG_GET = 7,     /* answer: the descriptor of the token */
    TOW_WORKER_MSG_FORGET = 8,  /* close the descriptor of the token, which this session exported */
    TOW_WORKER_MSG_REFUSED = 9, /* worker, after SERVE, before it hears its client: the descriptor
                           tells which system calls it is refused (server/walls/refused.h) */
    /* Worker: about handles of cuIpc (server/pool/handle_registry.h). It asks, and is answered, in
     * the same way as about descriptors. */
    TOW_WORKER_MSG_KEEP_HANDLE = 10, /* keep the handle; answer: its token */
    TOW_WORKER_MSG_GET_HANDLE = 11,  /* answer: the handle of the token */
    /* Worker: about the cache of code (server/pool/cache_writer.h). */
    TOW_WORKER_MSG_STORE = 12,   /* the second descriptor is an image, a sealed memfd; answer: it is
                             kept, or why not. Asked in the same way */
    TOW_WORKER_MSG_FACTS = 13,   /* text: facts of an image's kernels; no answer */
    TOW_WORKER_MSG_USE = 14,     /* an image (key 0) or facts were used; no answer */
    TOW_WORKER_MSG_RESUME = 15,  /* listener: a connection over which a line of the session goes on;
                            one descriptor comes with it */
    TOW_WORKER_MSG_RENEWED = 16, /* worker, over tls: the session's own line goes on over this
                           connection; no answer */
    TOW_WORKER_MSG_TURN = 17,    /* worker: look at what it shares with the listener */
    /* One order at a time: the next one comes when the worker has answered the last. */
    TOW_WORKER_MSG_SUSPEND = 24,   /* listener: put the GPU memory out, within limit_ms */
    TOW_WORKER_MSG_GO_ON = 25,     /* listener: take it in again */
    TOW_WORKER_MSG_SUSPENDED = 26, /* worker: it is done or, with a text, it has failed */
    TOW_WORKER_MSG_HERE = 27, /* worker, to a listener that did not start it (rejoin.h): its part of
                        the memory that both share and, as the second descriptor, its
                        client's connection */
};

/* The listener's word for a GPU: one of these, and above it a count, by which an answer is to the
 * last one. */
enum tows_gate_state {
    TOW_GATE_OFF,  /* nobody takes turns */
    TOW_GATE_SHUT, /* another has the turn */
    TOW_GATE_OPEN, /* it has it */
};
#define TOW_GATE_STATE(word) ((word)&3u)
#define TOW_GATE_STEP 4u

enum { TOW_WORKER_MSG_TEXT_MAX = 64 << 10 };

/* HERE: what became of the last order of suspending. */
enum tows_phase { TOW_PHASE_IN, TOW_PHASE_LEAVES, TOW_PHASE_OUT, TOW_PHASE_RETURNS };

/* How a session ended, as its worker's exit code. */
enum tows_worker_end {
    TOW_WORKER_END_LEFT = 0,   /* its client said goodbye */
    TOW_WORKER_END_LOST = 20,  /* its client's connection has ended without a goodbye */
    TOW_WORKER_END_BROKE = 21, /* its client broke the protocol */
    TOW_WORKER_END_TOLD = 22,  /* it was ended by the server: the listener, or the worker itself */
    TOW_WORKER_END_FAILED = 23,
};

struct tows_worker_msg {
    uint32_t what;
    uint32_t transport; /* SERVE: enum tow_transport_kind */
    uint64_t session;   /* SERVE: its number */
    char backend[16];   /* READY */
    char description[256];
    char peer[128];  /* SERVE; SUSPEND: who wants it, a sentence for the program's user */
    char tenant[64]; /* SERVE: whose it is, for the log */
    uint32_t text_size;
    uint32_t pageable;              /* READY: 1: GPUs reach pageable memory, see describe.h */
    struct tow_token token;         /* GET, FORGET, GET_HANDLE */
    struct tows_ipc_handle handle;  /* KEEP_HANDLE */
    uint8_t hash[TOW_SHA256_SIZE];  /* STORE, FACTS, USE: of the image */
    uint64_t key;                   /* FACTS, USE: of the kind of GPU */
    uint32_t user;                  /* SERVE: whom it becomes; 0: it keeps the server's user */
    struct tows_limits limits;      /* SERVE */
    uint8_t secret[TOW_LOGIN_SIZE]; /* SERVE, with limits.reconnect: what is sent to the client */
    uint32_t line;    /* RESUME: as in the frame of that name; HERE: enum tows_phase */
    uint32_t granted; /* SERVE, LANE: 1: the connection is TLS with this secret */
    struct tow_grant grant;
    uint32_t limit_ms; /* SUSPEND */
    uint32_t failed;   /* SUSPENDED: 1: it has */
    uint32_t owner;    /* SERVE: the listener's user, as whom the next one comes, too */
    uint32_t restart;  /* SERVE: seconds that the session waits without a listener; 0: none */
};

struct tows_worker_msg_answer {
    int32_t error; /* 0, or -Exxx */
    uint32_t zero;
    struct tow_token token;
    struct tows_ipc_handle handle;
};

#endif
