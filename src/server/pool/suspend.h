/* SPDX-License-Identifier: Apache-2.0 */
/* What the listener knows of a session that is suspended, and its orders to the worker. Only the
 * listener's one thread calls this. */
#ifndef TOW_SERVER_POOL_SUSPEND_H
#define TOW_SERVER_POOL_SUSPEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tows_worker;

enum tows_suspension {
    TOW_SUSPENSION_NONE,
    TOW_SUSPENSION_BEGINS, /* the worker was told, and has not answered */
    TOW_SUSPENSION_AWAY,   /* its GPU memory is put out */
    TOW_SUSPENSION_ENDS,   /* the worker was told to take it in again, and has not answered */
};

struct tows_suspend {
    enum tows_suspension phase;
    bool wanted;      /* somebody asked for it, and it has not ended since */
    bool swapped;     /* nobody did but the server: it ends when its program calls (swap.h) */
    bool recalled;    /* the same, when somebody has asked for its end and there is room */
    int64_t since_ns; /* AWAY and later: of that phase */
    char by[96];      /* who asked for it */
    uint64_t orders;  /* how many there were */
    bool failed;      /* the last one; then `why` is a sentence without an end */
    char why[256];
};

/* NVIDIA's driver puts out more than a program's memory, of contexts for example; 0.5 GiB were
 * seen. */
#define TOW_SUSPENSION_MORE (UINT64_C(1) << 30)

/* What its process may hold of a GPU's memory: while it is suspended, or on its way. */
uint64_t tows_suspend_keeps(const struct tows_worker *worker);
/* Whether its GPU memory is free, for others: from the answer to the one order until the other. */
bool tows_suspend_is_away(const struct tows_worker *worker);
/* Whether the worker has an order that it has not answered. */
bool tows_suspend_moves(const struct tows_worker *worker);
/* Whether it is out because its program wanted nothing, and still does not. */
bool tows_suspend_is_idle(const struct tows_worker *worker);
/* "running" and so on, for the report. */
const char *tows_suspend_text(const struct tows_worker *worker);

/* Tells the worker; from then on tows_suspend_moves. -EPIPE: it ends; -EAGAIN:
 * it cannot be told now. */
int tows_suspend_begin(struct tows_worker *worker, const char *by, uint32_t limit_ms);
/* The same, once there is room for it. */
int tows_suspend_return(struct tows_worker *worker, const char *by);
/* The worker's answer. */
void tows_suspend_hear(struct tows_worker *worker, bool failed, const char *text, size_t size);

#endif
