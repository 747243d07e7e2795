/* SPDX-License-Identifier: Apache-2.0 */
/* One client's session in its worker, as all handlers see it: the line, the handle tables, what is
 * kept between commands. Who takes the commands off the line is server/run/dispatch.h.
 */
#ifndef TOW_SERVER_SESSION_H
#define TOW_SERVER_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "server/session/completion.h"
#include "server/session/ending.h"
#include "server/session/handles.h"
#include "server/session/hold.h"
#include "server/session/serve.h"
#include "server/session/still.h"
#include "transport/line.h"
#include "wire/control.h"
#include "wire/token.h"

enum { TOW_STATS_GPUS_MAX = 16 };

/* What `towline status` shows; lives in memory shared with the listener. */
struct tows_session_stats {
    _Atomic uint64_t calls, replies, bytes_in, bytes_out, memory;
    _Atomic uint64_t shared;    /* bytes of the client's own memory that it has in common with us */
    _Atomic uint64_t host;      /* host memory that the worker holds: the listener has looked */
    _Atomic uint32_t in_flight; /* calls that run beside the leader */
    _Atomic uint32_t queued;    /* commands that wait in streams: tows_session_claim_command */
    _Atomic uint32_t threads;   /* see tows_session_claim_thread */
    _Atomic uint32_t threads_max; /* that the session may have now: the listener's word; 0: none */
    _Atomic uint32_t client_pid;
    _Atomic uint32_t lanes;      /* 1: the session takes further connections */
    _Atomic uint32_t lasts;      /* 1: it takes connections over which its line goes on */
    _Atomic int64_t detached_ns; /* since when its client's connection is cut; 0: it is not */
    _Atomic uint64_t saved;      /* bytes of GPU memory that it keeps in host memory: suspended */
    _Atomic uint64_t suspends;   /* how often it was */
    _Atomic uint32_t called;     /* 1: somebody waits for that memory; the listener begins with 0 */
    _Atomic uint32_t leads;      /* 1: the leader carries out a command */
    _Atomic uint32_t lines; /* that this worker may write to the log: the listener gives them */
    _Atomic int32_t device; /* of the last context used, -1 if none */
    _Atomic int64_t started_ns;
    /* What cuMemGetInfo says is in use of each GPU; on the software GPU only, which every session
     * has to itself. */
    _Atomic uint32_t used_count;
    _Atomic uint64_t used[TOW_STATS_GPUS_MAX];
    /* GPU memory of each GPU that counts against the session's quota: the worker says so. */
    _Atomic uint64_t charged[TOW_STATS_GPUS_MAX];
    _Atomic uint64_t memory_most; /* that `memory` ever was */
    _Atomic uint64_t launches;    /* of kernels and graphs */
    _Atomic uint64_t gpu_ns;      /* GPU time that it has had; 0: the worker cannot tell */
    /* Turns (server/worker/gate.h). The listener's word for each GPU, and how far the worker has
     * followed; whether it has something to submit there, and whether it has not finished. */
    _Atomic uint32_t gate[TOW_STATS_GPUS_MAX], gate_seen[TOW_STATS_GPUS_MAX];
    _Atomic uint32_t wants[TOW_STATS_GPUS_MAX], works[TOW_STATS_GPUS_MAX];
    _Atomic uint32_t gate_news; /* counts: one of these has changed. The worker sleeps on it. */
    /* Room for GPU memory (server/worker/room.h). What the worker has of each GPU; that it asks for
     * so much of one, and which answers it has taken; the listener's last answer. */
    _Atomic uint64_t room[TOW_STATS_GPUS_MAX], room_wanted;
    _Atomic uint32_t room_gpu, room_asked, room_taken;
    _Atomic uint32_t room_answered, room_given; /* given: 1: it has what it asked for */
    _Atomic uint32_t room_news;                 /* counts: an answer, or the session ends */
    /* The listener's watchdog counts up; the worker's thread that answers says how far it is. */
    _Atomic uint32_t alive_asked, alive_answered;
    _Atomic uint32_t
        ended;          /* with which code the worker is about to end, and 1 more; 0: with none */
    char client[128];   /* written once, before started_ns */
    char farewell[256]; /* why the session is to end: the listener's, before it tells the worker */
};

enum { TOW_IPC_HANDLE_SIZE = 64 };

