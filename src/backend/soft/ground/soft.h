/* The software GPU: its state and what its files share.
 *
 * One lock (tow_soft.lock) guards everything declared here unless a field says otherwise; kernels,
 * copies and host functions run without it. Functions named tow_soft_* expect the lock to be held
 * unless their comment says "unlocked". Entry points of the driver table take it themselves:
 *
 *     struct tow_soft_ctx *ctx;
 *     CUresult result = tow_soft_enter(&ctx);   // locked and with a healthy current context on
 * success if (result != CUDA_SUCCESS) { return result; }
 *     ...
 *     return tow_soft_leave(result);
 *
 * Work travels as `struct tow_soft_work`: a stream queues it as an op, a graph keeps it as a node.
 */
#ifndef TOW_SOFT_SOFT_H
#define TOW_SOFT_SOFT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "ptx/ptx.h"
#include "ptx/num/texture.h"

#define TOW_SOFT_DEVICES_MAX 16
#define TOW_SOFT_NAME "Towline Software GPU"
#define TOW_SOFT_NAME_DRY "Towline Dry GPU (its kernels do nothing)"
#define TOW_SOFT_DRIVER_VERSION 13000
#define TOW_SOFT_BLOCK                                                                             \
    (UINT64_C(2) << 20)         /* small allocations are cut from blocks of this size              \
                                 */
#define TOW_SOFT_UNIT 512       /* alignment of every allocation */
#define TOW_SOFT_RUNNERS_MAX 64 /* threads that execute streams */
#define TOW_SOFT_IMAGE_MAX (UINT64_C(1) << 30)
#define TOW_SOFT_PARAMS_MAX 32764 /* bytes of kernel parameters, as CUDA 12.1 and later allow */

/* ---- handles -----------------------------------------------------------------------------------
 */

enum tow_soft_kind {
    TOW_SOFT_NONE,
    TOW_SOFT_CTX,
    TOW_SOFT_STREAM,
    TOW_SOFT_EVENT,
    TOW_SOFT_MODULE,
    TOW_SOFT_FUNCTION,
    TOW_SOFT_LIBRARY,
    TOW_SOFT_KERNEL,
    TOW_SOFT_LINK,
    TOW_SOFT_ARRAY,
    TOW_SOFT_MIPMAP,
    TOW_SOFT_TEXTURE,
    TOW_SOFT_SURFACE,
    TOW_SOFT_POOL,
    TOW_SOFT_MEMORY, /* a CUmemGenericAllocationHandle */
    TOW_SOFT_GRAPH,
    TOW_SOFT_NODE,
    TOW_SOFT_EXEC,
    TOW_SOFT_USER_OBJECT,
    TOW_SOFT_GREEN,
    TOW_SOFT_RESOURCES,
    TOW_SOFT_CONDITION, /* a CUgraphConditionalHandle */
    TOW_SOFT_KINDS
};

struct tow_soft_ctx;

/* First member of everything that has a handle. */
struct tow_soft_object {
    uint64_t handle;
    enum tow_soft_kind kind;
    struct tow_soft_ctx
        *ctx; /* borrowed: objects die with their context; NULL for device-wide ones */
    struct tow_soft_object *prev, *next; /* in ctx->objects */
};

/* Gives the object a handle and puts it into the context's list (ctx may be NULL). */
int tow_soft_object_add(struct tow_soft_object *object, enum tow_soft_kind kind,
                        struct tow_soft_ctx *ctx);
/* The handle becomes invalid, the object leaves its context; the memory stays. Harmless twice. */
void tow_soft_object_remove(struct tow_soft_object *object);
/* NULL for a stale or foreign handle. */
void *tow_soft_lookup(enum tow_soft_kind kind, uint64_t handle);
enum tow_soft_kind tow_soft_handle_kind(uint64_t handle);
void tow_soft_handles_fini(void);

/* ---- device memory ------------------------------------------------------------------------------
 */

/* Free address ranges, sorted; first fit. */
struct tow_soft_space {
    struct tow_soft_hole {
        uint64_t base, size;
    } * holes; /* owned */
    size_t count, capacity;
};
int tow_soft_space_init(struct tow_soft_space *space, uint64_t base, uint64_t size);
void tow_soft_space_fini(struct tow_soft_space *space);
/* -ENOMEM if nothing fits. `align` is a power of two. `at` not 0: that address or none (-EBUSY). */
int tow_soft_space_take(struct tow_soft_space *space, uint64_t size, uint64_t align, uint64_t at,
                        uint64_t *ret_base);
int tow_soft_space_give(struct tow_soft_space *space, uint64_t base, uint64_t size);

enum tow_soft_alloc_kind {
    TOW_SOFT_MEM_DEVICE,     /* cuMemAlloc */
    TOW_SOFT_MEM_GLOBAL,     /* a module's variable */
    TOW_SOFT_MEM_MANAGED,    /* cuMemAllocManaged, __managed__ */
    TOW_SOFT_MEM_HOST,       /* cuMemHostAlloc */
    TOW_SOFT_MEM_REGISTERED, /* cuMemHostRegister */
    TOW_SOFT_MEM_POOL,       /* stream-ordered */
    TOW_SOFT_MEM_GRAPH,      /* a graph's allocation node */
    TOW_SOFT_MEM_VMM,        /* cuMemMap */
    TOW_SOFT_MEM_ARRAY,      /* behind a CUarray: kernels reach it through textures only */
    TOW_SOFT_MEM_HEAP,       /* device malloc */
    TOW_SOFT_MEM_IPC,        /* another process's */
};

struct tow_soft_block;
struct tow_soft_pool;
struct tow_soft_memory;

