/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that no worker has yet: being looked at, waiting for a worker, or being answered by
 * the listener itself. Only the listener's one thread uses these. */
#ifndef TOW_SERVER_PENDING_CONN_H
#define TOW_SERVER_PENDING_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/pool/worker_pool.h"
#include "server/login/who.h"
#include "transport/tls_client_cert.h"
#include "transport/transport.h"
#include "wire/control.h"
#include "wire/login.h"

enum tows_pending_conn_state {
    TOW_CONN_STRANGER, /* has not said yet what it wants */
    TOW_CONN_SHAKE,    /* wants to shake hands: waits until another process takes it */
    TOW_CONN_SHAKING,  /* that does; `fd` leads there */
    TOW_CONN_SHOWN,    /* has shaken hands and shown a certificate: the server looks at it */
    TOW_CONN_GRANTED,  /* names a grant: the server hands it over, or it goes */
    TOW_CONN_LOGIN,    /* has said it, and was asked for the proof of a token */
    TOW_CONN_PROOF,    /* has sent it: the server proves or denies it */
    TOW_CONN_DENIED,   /* is refused when the state's time has passed */
    TOW_CONN_PROGRAM,  /* wants a session; waits for a worker */
    TOW_CONN_LANE,     /* belongs to a session: the server hands it over, or it goes */
    TOW_CONN_ASKED,    /* wants a report: the server fills `out` and moves it on */
    TOW_CONN_ANSWERED, /* `out` goes out */
    TOW_CONN_LEAVING,  /* all was said; until it closes its end, so that nothing is lost on the way
                        */
    TOW_CONN_GONE,     /* to be freed */
};

/* What the other process says of a handshake when it is done. */
struct tows_shaken {
    uint8_t binding[TOW_LOGIN_SIZE];      /* what only the connection's two ends have */
    uint8_t authorities[TOW_SHA256_SIZE]; /* who vouched for it, if somebody did */
    struct tow_tls_client_cert cert;      /* whose certificate the client has shown */
};

/* Where a program stands in line. */
struct tows_place {
    uint32_t place, of; /* from 1 on; how many wait there */
    enum tow_wait_for wait_for;
};

struct tows_pending_conn {
    struct tows_pending_conn *next; /* owned by the list */
    int fd;                         /* owned */
    int outer;              /* owned: SHAKING: the client's, while `fd` leads elsewhere; else -1 */
    struct tows_who origin; /* where it comes from, whoever logs in */
    struct tows_who who;
    struct tows_caller *caller; /* borrowed from the door: its peer */
    enum tow_transport_kind kind;
    enum tows_pending_conn_state state;
    int64_t deadline_ns;       /* of the state; PROGRAM: when it is told again to be patient */
    int64_t until_ns;          /* PROGRAM: when it is given up; ASKED: when old numbers must do */
    bool encrypted;            /* what comes is a TLS handshake */
    bool bound;                /* it was, and `fd` has what was in it */
    struct tows_shaken shaken; /* bound */
    uint8_t grant_id[TOW_GRANT_ID]; /* GRANTED */
    bool web;                       /* the process that answers over HTTP asks, for somebody */
    bool by_network;                /* no unix socket: its peer has an address, no user */
    bool demands_token;             /* it must log in, if it can, before it says what it wants */
    struct tow_login_said said;     /* LOGIN and later: what the proof is made of */
    uint8_t proof[TOW_LOGIN_SIZE];  /* PROOF */
    uint8_t login_left[TOW_LOGIN_SIZE]; /* what its login left; zeros: it had none */
    bool resumes;                       /* LOGIN and later: the proof is of a session's secret */
    uint32_t line;                      /* `resumes`: which line of the session goes on */
    const char *refusal; /* the sentence with which it is refused (DENIED), or will be
                            when it has said what it wants; not owned */
    bool allowed;        /* its peer may use this server, by the settings of now */
    bool shared;         /* it asks for shared memory, and is answered so */
    bool partial;        /* some bytes are there, too few: look again soon instead of polling */
    int64_t look_ns;     /* then: when */
    int64_t held_ns;     /* STRANGER: nobody looks at it before; 0: at once */
    char peer[TOW_ADDRESS_MAX];
    char key[TOW_WORKER_KEY_MAX]; /* PROGRAM: which worker it needs */
    uint64_t gpu_memory;          /* PROGRAM: that it asks for; 0: it does not */
    struct tow_wish wish;         /* PROGRAM: what else it asks for */
    int64_t came_ns;              /* PROGRAM: when it began to wait */
    bool admitted;                /* PROGRAM: it may have a worker */
    uint64_t left;                /* admitted without a quota: what the GPUs have for it; 0: all */
    struct tows_place place;      /* PROGRAM, not admitted: in line; place 0: it is not */
    int64_t told_ns;              /* when it was last told to be patient */
    uint64_t session;             /* LANE, `resumes`: whose it is; ASKED: which an order is for */
    uint64_t ticket;              /* ASKED: the numbers it waits for; 0: not asked for yet */
    bool at_hand;                 /* ASKED: it waits for none */
    bool begun;                   /* ASKED: the order's; `ticket` is its number then */
    bool present;                 /* ASKED: it wants to know no more than that we are there */
    uint32_t orders;              /* ASKED: TOW_STATUS_END, TOW_STATUS_DRAIN ... */
    uint32_t limit_ms;            /* ASKED: of TOW_STATUS_SUSPEND */
    struct tow_buf out;
    size_t sent;
};