enum tows_ipc_kind {
    TOW_IPC_MEMORY = 1,
    TOW_IPC_EVENT = 2,
};

/* A handle of cuIpc as the driver made it. */
struct tows_ipc_handle {
    uint32_t kind; /* enum tows_ipc_kind */
    uint8_t bytes[TOW_IPC_HANDLE_SIZE];
};

/* Who keeps what sessions export: see server/pool/export_registry.h and handle_registry.h. */
struct tows_export_ops {
    /* Takes the descriptor, also when it fails. */
    int (*keep)(int fd, struct tow_token *ret_token);
    /* A descriptor of the caller's own; -ENOENT. */
    int (*get)(const struct tow_token *token);
    void (*forget)(const struct tow_token *token);
    /* The same for handles of cuIpc, which are never forgotten. NULL: nobody keeps them. */
    int (*keep_handle)(const struct tows_ipc_handle *handle, struct tow_token *ret_token);
    int (*get_handle)(const struct tow_token *token, struct tows_ipc_handle *ret_handle);
};

/* Who writes the cache of code: see server/pool/cache_writer.h. Any thread. */
struct tows_cache_ops {
    /* Keeps an image, soon. */
    int (*put)(const uint8_t hash[TOW_SHA256_SIZE], const void *bytes, size_t size);
    /* Keeps facts of an image's kernels on a kind of GPU, or not. */
    void (*add_facts)(const uint8_t hash[TOW_SHA256_SIZE], uint64_t key, const void *bytes,
                      size_t size);
    /* An image was used or, with a key, its facts: those that are not go first. */
    void (*use)(const uint8_t hash[TOW_SHA256_SIZE], uint64_t key);
};

struct tows_session_options {
    uint64_t id;
    struct tows_session_stats *stats;       /* borrowed, may be NULL */
    int64_t handshake_ns;                   /* how long the client's hello may take; 0: 10 s */
    const char *code_cache;                 /* folder; NULL: none is kept */
    uint64_t code_cache_max;                /* bytes */
    const struct tows_cache_ops *cache_ops; /* NULL: the session writes it itself */
    const char *tenant;                     /* borrowed: whose it is; NULL: there is one tenant */
    uint64_t memory_max;                    /* bytes of host memory that it may claim; 0: any */
    unsigned threads_max;                   /* threads for its client; 0: TOW_SESSION_THREADS_MAX */
    unsigned commands_max;                  /* that wait in its streams; 0: any number */
    uint64_t silence_ms; /* on a network: how long a machine may be silent; 0: ever */
    unsigned lanes;      /* further connections for bulk data; 0: none */
    /* Waits for the next of them, of which nothing was read yet; `again`: the line of that number
     * is to go on over it, or begins (RESUME). -EPIPE: none will come. NULL: there are none. */
    int (*next_lane)(struct tow_line **ret_line, bool *ret_again, uint32_t *ret_number);
    /* Over tcp and tls: how long a cut of the client's connection may last, and what it is sent so
     * that it can show that the session is its own (TOW_LOGIN_SIZE bytes, borrowed). 0: a cut is
     * the end.
     */
    uint32_t reconnect_s;
    const uint8_t *secret;
    /* The session's line is this one from now on, and such a one. */
    void (*on_lasting)(struct tow_line *line, int64_t limit_ns);
    /* What is for other sessions of the same server; NULL: there is no sharing. All may be called
     * by several threads at once. */
    const struct tows_export_ops *exports;
    void (*on_bye)(void); /* the client has said goodbye; NULL: nobody wants to know */
    /* The client was greeted: from now on tows_session_dismiss may be called. NULL: the same. */
    void (*on_begin)(struct tows_session *session);
    void (*on_call)(void);  /* the leader waits for memory that is put out; NULL: as nothing */
    uint64_t suspend_every; /* tests: suspended and resumed in front of so many commands; 0: not */
    uint64_t record_every;  /* tests: it is recorded, and compared so often; 0: not */
    /* Nobody of the worker's may call the driver just now (true), or may again. NULL: nobody does.
     */
    void (*on_still)(bool still);
    bool quota;      /* GPU memory is refused beyond one */
    bool in_process; /* self: everything is freed; a worker process ends instead, and the driver
                        frees */
};

struct tows_take;           /* what the session has made, recorded; see server/remake/take.h */
struct tows_session_thread; /* a per-thread stream and the errors of no-reply calls of one client
                              thread */