/* One live piece of memory. */
struct tow_soft_alloc {
    uint64_t base, size; /* exactly what was asked for */
    uint64_t reserved;   /* what it occupies, from base - lead on */
    uint64_t lead;       /* see tow_soft_alloc_shift */
    enum tow_soft_alloc_kind kind;
    struct tow_soft_ctx *ctx; /* borrowed; NULL for host-wide memory */
    int device;
    unsigned flags; /* of the allocating call */
    uint64_t id;
    bool sync_memops, read_mostly;
    bool freeing;  /* a stream-ordered free of it is queued */
    bool variable; /* of a module, and not freed but by it */
    CUmemLocation preferred, prefetched;
    uint32_t accessed_by;           /* devices, by cuMemAdvise; bit 31: the host */
    struct tow_soft_block *block;   /* borrowed; NULL for memory with pages of its own */
    struct tow_soft_pool *pool;     /* borrowed; for POOL */
    uint64_t file_offset;           /* for POOL, where the pool is a file: where in it */
    bool imported;                  /* another worker's, which counts it */
    struct tow_soft_memory *memory; /* counted; for VMM */
    struct tow_soft_graph_va
        *va; /* counted; for GRAPH: its pages outlive it, the graph may come again */
    void (*gone)(struct tow_soft_alloc *alloc); /* for POOL and IPC: whose it was hears of it */
    struct tow_soft_alloc *prev, *next;         /* in ctx->allocs */
};

/* What an address belongs to. */
struct tow_soft_entry {
    uint64_t low, high;
    uint64_t meta; /* read mask 0-15, write mask 16-31 (bits are devices), alloc kind 32-39 */
    struct tow_soft_alloc *alloc; /* NULL for device malloc */
};

/* The index of live memory: readers (kernels) take no lock. Unlocked, all of them. */
int tow_soft_index_init(void);
void tow_soft_index_fini(void);
int tow_soft_index_add(const struct tow_soft_entry *entry);
/* Removes the entry that begins at `low`; false if there is none. */
bool tow_soft_index_remove(uint64_t low, struct tow_soft_entry *ret_entry);
bool tow_soft_index_find(uint64_t address, struct tow_soft_entry *ret_entry);
/* Changes the masks of the entry at `low`. */
void tow_soft_index_set_meta(uint64_t low, uint64_t meta);
/* True if any entry overlaps [base, base + size). */
bool tow_soft_index_overlaps(uint64_t base, uint64_t size);
static inline uint64_t tow_soft_meta(enum tow_soft_alloc_kind kind, uint32_t read, uint32_t write)
{
    return (read & 0xffff) | (uint64_t)(write & 0xffff) << 16 | (uint64_t)kind << 32;
}
static inline enum tow_soft_alloc_kind tow_soft_meta_kind(uint64_t meta)
{
    return (enum tow_soft_alloc_kind)(meta >> 32 & 0xff);
}

/* Addresses: a big reservation from which all memory comes. */
int tow_soft_arena_open(uint64_t base, char *why, size_t why_size);
void tow_soft_arena_close(void);
int tow_soft_arena_take(uint64_t size, uint64_t align, uint64_t at, uint64_t *ret_base);
void tow_soft_arena_give(uint64_t base, uint64_t size); /* into quarantine first */
int tow_soft_arena_commit(uint64_t base, uint64_t size, int fd, uint64_t offset);
void tow_soft_arena_decommit(uint64_t base, uint64_t size);
bool tow_soft_arena_holds(uint64_t address, uint64_t size);

/* Allocates and enters it into the index and the context's list. `ctx` NULL is allowed for HOST. */
CUresult tow_soft_alloc_make(struct tow_soft_ctx *ctx, int device, enum tow_soft_alloc_kind kind,
                             uint64_t size, unsigned flags, struct tow_soft_alloc **ret_alloc);
/* Enters memory that somebody else provides (registered, mapped); -ENOMEM. */
int tow_soft_alloc_enter(struct tow_soft_alloc *alloc);
/* New memory with pages of its own begins so many bytes later. */
CUresult tow_soft_alloc_shift(struct tow_soft_alloc *alloc, uint64_t lead);
/* It no longer ends with its context. */
void tow_soft_alloc_disown(struct tow_soft_alloc *alloc);
/* Forgets it: kernels that start from now on fault on it; its pages go when no kernel that may
 * still use them runs. */
void tow_soft_alloc_drop(struct tow_soft_alloc *alloc);
/* The allocation that holds [address, address + size), NULL if none or if it ends before. */
struct tow_soft_alloc *tow_soft_alloc_at(uint64_t address);
/* True when every byte of the range is live and `ctx` may use it. */
bool tow_soft_range_ok(const struct tow_soft_ctx *ctx, uint64_t address, uint64_t size, bool write);
/* True when the address is memory that the driver knows (device, managed, pinned). */
bool tow_soft_range_known(uint64_t address);

/* Calls `run(object, a, b)` once no op that is running now runs any more. */
void tow_soft_retire(void (*run)(void *object, uint64_t a, uint64_t b), void *object, uint64_t a,
                     uint64_t b);
/* Waits until no op runs that began before this call; the lock is given up meanwhile. */
void tow_soft_quiesce(void);
/* The same but for host functions: one may wait for whoever waits here, and uses no addresses. */
void tow_soft_quiesce_device(void);
/* Runs what has become due. */
void tow_soft_retire_poll(void);

/* ---- work -------------------------------------------------------------------------------------
 */

struct tow_soft_function;
struct tow_soft_array;
struct tow_soft_mark;
struct tow_soft_board;
struct tow_soft_graph;
struct tow_soft_condition;
struct tow_soft_exec;
struct tow_soft_plan;

