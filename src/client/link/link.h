/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to one server, shared by all threads of the program.
 *
 * Commands go out in the order of towc_link_lock. Replies are read by whichever thread waits: the
 * first waiter reads for all, hands replies to the others, and when its own came passes the reading
 * on. Nothing runs in the background unless host functions or large managed memory are in use
 * (towc_link_listen, client/hostmem/fault.h); who looks for something that the server tells unasked
 * reads what is there (towc_link_catch_up).
 */
#ifndef TOW_CLIENT_LINK_H
#define TOW_CLIENT_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "client/link/host_rect.h"
#include "client/link/call.h"
#include "client/link/packer.h"
#include "gen/cuda_types.h"
#include "transport/line.h"
#include "wire/control.h"

enum { TOW_LINK_BUCKETS = 64 };
#define TOW_LINK_ROOM (TOW_FRAME_MAX - TOW_FRAME_HEADER - TOW_FRAME_ALIGN + 1)

struct towc_link_counters {
    _Atomic uint64_t commands; /* written with the send lock held, read by anybody */
    uint64_t replies_waited;
    _Atomic uint64_t bytes_out, bytes_in; /* each written by one at a time, read by anybody */
    _Atomic uint64_t side_out, side_in;   /* bytes of the side line */
    _Atomic uint64_t lane_out, lane_in;   /* payload of the further connections */
    /* Mirrored memory that was looked at for changes: how often a piece, and how many bytes. */
    _Atomic uint64_t compared, compared_bytes;
};

/* How the bytes of a transfer come. */
enum towc_transfer_form {
    TOW_TRANSFER_ORDERED, /* one after the other on the own line */
    TOW_TRANSFER_SPREAD,  /* on several lines, in any order: it is over when all have come */
    TOW_TRANSFER_CLOSED,  /* the same, and a frame on the own line closes it: the reader of that
                             goes on when all have come */
};

/* A piece of the program's memory that the server will fill: an asynchronous copy to the host. */
struct towc_transfer {
    uint32_t number;
    struct towc_host_rect into; /* borrowed from the program until the data has come */
    size_t size, got;
    uint32_t context; /* of the copy that fills it, and its stream */
    CUstream stream;
    enum towc_transfer_form form;
    uint32_t copy;                     /* the number of the first transfer of the same copy */
    unsigned receiving;                /* lines that fill it just now */
    bool closing;                      /* the reader of the own line waits for its bytes */
    bool abandoned;                    /* the memory is not ours any more: bytes are thrown away */
    struct towc_transfer *next, *prev; /* the next newer, the next older */
};

struct towc_context;
struct towc_lasting;
struct tow_lanes;
struct towc_completions;

/* Host functions of this server's streams and graphs, counted by client/callback/hostfn.c. Without
 * a side line (client/link/side.h) their end is told on the same line as everything else, so the
 * server's leading thread must not stand in a driver whose queue is full because a stream waits for
 * one: once many calls have gone out behind a function, further ones wait for their replies, which
 * are carried out beside the line. With one it is not in the way of the other threads' calls. */
struct towc_link_hostfns {
    atomic_uint turns;         /* are in streams and have not ended */
    atomic_uint writers;       /* of those the program's, which may write its memory */
    atomic_uint graphs;        /* are in graphs */
    atomic_uint behind;        /* calls that went out while there were any */
    _Atomic uint64_t launches; /* of graphs, while functions were in any */
    pthread_cond_t ended;      /* with the lock of client/callback/hostfn.c: a turn is over */
};

struct towc_link {
    unsigned index;               /* which server of the session, from 0 */
    struct tow_line *line;        /* owned */
    struct towc_lasting *lasting; /* owned; NULL: a cut is the line's end, see link/lasting.h */
    char address[256];
    _Atomic int64_t silence_ns; /* how long its machine may be silent; -1: it has not said */
    char farewell[256]; /* why the server ended the session, "" if it did not say; the reader's */
    atomic_int
        lost; /* CUresult that every call gets once the server is gone; 0 while it is there */

