/* SPDX-License-Identifier: Apache-2.0 */
/* What `towline status` and `towline devices` are told. */
#ifndef TOW_SERVER_LISTENER_STATUS_H
#define TOW_SERVER_LISTENER_STATUS_H

#include "base/buf.h"
#include "server/pool/worker_pool.h"
#include "server/beside/gauge.h"
#include "server/door/door.h"

struct tows_status_source {
    const struct tows_worker_pool *pool;   /* borrowed */
    const struct tows_config *config;      /* borrowed */
    const struct tows_gauge *gauge;        /* borrowed */
    struct tow_listener *const *listeners; /* borrowed */
    unsigned listener_count;
    unsigned waiting;                      /* programs that wait for a worker, or in line */
    const struct tows_door *door;          /* borrowed */
    const struct tows_policy *policy;      /* borrowed */
    struct tows_who who;                   /* who asks: it is told of its own sessions only */
    uint64_t rate;                         /* connections that it makes in a second */
    const struct tows_policy_class *class; /* borrowed: of who asks; NULL: none */
    unsigned places, own_places; /* taken by connections that no worker has: all, and its own */
    bool all;                    /* unless it may know of all */
    bool none;                   /* or, though others are it too, of none */
    pid_t pid;                   /* who takes the server's signals */
    bool draining;
    int64_t started_ns;
};

/* What others are told of why workers fail: the reason names files of this machine. */
#define TOW_STATUS_FAILURE_HIDDEN "the server's log says why"

/* Appends one JSON object. */
int tows_status_write(const struct tows_status_source *source, struct tow_buf *out);

#endif