enum tow_soft_work_kind {
    TOW_SOFT_WORK_EMPTY,
    TOW_SOFT_WORK_KERNEL,
    TOW_SOFT_WORK_COPY,
    TOW_SOFT_WORK_SET,
    TOW_SOFT_WORK_HOST,
    TOW_SOFT_WORK_RECORD,
    TOW_SOFT_WORK_WAIT,
    TOW_SOFT_WORK_MEMOPS,
    TOW_SOFT_WORK_ALLOC, /* graph nodes only */
    TOW_SOFT_WORK_FREE,
    TOW_SOFT_WORK_GRAPH,  /* a launched graph */
    TOW_SOFT_WORK_CHILD,  /* graph nodes only */
    TOW_SOFT_WORK_BRANCH, /* a conditional node */
    TOW_SOFT_WORK_KINDS
};

struct tow_soft_kernel_work {
    struct tow_soft_function *function; /* counted through its module */
    uint32_t grid[3], block[3], cluster[3], shared;
    bool cooperative;
    int priority;
    uint8_t *params; /* owned */
    size_t param_bytes;
    CUlaunchAttribute attrs[8]; /* what the caller set, for graph queries */
    unsigned attr_count;
    bool through_kernel; /* the caller named a CUkernel */
};

struct tow_soft_copy_work {
    uint8_t *dst;
    const uint8_t *src;
    size_t dst_pitch, dst_slice, src_pitch, src_slice, width, height, depth;
    bool dst_device, src_device;                  /* checked against live memory when it runs */
    struct tow_soft_array *dst_array, *src_array; /* counted */
    void *staged; /* owned: what was read from pageable memory; then `src` points into it */
    CUDA_MEMCPY3D desc;
};

struct tow_soft_set_work {
    uint64_t dst;
    size_t pitch, width, height; /* width in elements */
    uint32_t value, element;
};

struct tow_soft_work {
    enum tow_soft_work_kind kind;
    union {
        struct tow_soft_kernel_work kernel;
        struct tow_soft_copy_work copy;
        struct tow_soft_set_work set;
        struct {
            CUhostFn fn;
            CUstreamCallback callback; /* instead of fn */
            CUstream stream;
            void *user;
            CUresult status; /* for the callback: the context's when it begins */
        } host;
        struct {
            struct tow_soft_mark *mark; /* counted */
            uint64_t event;             /* handle, for graph nodes: recorded anew at each launch */
            bool timing;
        } event;
        struct {
            CUstreamBatchMemOpParams *ops; /* owned */
            unsigned count, flags;
        } memops;
        struct {
            struct tow_soft_graph_va *va; /* counted */
            uint64_t size;
            CUDA_MEM_ALLOC_NODE_PARAMS params; /* without its pointers */
        } alloc;
        struct {
            uint64_t address;
        } release;
        struct {
            struct tow_soft_plan *plan;   /* counted */
            struct tow_soft_mark **marks; /* owned: one for each event that the graph records */
            size_t mark_count;
        } graph;
        struct {
            struct tow_soft_graph *graph; /* owned */
        } child;
        struct {
            struct tow_soft_condition *condition; /* counted */
            CUgraphConditionalNodeType type;
            unsigned count;
            struct tow_soft_graph **bodies; /* owned, and so are the graphs */
            CUgraph *handles;               /* owned: theirs; NULL in an instance */
        } branch;
    };
};

/* When the work is checked that is built: it runs soon; it is of a node that was made by hand; it
 * is captured, which NVIDIA's driver takes for fills of any address. */
enum tow_soft_build {
    TOW_SOFT_BUILD_NOW,
    TOW_SOFT_BUILD_NODE,
    TOW_SOFT_BUILD_CAPTURED,
};
/* Checks and makes the work of a node that copies; of a fill. */
CUresult tow_soft_copy_build(const CUDA_MEMCPY3D *desc, struct tow_soft_work *ret_work);
CUresult tow_soft_set_build(const CUDA_MEMSET_NODE_PARAMS *params, enum tow_soft_build how,
                            struct tow_soft_work *ret_work);
/* What there is to know of a kind of work. */
struct tow_soft_work_ops {
    /* Does it; unlocked, on any thread. Returns the error that the context then has. */
    CUresult (*run)(struct tow_soft_work *work, struct tow_soft_ctx *ctx);
    /* Frees what it holds. */
    void (*fini)(struct tow_soft_work *work);
    /* Of the bytes of another: gives it references of its own. -EINVAL if it is never copied. */
    int (*clone)(struct tow_soft_work *copy);
};
CUresult tow_soft_work_no_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx);
void tow_soft_work_no_fini(struct tow_soft_work *work);
int tow_soft_work_plain_clone(struct tow_soft_work *copy);
int tow_soft_work_no_clone(struct tow_soft_work *copy);
/* NULL if there is no memory. */
void *tow_soft_copy_bytes(const void *bytes, size_t size);
extern const struct tow_soft_work_ops tow_soft_copy_ops, tow_soft_set_ops;
extern const struct tow_soft_work_ops tow_soft_kernel_ops;
extern const struct tow_soft_work_ops tow_soft_free_ops;
extern const struct tow_soft_work_ops tow_soft_plan_ops, tow_soft_child_ops, tow_soft_branch_ops;