    /* A command's body has fewer bytes. 0 where each call is looked at more closely: the server is
     * lost, or lacks functions (client/link/hello.h). One comparison for all three. */
    atomic_size_t room;
    uint8_t *lacking; /* owned; a bit for each function that the server lacks; NULL: none */

    struct {
        struct tow_lock lock; /* guards all here, and the line's producer side */
        uint32_t next_seq;
        uint32_t next_transfer;
        uint64_t commands; /* that went out, without control frames: the server counts them, too */
    } send;
    struct towc_link_counters counters;
    struct towc_link_hostfns hostfns;
    size_t deferred_bytes;   /* of deferred uploads, whose file guards it */
    _Atomic uint64_t worked; /* the newest command that may keep the device busy for long */
    _Atomic uint64_t beside; /* calls that need no reply, and waited for one: carried out beside the
                              * line; and uploads whose bytes followed their command */

    struct {
        struct tow_mutex lock; /* guards all here */
        struct towc_waiter *waiters[TOW_LINK_BUCKETS];
        unsigned count; /* of waiters */
        struct towc_transfer *oldest,
            *newest;                  /* owned: transfers, in the order of their commands */
        size_t outstanding;           /* bytes of all of them, small ones rounded up */
        bool reading;                 /* some thread reads the line */
        bool listening;               /* the background reader was started */
        pthread_cond_t transfer_done; /* one was removed, or nobody fills it just now */
        pthread_cond_t unread;        /* for the background reader: nobody reads any more */
    } wait;

    struct {
        struct tow_mutex lock; /* guards all here; see client/link/lane.h */
        bool key_known, tried;
        uint64_t key[2];
        struct tow_lanes *lanes; /* owned; NULL: none */
        unsigned count;          /* of them; when they end, the link is lost */
    } lane;

    atomic_bool side_tried;
    struct tow_line *_Atomic side; /* owned; set once; NULL: none, see client/link/side.h */
    struct {
        struct tow_mutex lock; /* guards all here, and the side line's producer side */
        pthread_cond_t told;   /* the key is known, or never will be */
        bool key_known;
        uint64_t key[2];
    } side_send;
    /* MIRROR frames that went out on the side line, or will at once, and how many of them commands
     * on the own line are known to wait for. */
    _Atomic uint64_t side_mirrors, side_fenced;

    /* What is known of the device's work while managed memory is demand-paged: towc_link_idle. */
    struct {
        _Atomic uint64_t given;        /* how often work was about to go out */
        _Atomic uint64_t giver;        /* towc_thread.unique of who gave it; GIVEN_BY_SEVERAL */
        _Atomic uint64_t synchronised; /* 1 + `given` when all of that was done; 0: not known */
        _Atomic uint32_t context;      /* number of the context that was synchronised */
        atomic_uint contexts;          /* that came alive, and have not ended */
    } work;

    struct towc_faults *_Atomic faults; /* owned; set once; of client/hostmem/fault.c, whose lock
                                          guards what is in it */
    struct towc_share *share; /* owned; NULL where memory cannot be shared with the worker */
    struct towc_stage *stage; /* the same; of client/copy/stage.c */
    struct towc_completions *completions; /* owned by client/completion; NULL: no memory for it */

    struct tow_welcome welcome; /* what the server said of itself; fixed after connect */
    uint8_t *snapshot;          /* owned copy of the welcome's device snapshot and context */
    atomic_bool context_ahead;  /* the welcome's context is as it said; whoever takes that is it */
    atomic_bool awaits_end;     /* a context was left to the worker's end, which the program's end
                                 * awaits */
};

#define GIVEN_BY_SEVERAL UINT64_MAX

/* That the device has nothing to do: managed memory is at the worker as it was fetched, and no call
 * of the driver's waits for work. */