struct tow_lanes;           /* further connections, see transport/lanes.h */
struct tows_acceptor;       /* who takes them */
struct tows_incoming;       /* a bulk transfer on its way in, see transfer.h */

enum {
    TOW_SESSION_THREADS_MAX = 1024, /* where nobody says how many it may have */
    TOW_SESSION_THREADS_MIN = 2,    /* one leads, and one does what is waited for */
    TOW_SESSION_DEVICES_MAX = 256,
    TOW_SESSION_PLACES_MAX = 16384, /* that a client names before one of them may end its session */
};

/* Who keeps something of its own for a session. */
enum tows_session_family {
    TOW_SESSION_CODE,
    TOW_SESSION_COPY,
    TOW_SESSION_HOSTFN,
    TOW_SESSION_DEFERRED_UPLOADS,
    TOW_SESSION_GRAPH,
    TOW_SESSION_MEMORY,
    TOW_SESSION_UPLOAD,
    TOW_SESSION_SHARE,
    TOW_SESSION_PRINTF_SCAN,
    TOW_SESSION_WATCH,
    TOW_SESSION_SHAREABLE,
    TOW_SESSION_CARRY,
    TOW_SESSION_FAMILIES,
};

/* How a family's state begins and ends. `init` gets `size` bytes of zeros; `fini` ends what is in
 * them, with the session, and whoever calls it frees them. */
struct tows_family_ops {
    enum tows_session_family family;
    size_t size;
    void (*init)(struct tows_session *session, void *state);
    void (*fini)(struct tows_session *session, void *state);
};

enum tows_suspend_phase {
    TOW_SUSPEND_NOT,
    TOW_SUSPEND_STANDS, /* the leader is to stand still, what runs is to end */
    TOW_SUSPEND_AWAY,   /* GPU memory is put out */
};

enum tows_session_phase { TOW_SESSION_GOES_ON, TOW_SESSION_ENDS };

struct tows_session {
    struct tow_line *line;                      /* borrowed */
    struct tow_backend *backend;                /* borrowed */
    const struct tow_driver *driver;            /* borrowed from backend */
    const struct tows_session_options *options; /* borrowed */
    struct tows_session_stats *stats;           /* never NULL: own_stats if nobody wants them */
    struct tows_session_stats own_stats;
    tows_serve_fn *table[TOW_FN_LIMIT];
    struct tows_handles handles;
    struct tows_completion completion;
    struct tows_hold hold;
    struct tows_ending ending;
    struct tows_take *take; /* owned; NULL: nothing is recorded */

    struct {
        struct tow_mutex lock; /* guards all here; `led` and `phase` are looked at without it */
        pthread_cond_t free;   /* the lead is to be had, or the session ends */
        atomic_bool led;
        unsigned threads, idle,
            spinning;      /* of all, those asleep, and those that look out for the lead */
        atomic_int phase;  /* enum tows_session_phase */
        atomic_int result; /* first reason to end */
        uint64_t commands; /* taken off the line so far; the leader's */
    } lead;                /* run/dispatch.c's */
    /* Set by who runs the session: it begins to end, and everybody who waits for the client goes
     * on. NULL: nobody does. */
    void (*on_end)(struct tows_session *session);

    atomic_uint replied; /* what was done before a reply is seen by those who take later commands */
    struct tow_mutex reply_lock; /* guards the line's producer side */
    /* So many wait for it to say goodbye: who sends much lets them go first. */
    atomic_uint parting;
    pthread_cond_t parted;

    /* How many contexts have ended: what a thread believes to be current is true for as long as
     * this does not change. */
    atomic_uint contexts_ended;
    /* How many are about to, by whose memory they use: 0 their own, else 1 + a device, whose
     * primary context must not end before. */
    atomic_uint contexts_ending[1 + TOW_SESSION_DEVICES_MAX];
    _Atomic uint64_t primaries[TOW_SESSION_DEVICES_MAX]; /* ids of primary contexts; context.c's */
    _Atomic(CUcontext) primary; /* retained by tows_session_enter_primary, or NULL */

    struct {
        struct tow_mutex lock;              /* guards the table and all in it */
        struct tows_session_thread **table; /* by thread number; owned */
        _Atomic uint32_t owed; /* threads with an error to tell; looked at without the lock */
    } client_threads;          /* threads.c's */