/* Frees what the work holds. */
void tow_soft_work_fini(struct tow_soft_work *work);
/* Copies it with references of its own; not what holds graphs (tow_soft_graph_copy does that). */
int tow_soft_work_clone(const struct tow_soft_work *work, struct tow_soft_work *ret_work);
/* One stream memory operation; false if it has to wait. Needs no lock. */
bool tow_soft_memop_try(const CUstreamBatchMemOpParams *op, const struct tow_soft_ctx *ctx,
                        CUresult *ret_result);
/* Does it; unlocked, on any thread. Returns the error that the context then has. */
CUresult tow_soft_work_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx);

/* ---- streams and events
 * -------------------------------------------------------------------------- */

struct tow_soft_mark;
/* What marks call of the board that they are on. */
struct tow_soft_board_ops {
    void (*finish)(const struct tow_soft_mark *mark);
    bool (*done)(const struct tow_soft_mark *mark); /* of a mark that another process made */
    void (*unref)(struct tow_soft_board *board);
};

/* A moment in a stream. */
struct tow_soft_mark {
    unsigned refs;
    bool done;
    bool timing;
    int64_t time_ns;
    struct tow_soft_ctx *ctx; /* borrowed */
    /* Of an event that other processes know: where they see it. */
    struct tow_soft_board *board; /* counted; NULL: nobody else knows it */
    const struct tow_soft_board_ops *board_ops;
    uint32_t slot, turn;
    bool foreign; /* recorded elsewhere: `done` only once tow_soft_mark_done has seen it */
};
struct tow_soft_mark *tow_soft_mark_create(struct tow_soft_ctx *ctx, bool timing);
struct tow_soft_mark *tow_soft_mark_ref(struct tow_soft_mark *mark);
void tow_soft_mark_unref(struct tow_soft_mark *mark);
/* Its moment has come, or never will. */
void tow_soft_mark_finish(struct tow_soft_mark *mark);
bool tow_soft_mark_done(struct tow_soft_mark *mark);
/* Sleeps until something changed that may have ended it; the lock is given up meanwhile. */
void tow_soft_mark_pause(const struct tow_soft_mark *mark);

/* Events between processes (ipc_event.c): a board is memory that they share. */
struct tow_soft_board *tow_soft_board_ref(struct tow_soft_board *board);
void tow_soft_board_unref(struct tow_soft_board *board);
/* Puts a mark that was just made on the board, where it becomes the event's last record. */
CUresult tow_soft_board_post(struct tow_soft_board *board, struct tow_soft_mark *mark);

struct tow_soft_stream;
struct tow_soft_capture;
/* What streams call of who captures them. */
struct tow_soft_capture_ops {
    /* Adds the work as a node and takes it over. */
    CUresult (*add)(struct tow_soft_stream *stream, struct tow_soft_work *work);
    CUresult (*alloc)(struct tow_soft_stream *stream, uint64_t size, int device,
                      CUdeviceptr *ret_ptr);
    void (*graph_free)(struct tow_soft_graph *graph);
};
struct tow_soft_capture {
    struct tow_soft_capture *next;
    const struct tow_soft_capture_ops *ops;
    uint64_t id;
    struct tow_soft_graph *graph; /* owned unless `to_graph` */
    bool to_graph;
    uint64_t origin; /* handle of the stream where it began */
    struct tow_soft_ctx *ctx;
    CUstreamCaptureMode mode;
    int thread; /* where it began */
    bool spoiled;
    uint64_t *left; /* owned: what streams that were destroyed captured last; is to be joined too */
    size_t left_count;
};
/* Of the calling thread. */
extern _Thread_local CUstreamCaptureMode tow_soft_capture_mode;
void tow_soft_capture_begin(struct tow_soft_capture *capture, struct tow_soft_stream *stream);
/* Ends and frees it; the graph stays with the caller when `keep_graph`. */
void tow_soft_capture_end(struct tow_soft_capture *capture, bool keep_graph);
/* A list of node handles, owned, becomes these; gets these as well. */
CUresult tow_soft_deps_set(uint64_t **deps, size_t *count, const uint64_t *from, size_t n);
CUresult tow_soft_deps_join(uint64_t **deps, size_t *dep_count, const uint64_t *more, size_t n);

struct tow_soft_event {
    struct tow_soft_object object;
    unsigned flags;
    struct tow_soft_mark *mark;   /* counted; NULL until recorded */
    struct tow_soft_board *board; /* counted; NULL unless other processes know it */
    /* Set while the last record was captured: what waits on the event joins that capture. */
    uint64_t capture_id;
    uint64_t *capture_deps; /* owned: node handles */
    size_t capture_dep_count;
};

struct tow_soft_op {
    struct tow_soft_op *next;
    struct tow_soft_stream *stream; /* borrowed */
    uint64_t seq;
    struct tow_soft_work work;
    unsigned step;  /* of MEMOPS: how many are done */
    bool *ret_done; /* borrowed from a caller that waits; set when the op is gone */
    /* While it runs: */
    uint64_t start;
    struct tow_soft_op *run_prev, *run_next;
};

struct tow_soft_stream {
    struct tow_soft_object object;
    unsigned flags;
    int priority;
    uint64_t id;
    bool legacy;
    bool destroyed; /* the handle is gone; freed once drained */
    int thread;     /* of a per-thread default stream: whose; else 0 */
    bool running;   /* the head runs on some thread */
    struct tow_soft_op *head, *tail;
    unsigned queued;                     /* how many these are */
    struct tow_soft_stream *prev, *next; /* in tow_soft.streams */
    struct tow_soft_capture *capture;    /* borrowed; NULL when not capturing */
    uint64_t *capture_deps; /* owned: node handles that the next captured node follows */
    size_t capture_dep_count;
    CUgraphEdgeData *capture_edges; /* owned: what the last capture query handed out */
    CUstreamAttrValue access_policy, sync_policy, mem_sync_map, mem_sync;
};