struct towc_idle {
    uint32_t context; /* number of the only one; 0: nobody knows whether the device is idle */
    uint64_t given;   /* it is until work.given is more than that */
};
static inline bool towc_link_still_idle(const struct towc_link *link, const struct towc_idle *idle)
{
    return idle->context != 0 && atomic_load(&link->work.given) == idle->given &&
           atomic_load(&link->work.contexts) == 1;
}
static inline struct towc_idle towc_link_idle(const struct towc_link *link)
{
    struct towc_idle idle = {.given = atomic_load(&link->work.given)};
    if (atomic_load(&link->work.synchronised) == idle.given + 1 &&
        atomic_load(&link->work.contexts) == 1) {
        idle.context = atomic_load(&link->work.context);
    }
    return idle;
}
/* The calling thread is about to send work. Behind it comes towc_side_fence: what was fetched and
 * written while the device was idle is done then before that work begins. */
void towc_link_gives(struct towc_link *link);
/* Something else happened, behind which nobody knows what the device does. */
static inline void towc_link_doubts(struct towc_link *link)
{
    atomic_fetch_add(&link->work.given, 1);
}
/* A context was synchronised; `given` is from before that was asked for. */
void towc_link_synchronised(struct towc_link *link, uint32_t context, uint64_t given);

/* A number for a command that no other server's has. */
static inline uint64_t towc_link_command(unsigned server, uint64_t command)
{
    return (uint64_t)server << 56 | (command & ((UINT64_C(1) << 56) - 1)); /* a peer may say more */
}

/* How many commands have gone out: those before a later one have a number of at most that. What is
 * carried out beside the line may be overtaken by a later command, so its return counts again. */
static inline uint64_t towc_link_sent(const struct towc_link *link)
{
    return atomic_load_explicit(&link->counters.commands, memory_order_relaxed) +
           atomic_load_explicit(&link->beside, memory_order_relaxed);
}
/* Between begin and send: the number that the command will have. */
static inline uint64_t towc_link_next(const struct towc_link *link)
{
    return towc_link_sent(link) + 1;
}

/* By the only one who writes this counter now. */
static inline void towc_link_add(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + more, memory_order_relaxed);
}

/* A piece of mirrored memory is compared, or some of it. */
static inline void towc_link_compared(struct towc_link *link, uint64_t bytes)
{
    atomic_fetch_add_explicit(&link->counters.compared, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&link->counters.compared_bytes, bytes, memory_order_relaxed);
}

/* Raises a number that only grows, "done up to here". */
static inline void towc_link_raise(_Atomic uint64_t *value, uint64_t number)
{
    uint64_t old = atomic_load_explicit(value, memory_order_relaxed);
    while (old < number && !atomic_compare_exchange_weak_explicit(
                               value, &old, number, memory_order_release, memory_order_relaxed)) {
    }
}

/* Between begin and send of a launch, a graph or a host function. */
static inline void towc_link_mark_work(struct towc_link *link)
{
    atomic_store_explicit(&link->worked, towc_link_next(link), memory_order_relaxed);
}

/* What the rooms above do for a link. client/edge/core.c fills it, before the first link is opened;
 * until then nothing is done. */
struct towc_link_handlers {
    /* A link was opened; it closes, its lines are closed already. */
    void (*opened)(struct towc_link *link);
    void (*closes)(struct towc_link *link);

    /* Frames that the server sends unasked, for whoever reads the line: a host function's turn,
     * changes of mirrored memory (a MIRROR frame's body), what is done. Below 0: the server sent
     * something that cannot be. */
    int (*callback)(struct towc_link *link, uint64_t id, CUresult status);
    int (*mirror)(struct towc_link *link, const uint8_t *records, size_t size);
    int (*done)(struct towc_link *link, const struct tow_done *done);
    /* Words of the server's for the person at the program, who sees them. */
    void (*text)(const char *text);

    /* Around calls after which the host sees what kernels wrote: before, while memory is mirrored,
     * what the program changed is sent (`works`: the call may give the device work, too); after,
     * while managed memory is demand-paged, what is here is old. */
    CUresult (*before_shown)(struct towc_link *link, bool works);
    void (*after_shown)(struct towc_link *link);
    /* A call of this context failed; CUDA_ERROR_NOT_READY is no failure. */
    void (*failed)(uint32_t context, CUresult status);

