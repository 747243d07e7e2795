/* SPDX-License-Identifier: Apache-2.0 */
/* A backend owns GPUs and fills the driver table: the real driver (cuda), or the software GPU
 * (soft).
 *
 * The table's functions behave as the CUDA driver API says, including the per-thread current
 * context. The server calls them from several threads at once.
 */
#ifndef TOW_BACKEND_BACKEND_H
#define TOW_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/driver.h"

/* A range of addresses that device memory of this backend may take. */
struct tow_backend_range {
    uint64_t base, size;
};

/* How memory files reach the workers of other sessions: somebody keeps them, known by a token,
 * until the worker forgets them or ends. Any thread may call these. */
struct tow_backend_token {
    uint8_t bytes[16];
};

struct tow_backend_exchange_ops {
    /* Takes the descriptor, also when it fails. */
    int (*keep)(int fd, struct tow_backend_token *ret_token);
    /* A descriptor of the caller's own; -ENOENT. */
    int (*get)(const struct tow_backend_token *token);
    /* Waits for nobody's answer: locks may be held. */
    void (*forget)(const struct tow_backend_token *token);
};

/* A session's GPU memory is put out and in again, its handles and addresses as before. Only one
 * thread calls these: lock, save, load, unlock, or lock, unlock. A failure comes with a sentence
 * without an end in `why`. */
struct tow_backend_away_ops {
    /* NVIDIA's driver does it. It keeps what it puts out in memory of this process, takes no
     * managed memory, and answers some calls with errors where others wait: so nobody may call it
     * between save and load. */
    bool by_driver;
    /* All work ends, then whoever calls the driver waits. -ETIMEDOUT: `why` names what kept it, or
     * is empty where the backend does not know; -EOPNOTSUPP: there is something that cannot be put
     * out. Nobody waits then. */
    int (*lock)(int64_t deadline_ns, char *why, size_t why_size);
    /* Locked: what the memory holds goes into the empty file, of *ret_bytes bytes, and the memory
     * is free (by_driver: neither is touched). If it fails all is as before; -EIO: it is not, the
     * session is lost. */
    int (*save)(int fd, uint64_t *ret_bytes, char *why, size_t why_size);
    /* Saved, and still locked: the opposite. If it fails the session is lost. */
    int (*load)(int fd, char *why, size_t why_size);
    /* Those who wait go on. If it fails the session is lost. */
    int (*unlock)(char *why, size_t why_size);
    /* From now on `called` is called by whoever begins to wait there. NULL: a backend that cannot
     * know. */
    void (*watch)(void (*called)(void));
};

/* What the GPU did, for a timeline: a kernel, a copy or a fill. Times are tow_time_now_ns. */
enum tow_backend_span_kind {
    TOW_BACKEND_KERNEL = 1,
    TOW_BACKEND_COPY_IN,     /* from the host to a device */
    TOW_BACKEND_COPY_OUT,    /* from a device to the host */
    TOW_BACKEND_COPY_DEVICE, /* within devices */
    TOW_BACKEND_COPY_HOST,   /* within the host */
    TOW_BACKEND_FILL,
};

struct tow_backend_span {
    uint64_t given_ns, began_ns, ended_ns; /* when it was given to its stream, and so on */
    uint64_t bytes;                        /* of a copy or a fill */
    uint64_t command; /* the session's command that gave it (spans.h); 0: unknown */
    uint32_t kind;    /* enum tow_backend_span_kind */
    uint32_t name;    /* of a kernel, see `name`; 0: none was kept */
    uint32_t stream;  /* another number for each stream */
    uint32_t queued;  /* how much was in the stream behind it as it began */
};

/* How a backend knows it. */
struct tow_backend_timeline_how {
    bool stays; /* its memory can no longer be put out (`away`) */
};

/* Any thread may call these; a context may be current to it. */
struct tow_backend_timeline_ops {
    /* From now on what the GPU does is kept, in memory of a fixed size. Again: nothing. */
    int (*begin)(struct tow_backend_timeline_how *ret_how);
    /* The oldest ones, which are kept no longer; `lost`: how many there was no room for so far. */
    unsigned (*take)(struct tow_backend_span *ret_spans, unsigned count, uint64_t *ret_lost);
    /* A kernel's name by its number, from 1 on without a gap; it stays. NULL: there is none. */
    const char *(*name)(uint32_t number);
};