struct tow_soft_stream *tow_soft_stream_create(struct tow_soft_ctx *ctx, unsigned flags,
                                               int priority);
/* Handle 0, 1, 2 or a real one. */
CUresult tow_soft_stream_of(struct tow_soft_ctx *ctx, CUstream handle,
                            struct tow_soft_stream **ret_stream);
void tow_soft_stream_free(struct tow_soft_stream *stream);
void tow_soft_stream_end(struct tow_soft_object *object);

/* Queues the work, or adds it to the graph that the stream captures into; takes it over in any case
 * (*work is empty afterwards). Short work may be done before this returns: the lock is given up and
 * taken again meanwhile. */
CUresult tow_soft_submit(struct tow_soft_stream *stream, struct tow_soft_work *work);
/* Queues it and waits until it is done. Refused while capturing. */
CUresult tow_soft_submit_wait(struct tow_soft_stream *stream, struct tow_soft_work *work);
/* Waits for everything that is in the stream (by handle: it may vanish meanwhile) or context now.
 */
CUresult tow_soft_stream_wait(struct tow_soft_ctx *ctx, struct tow_soft_stream *stream);
CUresult tow_soft_ctx_wait(struct tow_soft_ctx *ctx);
/* With --soft-strict: the same, keeping others out. For calls in which NVIDIA's driver may wait. */
CUresult tow_soft_ctx_wait_strict(struct tow_soft_ctx *ctx);
CUresult tow_soft_mark_wait(struct tow_soft_mark *mark);
CUresult tow_soft_memops_check(const CUstreamBatchMemOpParams *ops, unsigned count);
bool tow_soft_stream_idle(const struct tow_soft_stream *stream);
/* Lets every op run that can; wakes or starts threads. */
void tow_soft_engine_kick(void);
/* Throws away what is queued for the context and waits until nothing of it runs. */
void tow_soft_engine_drain(struct tow_soft_ctx *ctx);
void tow_soft_engine_stop(void);
/* Reports a context's fault: first one wins. Takes the lock itself. */
void tow_soft_ctx_fail(struct tow_soft_ctx *ctx, CUresult error);

/* ---- contexts and devices
 * ------------------------------------------------------------------------ */

struct tow_soft_device {
    int ordinal;
    uint64_t total;
    _Atomic uint64_t *used; /* own_used, or borrowed from who watches; changed under the lock */
    _Atomic uint64_t own_used;
    CUuuid uuid;
    struct tow_soft_ctx *primary;  /* owned; its handle never changes */
    struct tow_soft_block *blocks; /* owned */
    struct tow_soft_pool *default_pool, *pool;
    uint64_t graph_used, graph_used_high;
    bool ruined; /* a kernel ended with an error: this process gets no new primary context */
};

/* The same machine gives the same UUIDs, another machine others. No byte is zero: programs (CuPy)
 * take them for a C string. */
void tow_soft_uuid_make(unsigned ordinal, CUuuid *ret_uuid);

struct tow_soft_ctx {
    struct tow_soft_object object;
    struct tow_soft_device *device; /* borrowed */
    unsigned flags;
    bool primary;
    bool alive; /* a primary context that nobody retained is not */
    unsigned retains;
    uint64_t id;
    unsigned version;
    CUresult error;                  /* sticky */
    atomic_bool stop;                /* ends running kernels; set for good when the context dies */
    atomic_uint visible;             /* devices whose memory its kernels may touch */
    struct tow_soft_object *objects; /* owned: everything that dies with it */
    struct tow_soft_alloc *allocs;   /* owned */
    struct tow_soft_stream *legacy;  /* owned */
    struct tow_soft_stream *meeting; /* owned: where events of the whole context meet, or NULL */
    struct tow_soft_mark *barrier;   /* counted: what work of new streams waits for, or NULL */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache;
    CUsharedconfig shared_config;
    unsigned running;         /* ops that run now */
    unsigned captures_global; /* active captures in global mode */
    /* Device malloc. `heap_lock` guards the three; taken without or inside tow_soft.lock. */
    pthread_mutex_t heap_lock;
    struct tow_soft_space heap;
    uint64_t heap_base, heap_size;
    /* Device printf, until the next synchronisation. `print_lock` guards the three. */
    pthread_mutex_t print_lock;
    char *print; /* owned */
    size_t print_size, print_capacity;
    unsigned attached;
    unsigned pins;             /* threads that use it without the lock: it is not freed meanwhile */
    bool dying;                /* its contents are being destroyed */
    struct tow_soft_ctx *next; /* in tow_soft.contexts */
};

/* With the lock held. NVIDIA's driver waits for the device in many calls (freeing memory, copies of
 * pageable memory, a full queue ...) and keeps every other call of the process out meanwhile. With
 * --soft-strict so do we, between these two: others that enter wait. Else they do nothing. */
void tow_soft_hold(void);
void tow_soft_let_go(void);

CUresult tow_soft_enter(struct tow_soft_ctx **ret_ctx);
/* Locked and initialised, whatever the current context. */
CUresult tow_soft_enter_any(void);
CUresult tow_soft_leave(CUresult result);
/* As tow_soft_leave, and brings out what kernels of the context printed. The handle may be stale.
 */
CUresult tow_soft_leave_printed(uint64_t ctx_handle, CUresult result);
/* The calling thread's contexts: the current one's handle, 0 if there is none; pop answers it, too.
 */