    /* Between these no changes of mirrored memory go out: the side line is made. */
    void (*hold_changes)(void);
    void (*release_changes)(void);
};
void towc_link_handle(const struct towc_link_handlers *handlers);
extern const struct towc_link_handlers *towc_link_handler;

/* Connects as the session's server number `index` (which is the slot of addresses it is to use),
 * says hello, keeps the welcome. On failure one sentence in `why`. */
int towc_link_open(const char *address, unsigned index, struct towc_link **ret_link, char *why,
                   size_t why_size);
void towc_link_close(struct towc_link *link);

/* ---- transfers: client/link/transfer.c ---- */

/* Registers memory to be filled by DATA frames of transfer `number`, which a copy in this context
 * and stream brings. Call with the send lock held, before the command that asks for the data is
 * committed. The transfer is removed when it is over. `copy`: the first transfer of the same copy;
 * 0: this one. */
int towc_link_expect(struct towc_link *link, const struct towc_host_rect *into, uint32_t context,
                     CUstream stream, enum towc_transfer_form form, uint32_t copy,
                     uint32_t *ret_number);
/* Receives the payload of a DATA frame that came on `line`, its head consumed. On a lane only
 * transfers that are spread come, and bytes of one that was given up are thrown away. */
int towc_link_take_payload(struct towc_link *link, struct tow_line *line,
                           const struct tow_data *data, bool on_lane);
/* Gives an expected transfer up (the command that was to fill it failed). */
void towc_link_forget(struct towc_link *link, uint32_t number);
/* The server has said that a copy is done, so all its bytes have come: CUDA_SUCCESS, or the server
 * is lost, since they have not. */
CUresult towc_link_check_whole(struct towc_link *link, uint32_t copy);
/* Nobody writes for a copy, or into [address, address+size), when these return: bytes that still
 * come are thrown away. */
void towc_link_abandon_copy(struct towc_link *link, uint32_t copy);
void towc_link_abandon(struct towc_link *link, const void *address, size_t size);
/* Until a spread transfer has come whole. */
CUresult towc_link_await(struct towc_link *link, uint32_t number);
/* Bytes of all transfers that have not come whole; small ones count as a page. */
size_t towc_link_outstanding(struct towc_link *link);
/* True while anything waits to be filled. */
bool towc_link_expects(struct towc_link *link);
/* True while some of [address, address+size) waits to be filled. */
bool towc_link_expecting(struct towc_link *link, const void *address, size_t size);
/* Waits for the stream of a copy that is to fill some of it: waiting for all of them could end a
 * capture, or wait for one that waits for the program. That may leave other copies, and fails if
 * the stream was destroyed. If the server is lost, nobody writes there any more. */
CUresult towc_link_wait_download(struct towc_link *link, const void *address, size_t size);

/* Sends `size` bytes of the program's memory as DATA frames of a transfer, from the caller's own
 * memory. The source may be reused when it returns. Takes the send lock for each chunk, so other
 * calls go between. */
CUresult towc_link_upload(struct towc_link *link, uint32_t transfer, const void *from, size_t size);

/* The same for the part of a rectangle from `offset` of its packed bytes to its end; sends a last
 * frame even for none. */
CUresult towc_link_upload_packed(struct towc_link *link, uint32_t transfer,
                                 const struct towc_packer *packer, uint64_t offset);

/* The server is gone: says so once on stderr, fails all waiters; every later call gets the error.
 */
void towc_link_lose(struct towc_link *link, const char *what);

/* Takes what the server has sent, if nobody else does just now. Does not wait. */
void towc_link_catch_up(struct towc_link *link);

/* Starts the thread that reads when nobody waits (host functions need it). Idempotent. */
int towc_link_listen(struct towc_link *link);

#endif