enum tow_backend_session { TOW_BACKEND_BEGINS, TOW_BACKEND_LEFT, TOW_BACKEND_LOST };

struct tow_backend {
    const char *name; /* "cuda" or "soft" */
    struct tow_driver driver;
    /* For messages: the library's path, or what the software GPU pretends to be. */
    char description[256];
    struct tow_backend_range ranges[8];
    unsigned range_count;
    /* Where device printf goes; the server sets it before the first launch. Called from any thread.
     * NULL for a backend whose printf goes to the process's stdout (the real driver's). */
    void (**print)(void *user, const char *text, size_t length);
    /* The same for what the driver would write to stderr (a failed device assert). */
    void (**print_error)(void *user, const char *text, size_t length);
    void **print_user;
    /* NULL, or: between true and false no other thread uses the three, which may change. */
    void (*hold_print)(bool hold);
    /* NULL, or: what was printed so far has been given to the functions above when this returns.
     * Called before a reply that says that work is done, or that something failed. */
    void (*flush_output)(bool failed);
    /* NULL, or: from now on the bytes in use of each GPU are kept in `used`, for others to see.
     * Returns how many there are. */
    unsigned (*show_used)(_Atomic uint64_t *used, unsigned count);
    /* NULL, or: from now on the operations that wait in streams, but for host functions, are
     * counted in `queued`, where the caller may count others. Where it is `most` already none is
     * taken: CUDA_ERROR_OUT_OF_MEMORY. */
    void (*limit_queued)(_Atomic uint32_t *queued, uint32_t most);
    /* NULL, or: GPU time that this process has had so far, in ns. Waits for nobody. */
    uint64_t (*gpu_time)(void);
    /* NULL, or: a session begins, or has ended: the program has left by itself, or is lost. */
    void (*session)(enum tow_backend_session what);
    /* NULL for a backend that needs none; else the server sets it before the first session, or
     * leaves it NULL where nobody keeps anything: then memory is not shared. */
    const struct tow_backend_exchange_ops **exchange;
    /* NULL for a backend whose memory cannot be put out. */
    const struct tow_backend_away_ops *away;
    /* NULL for a backend that does not know what its GPUs do. */
    const struct tow_backend_timeline_ops *timeline;
    /* Telling of a kernel costs nothing, as no code is loaded for it: so of all, at once. */
    bool describes_all;
    void (*close)(struct tow_backend *backend); /* frees everything, also a half-open backend */
    void *state;                                /* owned by the backend */
};

/* Opens the real driver. `path` NULL looks in the loader's cache and the usual folders; a library
 * that is ours is refused. -ENOENT: none found, -ENODEV: found but cuInit says there is no GPU,
 * -ELOOP: it is Towline's own. `why` gets one sentence on failure. `slot`: which addresses it is to
 * use, see cuda/space.h. */
int tow_backend_cuda_open(const char *path, uint64_t slot, struct tow_backend *ret_backend,
                          char *why, size_t why_size);

/* Where the real driver's timelines have CUPTI from: a library's path, "" (a toolkit's, wherever it
 * is) or "none". Before the first one. */
void tow_backend_cuda_cupti(const char *path);

struct tow_soft_options {
    unsigned devices; /* 0: 1 */
    uint64_t memory;  /* bytes each; 0: half of the machine's, at most 16 GiB */
    int capability;   /* 121 = 12.1; 0: 121 */
    unsigned threads; /* host threads that run kernels; 0: all cores */
    bool strict;      /* waits where NVIDIA's driver may, see tow_soft_hold */
    bool dry;         /* kernels do nothing; machine code is taken, too */
    /* Where device memory is to be reserved: base 0 lets the backend choose. Several software GPUs
     * of one client (several servers) must not overlap. */
    uint64_t address_base;
};
/* For `towline check`, before it is opened, and before there are walls: findings go to a pipe.
 * `order` is "TOOL:PATH". -Exxx with a sentence. */
int tow_backend_soft_check(const char *order, char *why, size_t why_size);
int tow_backend_soft_open(const struct tow_soft_options *options, struct tow_backend *ret_backend,
                          char *why, size_t why_size);

#endif