    struct {
        struct tow_mutex lock;  /* guards the list, and how far each of them is */
        pthread_cond_t changed; /* one was announced, or its bytes came */
        struct tows_incoming *list;
    } transfers; /* transfer.c's */

    struct tow_lanes *lanes;        /* owned; NULL: none; fixed once the client was greeted */
    struct tows_acceptor *acceptor; /* run/lane.c's; the leader's */

    struct {
        struct tow_mutex lock;  /* guards all here */
        pthread_cond_t changed; /* a MIRROR frame was taken, or no more will be; or enough bytes */
        struct tow_line *line;  /* owned; NULL: none; set once */
        uint64_t mirrors;       /* MIRROR frames taken from it */
        bool ended;
        /* Its reader waits until the leader has taken that many bytes of the session's own line; 0:
         * it does not. The leader looks without the lock. */
        _Atomic uint64_t overtakes;
    } side; /* run/side.c's */

    atomic_bool stays; /* its memory is not put out: its timeline is kept so; run/timeline.c's */
    struct {
        struct tow_mutex lock;  /* guards all here; the leader looks at `wanted` without it */
        pthread_cond_t changed; /* the phase, or the session ends */
        atomic_bool wanted;     /* the leader is to look here in front of each command */
        enum tows_suspend_phase phase;
        char by[128]; /* who wants it */
        /* The leader's, of soft-suspend: */
        uint64_t commands;
        bool refused; /* something did not end the last time */
    } suspend;        /* run/suspend.c's */

    struct tows_still still;
    /* What was launched last, for whom it keeps waiting; NULL: none, or its code is gone. */
    _Atomic(CUfunction) last_kernel;
    _Atomic uint32_t last_context; /* where it was */

    _Atomic uint64_t claimed;  /* see tows_session_claim */
    atomic_uint places;        /* see tows_session_may_place: how many were named */
    atomic_bool place_taken;   /* one of them was the worker's own */
    atomic_bool commands_told; /* the log has that more may not wait */
    atomic_bool shares_events; /* other sessions may wait for events that this one recorded */
    atomic_uint
        printers;   /* images that print, or were not looked through yet; code/printf_scan.c's */
    uint64_t calls; /* only the leader counts */

    struct {
        struct tow_mutex lock; /* guards the making of them */
        struct {
            void *_Atomic state; /* owned; see tows_session_state */
            const struct tows_family_ops *ops;
        } at[TOW_SESSION_FAMILIES];
    } families;
};

/* What a family keeps for the session; NULL before its first use. Takes no lock: others hold theirs
 * while they call the driver. */
static inline void *tows_session_state(struct tows_session *session,
                                       enum tows_session_family family)
{
    return atomic_load_explicit(&session->families.at[family].state, memory_order_acquire);
}
/* The same, made by whoever comes first. NULL: there is no memory. */
void *tows_session_make_state(struct tows_session *session, const struct tows_family_ops *ops);
/* The session has ended: ends them all, in the order of their numbers. */
void tows_session_end_states(struct tows_session *session);

/* Host memory of a size that the client chose is claimed before it is asked for. False: that would
 * be more than the session may have, and the answer is CUDA_ERROR_OUT_OF_MEMORY. */
bool tows_session_claim(struct tows_session *session, uint64_t size);
void tows_session_unclaim(struct tows_session *session, uint64_t size);

/* The same for threads that the client makes us start: each of its threads that waits needs one,
 * and each of its links. Links get three quarters: where all were theirs, the next call that waits
 * would end the session. */
bool tows_session_claim_thread(struct tows_session *session, bool for_link);
void tows_session_unclaim_thread(struct tows_session *session);
/* The same for a command that waits in a stream and that we keep something for: a host function. A
 * backend that has queues of its own counts there, too (limit_queued). Refused is
 * CUDA_ERROR_OUT_OF_MEMORY, and the log says so once. */
bool tows_session_claim_command(struct tows_session *session);
void tows_session_unclaim_command(struct tows_session *session);
/* Why no thread, for the program and the log: a sentence without an end. */
const char *tows_session_thread_limit(struct tows_session *session, char *ret_text, size_t size);

/* Makes what every session has, in a struct of zeros; 0 or -ENOMEM. */
int tows_session_init(struct tows_session *session);
/* Ends what families keep, the threads' and the rest; also if it is half made. */
void tows_session_fini(struct tows_session *session);