uint64_t tow_soft_stack_top(void);
bool tow_soft_stack_is_full(void);
bool tow_soft_stack_push(uint64_t handle); /* false: it is full */
uint64_t tow_soft_stack_pop(void);
void tow_soft_stack_replace(uint64_t handle);
/* Current context without checks; NULL if there is none or it is gone. */
struct tow_soft_ctx *tow_soft_current(void);
void tow_soft_ctx_destroy_contents(struct tow_soft_ctx *ctx);
int tow_soft_ctx_create(struct tow_soft_device *device, unsigned flags, bool primary,
                        struct tow_soft_ctx **ret_ctx);
void tow_soft_ctx_free(struct tow_soft_ctx *ctx);
/* Hands what kernels printed to the server; unlocked. */
void tow_soft_print_flush(struct tow_soft_ctx *ctx);
void tow_soft_print_add(struct tow_soft_ctx *ctx, const char *text, size_t length);
struct tow_soft_device *tow_soft_device_of(CUdevice device); /* NULL if there is none */

/* Device malloc and free; unlocked. */
uint64_t tow_soft_heap_alloc(struct tow_soft_ctx *ctx, uint64_t bytes);
int tow_soft_heap_free(struct tow_soft_ctx *ctx, uint64_t address);
void tow_soft_heap_fini(struct tow_soft_ctx *ctx);

struct tow_soft_limits_of_device {
    int threads_per_sm, blocks_per_sm, registers_per_sm, shared_per_sm, shared_optin;
};
void tow_soft_device_limits(struct tow_soft_limits_of_device *ret_limits);

/* ---- code ---------------------------------------------------------------------------------------
 */

/* Parsed code, shared by the libraries and modules made of it. */
struct tow_soft_code {
    unsigned refs;
    struct tow_ptx_module *ptx; /* owned */
    size_t kernel_count, variable_count;
    int ptx_target; /* of the text, e.g. 90 */
};
struct tow_soft_code *tow_soft_code_ref(struct tow_soft_code *code);
void tow_soft_code_unref(struct tow_soft_code *code);

/* The JIT options of a load, as far as they matter here. */
struct tow_soft_jit {
    char *info, *error;
    size_t info_size, error_size;
    unsigned index_info, index_error;   /* + 1; where the sizes written go */
    unsigned index_wall, index_threads; /* + 1; where time and threads of a block go */
    void **values;
};
/* CUDA_ERROR_INVALID_VALUE for options that do not fit together. */
CUresult tow_soft_jit_parse(unsigned count, const CUjit_option *options, void **values,
                            struct tow_soft_jit *ret_jit);
/* Writes what the options ask for: the time that compiling took so far, logs and their sizes, and
 * for how many threads it was. */
void tow_soft_jit_done(struct tow_soft_jit *jit, int64_t ns, const char *info, const char *error);

/* Whether NVIDIA's driver, and no text, would define a function of this name. */
bool tow_soft_is_device_runtime(const char *name);
/* The first function of the code that nobody defines, NVIDIA's driver neither; NULL if none. */
const struct tow_ptx_undefined *tow_soft_undefined(const struct tow_ptx_module *ptx);
/* Turns an image of any form into code; unlocked. */
CUresult tow_soft_code_load(const void *image, struct tow_soft_jit *jit,
                            struct tow_soft_code **ret_code);
/* Collects the PTX texts of an image (owned by the caller; see image.c). */
struct tow_soft_texts {
    struct tow_ptx_text *texts; /* owned, each text too */
    size_t count, capacity;
};
CUresult tow_soft_image_texts(const void *image, size_t known_size, struct tow_soft_texts *texts,
                              char *why, size_t why_size);
void tow_soft_texts_fini(struct tow_soft_texts *texts);
/* What a dry GPU takes for code: PTX that declares a cubin's kernels and variables (owned by the
 * caller; -EINVAL, -ENOMEM), and PTX text without the bodies of its functions, in place. */
int tow_soft_skeleton_of_cubin(const uint8_t *bytes, size_t size, char **ret_text);
void tow_soft_skeleton_of_text(char *text);
int tow_soft_texts_add(struct tow_soft_texts *texts, const void *bytes, size_t size,
                       const char *name);

struct tow_soft_attributes { /* what cuFuncSetAttribute and cuKernelSetAttribute may change */
    int max_dynamic_shared, carveout, non_portable_cluster, cluster_policy;
    int cluster[3];
    CUfunc_cache cache;
};

struct tow_soft_function {
    struct tow_soft_object object;
    struct tow_soft_module *module; /* borrowed: it owns us */
    const struct tow_ptx_kernel *kernel;
    struct tow_ptx_kernel_info info;
    struct tow_soft_attributes attributes;
    uint64_t of_kernel; /* handle of the CUkernel it stands for; 0 if none */
    bool refused;       /* a launch was, and the log says why */
};

struct tow_soft_module {
    struct tow_soft_object object;
    unsigned refs;
    struct tow_soft_code *code;           /* counted */
    struct tow_ptx_instance *instance;    /* owned */
    struct tow_soft_alloc **variables;    /* owned array; borrowed allocs */
    struct tow_soft_function **functions; /* owned, made on demand */
    struct tow_soft_library *library;     /* borrowed; NULL for a plain module */
    struct tow_soft_module *library_next; /* in library->modules */
};
struct tow_soft_module *tow_soft_module_ref(struct tow_soft_module *module);
void tow_soft_module_unref(struct tow_soft_module *module);

struct tow_soft_kernel {
    struct tow_soft_object object;
    struct tow_soft_library *library; /* borrowed: it owns us */
    size_t index;
    struct tow_ptx_kernel_info info;
    struct tow_soft_attributes attributes[TOW_SOFT_DEVICES_MAX];
};