/* Takes over `fd`. NULL: no memory, the connection is closed. */
struct tows_pending_conn *tows_pending_conn_create(int fd, enum tow_transport_kind kind,
                                                   const char *peer);
void tows_pending_conn_destroy(struct tows_pending_conn *conn);

/* Events to poll for; 0: only the end of the connection. */
short tows_pending_conn_events(const struct tows_pending_conn *conn);

/* Something happened on its descriptor, or its time to be looked at has come. */
void tows_pending_conn_step(struct tows_pending_conn *conn, short events);

/* Whether a key (starter.h) is one that some client's hello leads to. */
/* What the server itself adds to a key: how much of a GPU's processors a worker has, by NVIDIA's
 * MPS. */
#define TOW_PENDING_CONN_PERCENT "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="
bool tows_pending_conn_may_ask(const char *key);

/* Whether it has closed its end by now: a worker would be started for nobody. */
bool tows_pending_conn_has_gone(const struct tows_pending_conn *conn);

/* Whether it is about to say something: the first frame, or a proof. */
bool tows_pending_conn_reads(const struct tows_pending_conn *conn);

/* Its proof was right, and this is the server's: it says again what it wants. */
void tows_pending_conn_prove(struct tows_pending_conn *conn, const uint8_t answer[TOW_LOGIN_SIZE]);
/* Its proof of a session's secret was right, and this is the server's: what comes next is for the
 * session. False: nobody is there for the answer. */
bool tows_pending_conn_welcome_back(struct tows_pending_conn *conn,
                                    const uint8_t answer[TOW_LOGIN_SIZE]);
/* The same where it was all that it wanted to know: it goes. */
void tows_pending_conn_part(struct tows_pending_conn *conn, const uint8_t answer[TOW_LOGIN_SIZE]);
/* Its proof was wrong: it is refused with that sentence, which must live on, after the delay. */
void tows_pending_conn_deny(struct tows_pending_conn *conn, const char *sentence, int64_t delay_ns);

/* Its certificate was looked at. `refusal` (NULL: none), which must live on, is what it is told
 * when it has said what it wants: before that, what it says could meet a closed connection. */
void tows_pending_conn_go_on(struct tows_pending_conn *conn, const char *refusal);

/* Its handshake is being done; `plain`, which it owns from now on, is its connection. */
void tows_pending_conn_shakes(struct tows_pending_conn *conn, int plain);

/* It waits in line, and is told where; or (place 0) it may have a worker. */
void tows_pending_conn_queue(struct tows_pending_conn *conn, struct tows_place place);

/* Queues GRANT. */
void tows_pending_conn_grant(struct tows_pending_conn *conn, const struct tow_grant *grant);
/* Queues REFUSE with the sentence. */
void tows_pending_conn_refuse(struct tows_pending_conn *conn, uint32_t code, const char *sentence);
/* An order takes long: its answer is waited for until then. */
void tows_pending_conn_await(struct tows_pending_conn *conn, int64_t until_ns);
/* Queues REPORT with the JSON. */
void tows_pending_conn_report(struct tows_pending_conn *conn, const char *json, size_t size);

#endif