/* Sends a frame of the server's own (PRINT, CALLBACK, DATA ...): `body` gets no header. */
int tows_session_send(struct tows_session *session, uint16_t kind, uint16_t thread,
                      uint32_t context, uint32_t seq, const void *body, size_t size);
/* Sends `size` bytes as DATA frames of a transfer; for replies that are too large for a frame. */
int tows_session_send_data(struct tows_session *session, uint32_t transfer, uint64_t offset,
                           const void *bytes, size_t size, uint32_t flags);
/* The same, but the bytes are the line's until tow_line_take_back_until that place, also if it
 * fails. */
int tows_session_lend_data(struct tows_session *session, uint32_t transfer, uint64_t offset,
                           const void *bytes, size_t size, uint32_t flags, uint64_t *ret_place);

/* What a kernel printed goes to the client's stdout or stderr. */
void tows_session_print(struct tows_session *session, const char *text, size_t length,
                        bool to_stderr);

/* A sentence for the program's user: it goes to the client's log. Any thread that holds no lock of
 * the session. */
void tows_session_tell(struct tows_session *session, const char *sentence);
/* The same, of what this process has logged: of a server within the program that is there. */
void tows_session_tell_reason(struct tows_session *session, const char *text);

/* Makes the context of a number current on this server thread; 0 means that none is to be. */
CUresult tows_session_enter(struct tows_session *session, uint32_t context);
/* The number is not in use any more: whoever enters it from now on fails, but this thread, which
 * has, stays in the context to end it. */
void tows_session_leave_all(struct tows_session *session);
/* False once the session has begun to end. */
static inline bool tows_session_goes_on(struct tows_session *session)
{
    return atomic_load(&session->lead.phase) == TOW_SESSION_GOES_ON;
}
/* For calls that need a context though the client has none yet: the primary one of the first
 * device, which the session keeps. */
CUresult tows_session_enter_primary(struct tows_session *session);
/* Forgets what this server thread believes to be current (after a handler changed it). */
void tows_session_forget_current(void);
/* The real stream that stands for a client thread's per-thread stream in a context. */
CUresult tows_session_thread_stream(struct tows_session *session, uint16_t thread, uint32_t context,
                                    CUstream *ret_stream);
/* The session has ended: nobody asks for a thread any more. */
void tows_session_end_threads(struct tows_session *session);
/* A client thread has ended, or a context is about to be destroyed (thread 0: of all threads). */
void tows_session_drop_thread(struct tows_session *session, uint16_t thread);
void tows_session_drop_context(struct tows_session *session, uint32_t context);

/* Remembers an error of a no-reply call: the thread's next synchronising call returns it.
 * `arguments` is for the log. */
void tows_session_defer(struct tows_session *session, uint16_t thread, uint16_t fn, CUresult status,
                        const char *arguments);

/* The first such error that the thread has not been told, or CUDA_SUCCESS: it is told now. */
CUresult tows_session_take_deferred(struct tows_session *session, uint16_t thread);
/* True if there is one. */
bool tows_session_deferred(struct tows_session *session, uint16_t thread);
/* True if a synchronising call has something to tell that thread: such an error, or text that
 * kernels may have printed, which the driver gives out only then. */
bool tows_session_owes(struct tows_session *session, uint16_t thread);
/* The same of any thread. */
bool tows_session_owes_any(const struct tows_session *session);

/* The client names the place where memory of its own is to be mapped. That something of the
 * worker's lies there tells where its program is, and what guesses are worth. So a session meets
 * one such place at most: behind it nothing is mapped any more, and behind TOW_SESSION_PLACES_MAX
 * others it is the session's end: by halving what is left, and with so many guesses, one learns of
 * a library's place to 64 MiB. Programs that live long name many places, and hardly ever meet one.
 * False: it may have no place. */
bool tows_session_may_place(struct tows_session *session);
void tows_session_place_is_taken(struct tows_session *session, uint64_t address);

/* The client broke the protocol, or the line is gone: the session ends, with the first of such
 * reasons. */
void tows_session_end(struct tows_session *session, int result);

/* The server ends the session: the client is told why (BYE), as far as the line can be had within
 * `grace_ns`, and as far as it reads within as long again. Any thread. */
void tows_session_dismiss(struct tows_session *session, const char *sentence, int64_t grace_ns);

#endif