struct tow_soft_library {
    struct tow_soft_object object;
    struct tow_soft_code *code;       /* counted */
    struct tow_soft_kernel **kernels; /* owned, made on demand */
    struct tow_soft_module *modules;  /* one per context that used it; owned by their contexts */
    struct tow_soft_library *next;
};

/* A CUfunction, or a CUkernel in disguise, for the context. */
CUresult tow_soft_function_of(struct tow_soft_ctx *ctx, CUfunction handle,
                              struct tow_soft_function **ret_function);
CUresult tow_soft_function_of_kernel(struct tow_soft_kernel *kernel, struct tow_soft_ctx *ctx,
                                     struct tow_soft_function **ret_function);
CUresult tow_soft_library_module(struct tow_soft_library *library, struct tow_soft_ctx *ctx,
                                 struct tow_soft_module **ret_module);
void tow_soft_module_end(struct tow_soft_object *object);
void tow_soft_library_destroy(struct tow_soft_library *library);

/* Checks and packs a launch; on success *ret_work holds it. */
CUresult tow_soft_launch_build(struct tow_soft_ctx *ctx, const CUlaunchConfig *config, CUfunction f,
                               void **params, void **extra, struct tow_soft_work *ret_work);
CUresult tow_soft_kernel_run(struct tow_soft_kernel_work *kernel, struct tow_soft_ctx *ctx);

/* ---- arrays, textures
 * ------------------------------------------------------------------------------ */

struct tow_soft_array {
    struct tow_soft_object object;
    unsigned refs;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    uint32_t texel;        /* bytes */
    uint32_t rows, slices; /* height and depth or layers, at least 1 */
    size_t row_pitch, slice_pitch;
    bool is_level;
    struct tow_soft_storage *storage; /* counted: a mipmapped array shares it with its levels */
    uint8_t *data;                    /* borrowed from storage */
};
struct tow_soft_array *tow_soft_array_ref(struct tow_soft_array *array);
void tow_soft_array_unref(struct tow_soft_array *array);
struct tow_soft_mipmap;
void tow_soft_array_end(struct tow_soft_object *object);
void tow_soft_mipmap_end(struct tow_soft_object *object);
const struct tow_ptx_texture *tow_soft_texture_get(uint64_t handle); /* unlocked, for kernels */
void tow_soft_texture_end(struct tow_soft_object *object);
void tow_soft_textures_fini(void);

/* ---- pools, virtual memory, graphs --------------------------------------------------------------
 */

struct tow_soft_pool *tow_soft_pool_create(int device, bool is_default);
uint64_t tow_soft_pool_handle(const struct tow_soft_pool *pool);
CUresult tow_soft_free_async_run(uint64_t address);
void tow_soft_memory_unref(struct tow_soft_memory *memory);
/* If an address is reserved, the extent of the whole reservation; else they stay as they are. */
void tow_soft_reservation_around(uint64_t address, uint64_t *base, uint64_t *size);
void tow_soft_vmm_fini(void);

void tow_soft_graph_free(struct tow_soft_graph *graph);
void tow_soft_exec_end(struct tow_soft_object *object);
/* What a kernel of the context sets a condition to; -1 if it has none of that handle. Takes the
 * lock. */
int tow_soft_condition_set(const struct tow_soft_ctx *ctx, uint64_t handle, uint32_t value);
/* The address of a graph's allocation. Pages are put behind it when it is first used. */
struct tow_soft_graph_va {
    unsigned refs;
    uint64_t base, size;
    int device;
    bool committed;
    struct tow_soft_graph_va *next; /* borrowed: in the list of all */
};
struct tow_soft_graph_va *tow_soft_graph_va_create(int device, uint64_t size);
struct tow_soft_graph_va *tow_soft_graph_va_ref(struct tow_soft_graph_va *va);
void tow_soft_graph_va_unref(struct tow_soft_graph_va *va);
CUresult tow_soft_graph_va_commit(struct tow_soft_graph_va *va);
/* Whether a graph's node may name this memory: there is some, or an allocation node will make it.
 * Locked. */
bool tow_soft_graph_range_ok(uint64_t address, uint64_t size, bool write);
/* cuStreamWaitEvent and cuEventRecord while a capture is on; *ret_done says whether they were
 * taken. */
CUresult tow_soft_capture_forbid_all(struct tow_soft_ctx *ctx);
CUresult tow_soft_capture_asked(struct tow_soft_event *event);
/* A launch into this stream is refused: what it captures is spoiled. */
void tow_soft_capture_spoil(struct tow_soft_stream *stream);
CUresult tow_soft_capture_wait(struct tow_soft_stream *stream, struct tow_soft_event *event,
                               bool external, bool *ret_done);
CUresult tow_soft_capture_record(struct tow_soft_stream *stream, struct tow_soft_event *event,
                                 bool external, bool *ret_done);
/* What a call that would synchronise the stream answers while it captures; CUDA_SUCCESS otherwise.
 */
CUresult tow_soft_capture_forbid(struct tow_soft_ctx *ctx, struct tow_soft_stream *stream);
/* For work on the legacy stream itself, which would wait for capturing streams. */
CUresult tow_soft_capture_forbid_implicit(struct tow_soft_ctx *ctx);
/* For calls that no capture in global mode allows (cuMemAlloc and the like). */
CUresult tow_soft_capture_unsafe(struct tow_soft_ctx *ctx);
void tow_soft_capture_graph_gone(struct tow_soft_graph *graph);
void tow_soft_capture_stream_gone(struct tow_soft_stream *stream);
void tow_soft_captures_drop(struct tow_soft_ctx *ctx);
/* Graphs outlive contexts, but their nodes let go of what dies with this one. */
void tow_soft_graphs_forget(struct tow_soft_ctx *ctx);
void tow_soft_graphs_fini(void);
void tow_soft_contexts_destroy_all(void);
void tow_soft_libraries_fini(void);
void tow_soft_pools_fini(void);
void tow_soft_link_end(struct tow_soft_object *object);
void tow_soft_event_end(struct tow_soft_object *object);
/* Records it behind what the stream has; a capture may take it. */
CUresult tow_soft_event_record(struct tow_soft_event *event, struct tow_soft_stream *stream);
/* Behind all work of the context; and: all later work of the context waits for the event. */
CUresult tow_soft_event_record_all(CUevent handle, struct tow_soft_ctx *ctx);
CUresult tow_soft_event_wait_all(CUevent handle, struct tow_soft_ctx *ctx);

/* ---- everything ---------------------------------------------------------------------------------
 */

/* What a room calls of one above it; filled in entry/hooks.c. */
struct tow_soft_hooks {
    /* Pages that begin at `base` are given back. */
    void (*pages_gone)(uint64_t base);
    /* The context's streams are gone, its objects not yet. */
    void (*ctx_ends)(struct tow_soft_ctx *ctx);
    /* A kernel sets a graph's condition; takes the lock. -1 if the context has none of that handle.
     */
    int (*condition_set)(const struct tow_soft_ctx *ctx, uint64_t handle, uint32_t value);
    /* The kinds of work that engine/work.c does not know itself. */
    const struct tow_soft_work_ops *work[TOW_SOFT_WORK_KINDS];
    /* Destroys an object that dies with its context. */
    void (*ends[TOW_SOFT_KINDS])(struct tow_soft_object *object);
};
extern const struct tow_soft_hooks tow_soft_hooks;

struct tow_soft {
    pthread_mutex_t lock;
    const struct tow_soft_hooks *hooks; /* set once, when opened first */
    pthread_cond_t changed;             /* something finished: waiters look again */
    pthread_cond_t work;                /* something can run: idle runners look */
    bool open;
    atomic_bool initialised;
    int capability; /* 121 = 12.1 */
    bool dry;       /* kernels do nothing, and code may be of any kind */
    unsigned threads, sm_count;
    unsigned device_count;
    struct tow_soft_device devices[TOW_SOFT_DEVICES_MAX];
    struct tow_soft_ctx *contexts;   /* owned: those of cuCtxCreate */
    struct tow_soft_stream *streams; /* all of them */
    struct tow_soft_op *running;     /* ops that run now, newest first */
    uint64_t seq;                    /* counts ops and starts */
    uint64_t next_id;                /* contexts, streams, allocations, captures */
    unsigned runners, runners_idle, runners_starting;
    unsigned tokens; /* wake-ups that idle runners have not taken yet; never more than are idle */
    bool stopping, polls; /* polls: a stream waits for a value in memory */
    bool strict, held;    /* see tow_soft_hold */
    struct tow_soft_retired *retired;
    uint64_t arena_base, arena_size;
    /* Set by the server before the first launch. */
    void (*print)(void *user, const char *text, size_t length);
    void (*print_error)(void *user, const char *text, size_t length);
    void *print_user;
};
extern struct tow_soft tow_soft;

void tow_soft_fill_core(struct tow_driver *driver);
void tow_soft_fill_device(struct tow_driver *driver);
void tow_soft_fill_context(struct tow_driver *driver);
void tow_soft_fill_memory(struct tow_driver *driver);
void tow_soft_fill_copy(struct tow_driver *driver);
void tow_soft_fill_stream(struct tow_driver *driver);
void tow_soft_fill_event(struct tow_driver *driver);
void tow_soft_fill_module(struct tow_driver *driver);
void tow_soft_fill_kernel(struct tow_driver *driver);
void tow_soft_fill_link(struct tow_driver *driver);
void tow_soft_fill_launch(struct tow_driver *driver);
void tow_soft_fill_pool(struct tow_driver *driver);
void tow_soft_fill_vmm(struct tow_driver *driver);
void tow_soft_fill_array(struct tow_driver *driver);
void tow_soft_fill_texture(struct tow_driver *driver);
void tow_soft_fill_graph(struct tow_driver *driver);
void tow_soft_fill_graph_condition(struct tow_driver *driver);
void tow_soft_fill_graph_exec(struct tow_driver *driver);
void tow_soft_fill_graph_nodes(struct tow_driver *driver);
void tow_soft_fill_capture(struct tow_driver *driver);
/* After contexts and streams, which it uses. */
void tow_soft_fill_green(struct tow_driver *driver);
void tow_soft_greens_free(void);
void tow_soft_fill_ipc(struct tow_driver *driver);
void tow_soft_fill_ipc_event(struct tow_driver *driver);
/* Sees to it that event->mark is the last record, whichever process made it. */
CUresult tow_soft_event_refresh(struct tow_soft_event *event);
/* A record that is about to be queued becomes the event's last. */
CUresult tow_soft_event_renew(struct tow_soft_event *event, struct tow_soft_mark *mark);
/* Pages that begin at `base` are given back: they are shared no more. */
void tow_soft_ipc_forget(uint64_t base);
void tow_soft_ipc_fini(void);

static inline uint64_t tow_soft_round_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) & ~(align - 1);
}
/* Handles travel as pointers. */
#define TOW_SOFT_HANDLE(pointer) ((uint64_t)(uintptr_t)(pointer))
#define TOW_SOFT_POINTER(handle) ((void *)(uintptr_t)(handle))

#endif
