/* SPDX-License-Identifier: Apache-2.0 */
/* Maps, compares and updates the worker's copies of host memory. */
#include "server/copy/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/tree.h"
#include "gen/memory_server.h"
#include "gen/copy.h"
#include "gen/stream.h"
#include "server/copy/carry.h"
#include "server/copy/share.h"
#include "server/session/session.h"
#include "wire/cursor.h"
#include "wire/control.h"
#include "wire/copy.h"
#include "wire/diff.h"

enum {
    CHUNK = 256 << 10,   /* changes sent in one frame */
    MIRRORS_MAX = 65536, /* pieces of one session */
};

struct mirror {
    struct tow_node node;               /* by its base; first: a mirror is its node */
    struct tows_hold_ending retirement; /* hold.c's while it is deferred */
    uint64_t base, size;
    uint8_t *known;   /* owned; NULL in the program's own process, or if the client fetches */
    bool mapped;      /* we made the mapping */
    uint64_t claimed; /* bytes of the session's, see tows_session_claim */
    bool managed;     /* the driver's; else registered with it */
    uint32_t context; /* registered: where */
    bool fetched;     /* the client asks for what it looks at (FETCH): nothing is sent unasked */
    bool ending;      /* registered: no command finds it any more, a thread is about to drop it */
    uint64_t serial;  /* no other of the session ever has it */
    struct mirror *newer, *older; /* of those that are compared; both NULL for others */
};

/* Managed memory that is there: no other is mirrored as such, and with it go its mirrors. */
struct managed {
    uint64_t base, size;
    uint64_t owner;   /* id of the module or library that it is a variable of; 0: allocated */
    uint32_t context; /* in which; 0: device 0's primary context, which the session keeps */
    struct managed *next;
};

struct mirror_state {
    /* Guards the six below. Never held while sending: who reads the client's side line takes it,
     * and the client may not read its own line before that has given it the memory it looks at. */
    struct tow_mutex lock;
    struct tow_tree mirrors; /* no two of them have a byte in common */
    struct mirror *newest;   /* of those that are compared */
    unsigned count;
    uint64_t serials;
    struct managed *managed;    /* owned; guarded as well */
    int probe[2];               /* a pipe, see is_readable */
    struct tow_mutex pull_lock; /* orders pulls, and guards: */
    uint8_t *chunk;             /* owned: where changes are gathered */
    uint8_t *fetched;           /* owned, the side thread's: what is on its way to the client */
};

static void mirror_drop(struct tows_session *session, struct mirror *m)
{
    if (m->mapped) {
        munmap((void *)(uintptr_t)m->base, m->size);
    }
    free(m->known);
    tows_session_unclaim(session, m->claimed);
    free(m);
}

static void mirrors_fini(struct tows_session *session, void *state)
{
    struct mirror_state *mirrors = state;
    while (mirrors->mirrors.root != NULL) {
        struct mirror *m = (struct mirror *)mirrors->mirrors.root;
        tow_tree_remove(&mirrors->mirrors, &m->node);
        if (!m->managed) {
            tow_drive(session->driver, cuMemHostUnregister)((void *)(uintptr_t)m->base);
        }
        mirror_drop(session, m);
    }
    while (mirrors->managed != NULL) {
        struct managed *next = mirrors->managed->next;
        free(mirrors->managed);
        mirrors->managed = next;
    }
    tow_mutex_fini(&mirrors->lock);
    tow_mutex_fini(&mirrors->pull_lock);
    if (mirrors->probe[0] >= 0) {
        close(mirrors->probe[0]);
        close(mirrors->probe[1]);
    }
    free(mirrors->chunk);
    free(mirrors->fetched);
}

static void mirrors_init(struct tows_session *session, void *opaque)
{
    struct mirror_state *state = opaque;
    tow_mutex_init(&state->lock, SERVER_MIRRORS);
    tow_mutex_init(&state->pull_lock, SERVER_MIRROR_PULL);
    state->probe[0] = state->probe[1] = -1;
}

static struct mirror_state *state_of(struct tows_session *session)
{
    static const struct tows_family_ops ops = {TOW_SESSION_MEMORY, sizeof(struct mirror_state),
                                               mirrors_init, mirrors_fini};
    return tows_session_make_state(session, &ops);
}

/* With the lock held: the mirror that holds the address. */
static struct mirror *mirror_find(const struct mirror_state *state, uint64_t address)
{
    struct mirror *m = (struct mirror *)tow_tree_floor(&state->mirrors, address);
    return m != NULL && address - m->base < m->size ? m : NULL;
}

/* With the lock held. */
static void mirror_unlist(struct mirror_state *state, struct mirror *m)
{
    tow_tree_remove(&state->mirrors, &m->node);
    state->count--;
    if (m->newer != NULL) {
        m->newer->older = m->older;
    } else if (m == state->newest) {
        state->newest = m->older;
    }
    if (m->older != NULL) {
        m->older->newer = m->newer;
    }
}

/* With the lock held: what is in the way of a new one. Managed memory that was freed without a word
 * of the mirror makes way, since the driver gave its addresses out again. */
static bool make_way(struct tows_session *session, struct mirror_state *state, uint64_t base,
                     uint64_t size)
{
    struct mirror *m = (struct mirror *)tow_tree_floor(&state->mirrors, base + size - 1);
    while (m != NULL && m->base + m->size > base) {
        if (!m->managed) {
            return false;
        }
        mirror_unlist(state, m);
        mirror_drop(session, m);
        m = (struct mirror *)tow_tree_floor(&state->mirrors, base + size - 1);
    }
    return true;
}

/* With the lock held. */
static bool is_managed(const struct mirror_state *state, uint64_t base, uint64_t size)
{
    const struct managed *m = state->managed;
    while (m != NULL && (base - m->base >= m->size || size > m->size - (base - m->base))) {
        m = m->next;
    }
    return m != NULL;
}

static int mirror_enlist(struct tows_session *session, struct mirror made)
{
    struct mirror_state *state = state_of(session);
    struct mirror *m = malloc(sizeof *m);
    bool known = !session->options->in_process && !made.fetched;
    /* What is mapped was claimed by who did. */
    made.claimed = known ? made.size : 0;
    if (state == NULL || m == NULL || !tows_session_claim(session, made.claimed)) {
        free(m);
        return -ENOMEM;
    }
    if (known) {
        made.known = calloc(1, made.size);
        if (made.known == NULL) {
            tows_session_unclaim(session, made.claimed);
            free(m);
            return -ENOMEM;
        }
    }
    made.claimed += made.mapped ? made.size : 0;
    *m = made;
    tow_mutex_lock(&state->lock);
    bool room = state->count < MIRRORS_MAX &&
                (!m->managed || is_managed(state, m->base, m->size)) &&
                make_way(session, state, m->base, m->size) &&
                (state->probe[0] >= 0 || pipe2(state->probe, O_CLOEXEC | O_NONBLOCK) == 0);
    if (room) {
        m->serial = ++state->serials;
        m->node.key = m->base;
        tow_tree_insert(&state->mirrors, &m->node);
        state->count++;
        if (m->known != NULL) {
            m->older = state->newest;
            if (m->older != NULL) {
                m->older->newer = m;
            }
            state->newest = m;
        }
    }
    tow_mutex_unlock(&state->lock);
    if (!room) {
        tows_session_unclaim(session, known ? m->size : 0);
        free(m->known);
        free(m);
    }
    return room ? 0 : -ENOMEM;
}

static bool is_blank(const uint8_t *bytes, uint64_t size)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* ---- managed memory that comes and goes ---- */

CUresult tows_mirror_add_managed(struct tows_session *session, uint64_t base, uint64_t size,
                                 uint64_t owner, uint32_t context)
{
    struct mirror_state *state = state_of(session);
    struct managed *made = malloc(sizeof *made);
    if (state == NULL || made == NULL) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tow_mutex_lock(&state->lock);
    if (is_managed(state, base, size)) {
        free(made); /* a variable that is asked for again */
    } else {
        *made = (struct managed){base, size, owner, context, state->managed};
        state->managed = made;
    }
    tow_mutex_unlock(&state->lock);
    return CUDA_SUCCESS;
}

bool tows_mirror_has_managed(struct tows_session *session)
{
    struct mirror_state *state = tows_session_state(session, TOW_SESSION_MEMORY);
    if (state == NULL) {
        return false;
    }
    tow_mutex_lock(&state->lock);
    bool any = state->managed != NULL;
    tow_mutex_unlock(&state->lock);
    return any;
}

/* With the lock held: no command finds mirrors of [base, base + size) any more, and nobody sends or
 * takes changes of them. */
static void unlist_range(struct tows_session *session, struct mirror_state *state, uint64_t base,
                         uint64_t size)
{
    struct mirror *m = (struct mirror *)tow_tree_floor(&state->mirrors, base + size - 1);
    while (m != NULL && m->base + m->size > base) {
        uint64_t below = m->base;
        if (m->managed) {
            mirror_unlist(state, m);
            mirror_drop(session, m);
        }
        m = below > base ? (struct mirror *)tow_tree_floor(&state->mirrors, below - 1) : NULL;
    }
}

void tows_mirror_forget_managed(struct tows_session *session, const struct tows_mirror_gone *gone)
{
    struct mirror_state *state = tows_session_state(session, TOW_SESSION_MEMORY);
    bool any = false;
    if (state == NULL) {
        return;
    }
    tow_mutex_lock(&state->lock);
    /* An heir whose own end has begun may have been here already. */
    uint32_t heir =
        tows_handles_at(&session->handles, TOW_H_CONTEXT, gone->heir) != NULL ? gone->heir : 0;
    for (struct managed **at = &state->managed; *at != NULL;) {
        struct managed *m = *at;
        if (heir != 0) {
            m->context = m->context == gone->context ? heir : m->context;
            at = &m->next;
        } else if (gone->owner != 0 ? m->owner == gone->owner
                   : gone->address != 0
                       ? m->owner == 0 && m->base == gone->address
                       : m->context == gone->context || (gone->and_none && m->context == 0)) {
            unlist_range(session, state, m->base, m->size);
            *at = m->next;
            free(m);
            any = true;
        } else {
            at = &m->next;
        }
    }
    tow_mutex_unlock(&state->lock);
    /* Those who found it before are through with it. */
    while (any && !tows_hold_wait(session) && tows_session_goes_on(session)) {
    }
}

void tows_mirror_freed(struct tows_session *session, CUdeviceptr address)
{
    if (address != 0) {
        tows_mirror_forget_managed(session, &(struct tows_mirror_gone){.address = address});
    }
}

/* A __managed__ variable: its contents go to the client before the reply, or are fetched. */
static void mirror_managed(struct tows_serve *call, uint64_t base, uint64_t size, bool fetched)
{
    CUdeviceptr start = 0;
    size_t length = 0;
    unsigned is_managed = 0;
    if (call->frame.context == 0) {
        call->status = tows_session_enter_primary(call->session);
        if (call->status != CUDA_SUCCESS) {
            return;
        }
    }
    call->status = tow_drive(call->driver, cuPointerGetAttribute)(
        &is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, base);
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuMemGetAddressRange_v2)(&start, &length, base);
    }
    if (call->status == CUDA_SUCCESS &&
        (!is_managed || size == 0 || size > length - (base - start))) {
        call->status = CUDA_ERROR_INVALID_VALUE;
    }
    tows_hold_enter(call); /* it stays while it is looked at below */
    if (call->status == CUDA_SUCCESS &&
        mirror_enlist(
            call->session,
            (struct mirror){.base = base, .size = size, .managed = true, .fetched = fetched}) < 0) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (call->status == CUDA_SUCCESS && fetched) {
        tow_enc_u32(&call->out, is_blank((const uint8_t *)(uintptr_t)base, size));
    } else if (call->status == CUDA_SUCCESS) {
        tows_mirror_pull(call->session);
    }
}

/* Host memory of the client at [base, base + size) becomes reachable at the same address. */
void tows_serve_cuMemHostGetDevicePointer_v2(struct tows_serve *call)
{
    uint64_t base = tow_dec_u64(&call->in);
    uint64_t size = tow_dec_u64(&call->in);
    uint32_t kind = tow_dec_u32(&call->in); /* 0: host memory; 1: managed; 2: managed and fetched */
    if (!tows_serve_ready(call)) {
        return;
    }
    if (kind != 0) {
        mirror_managed(call, base, size, kind == 2 && !call->session->options->in_process);
        return;
    }
    if (base % 4096 != 0 || size % 4096 != 0 || size == 0 || size > UINT64_C(1) << 46) {
        call->status = CUDA_ERROR_INVALID_VALUE;
        return;
    }
    void *at = (void *)(uintptr_t)base;
    bool map = !call->session->options->in_process;
    if (map && !tows_session_may_place(call->session)) {
        call->status = CUDA_ERROR_NOT_SUPPORTED;
        return;
    }
    if (map && !tows_session_claim(call->session, size)) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    if (map) {
        at = mmap(at, size, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == MAP_FAILED || (uint64_t)(uintptr_t)at != base) {
            if (at != MAP_FAILED) {
                munmap(at, size);
            }
            tows_session_unclaim(call->session, size);
            tows_session_place_is_taken(call->session, base);
            call->status = CUDA_ERROR_NOT_SUPPORTED;
            return;
        }
    }
    call->status = tow_drive(call->driver, cuMemHostRegister_v2)(
        at, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (call->status == CUDA_SUCCESS &&
        mirror_enlist(call->session, (struct mirror){.base = base,
                                                     .size = size,
                                                     .mapped = map,
                                                     .context = call->frame.context}) < 0) {
        tow_drive(call->driver, cuMemHostUnregister)(at);
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (call->status != CUDA_SUCCESS && map) {
        munmap(at, size);
        tows_session_unclaim(call->session, size);
    }
}

/* Registered memory that no command uses any more. */
static void mirror_retire(struct tows_session *session, struct mirror *m)
{
    struct mirror_state *state = state_of(session);
    /* Waits for work that may still use it, and what that wrote goes to the program. Waiting for
     * the context would end captures. */
    tow_drive(session->driver, cuMemHostUnregister)((void *)(uintptr_t)m->base);
    tows_mirror_pull(session);
    tow_mutex_lock(&state->lock);
    mirror_unlist(state, m);
    tow_mutex_unlock(&state->lock);
    mirror_drop(session, m);
}

static void retire_later(struct tows_session *session, struct tows_hold_ending *ending)
{
    struct mirror *m = (struct mirror *)((uint8_t *)ending - offsetof(struct mirror, retirement));
    tows_session_enter(session, m->context);
    mirror_retire(session, m);
}

/* The end of a piece, host memory or managed. */
void tows_serve_cuMemHostUnregister(struct tows_serve *call)
{
    uint64_t base = tow_dec_u64(&call->in);
    tow_dec_u64(&call->in);
    if (!tows_serve_ready(call)) {
        return;
    }
    struct tows_session *session = call->session;
    struct mirror_state *state = state_of(session);
    struct mirror *found = NULL;
    bool managed = false;
    if (state != NULL) {
        tow_mutex_lock(&state->lock);
        found = mirror_find(state, base);
        found = found != NULL && found->base == base && !found->ending ? found : NULL;
        managed = found != NULL && found->managed;
        if (managed) {
            /* The memory is the driver's and stays: whoever frees it waits for those who found it.
             */
            mirror_unlist(state, found);
            mirror_drop(session, found);
        } else if (found != NULL) {
            found->ending = true;
        }
        tow_mutex_unlock(&state->lock);
    }
    if (managed) {
        return;
    }
    if (found == NULL) {
        /* Who does not wait for it means managed memory, which may have gone first. */
        call->status = call->frame.seq != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    } else if (tows_hold_wait(session)) {
        if (call->frame.context == 0) {
            /* The program's current context is another server's, or it has none. */
            tows_session_enter(session, found->context);
        }
        mirror_retire(session, found);
    } else {
        found->retirement.end = retire_later;
        tows_hold_defer(session, &found->retirement);
    }
}

/* What is compared begins with zeros on both sides. In a stream of its own: waiting for any other,
 * or for the context, would end captures. */
static CUresult mirror_clear(const struct tow_driver *driver, CUdeviceptr address, uint64_t size)
{
    CUstream stream = NULL;
    CUresult status = tow_drive(driver, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
    if (status == CUDA_SUCCESS) {
        status = tow_drive(driver, cuMemsetD8Async)(address, 0, size, stream);
        CUresult done = tow_drive(driver, cuStreamSynchronize)(stream);
        status = status == CUDA_SUCCESS ? done : status;
        tow_drive(driver, cuStreamDestroy_v2)(stream);
    }
    return status;
}

void tows_serve_cuMemAllocManaged(struct tows_serve *call)
{
    uint64_t size = tow_dec_u64(&call->in);
    uint32_t flags = tow_dec_u32(&call->in);
    uint32_t how = tow_dec_u32(&call->in);
    bool fetched = how != TOW_MANAGED_SENT && !call->session->options->in_process;
    CUdeviceptr address = 0;
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuMemAllocManaged)(&address, size, flags);
    if (call->status == CUDA_SUCCESS && !call->session->options->in_process &&
        how != TOW_MANAGED_FETCHED) {
        call->status = mirror_clear(call->driver, address, size);
        if (call->status != CUDA_SUCCESS) {
            tow_drive(call->driver, cuMemFree_v2)(address);
        }
    }
    if (call->status == CUDA_SUCCESS &&
        (tows_mirror_add_managed(call->session, address, size, 0, call->frame.context) !=
             CUDA_SUCCESS ||
         mirror_enlist(
             call->session,
             (struct mirror){.base = address, .size = size, .managed = true, .fetched = fetched}) <
             0)) {
        tows_mirror_freed(call->session, address);
        tow_drive(call->driver, cuMemFree_v2)(address);
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    tow_enc_u64(&call->out, address);
}

/* With the lock held: whether a byte can be read, as the system sees it. */
static bool is_readable(const struct mirror_state *state, uint64_t address)
{
    uint8_t byte;
    ssize_t n;
    do {
        n = write(state->probe[1], (const void *)(uintptr_t)address, 1);
    } while (n < 0 && errno == EINTR);
    if (n != 1) {
        return false;
    }
    do {
        n = read(state->probe[0], &byte, 1);
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

/* With the lock held. Managed memory is the driver's: it may have been freed, also with its context
 * or its module, without a word of the mirror. Other memory is ours. The driver is not asked: a
 * host function's turn and end come by here, and it may wait for them. */
static bool is_there(const struct mirror_state *state, const struct mirror *m)
{
    return !m->managed ||
           (is_readable(state, m->base) && is_readable(state, m->base + m->size - 1));
}

/* With both locks held: gathers changes, from byte *at of the newest mirror with a serial of at
 * most *after on; both are moved on. 0 if there are no more. */
static size_t next_changes(struct mirror_state *state, uint64_t *after, size_t *at)
{
    for (struct mirror *m = state->newest; m != NULL; m = m->older) {
        if (m->serial > *after || !is_there(state, m)) {
            continue;
        }
        struct tow_diff diff = {.known = m->known,
                                .now = (const uint8_t *)(uintptr_t)m->base,
                                .address = m->base,
                                .size = m->size,
                                .at = m->serial == *after ? *at : 0};
        size_t n = tow_diff_next(&diff, state->chunk, CHUNK);
        if (n > 0) {
            *after = m->serial;
            *at = diff.at;
            return n;
        }
    }
    return 0;
}

void tows_mirror_pull(struct tows_session *session)
{
    struct mirror_state *state = tows_session_state(session, TOW_SESSION_MEMORY);
    if (state == NULL || session->options->in_process) {
        return;
    }
    tow_mutex_lock(&state->pull_lock);
    if (state->chunk == NULL) {
        state->chunk = malloc(CHUNK);
    }
    uint64_t after = UINT64_MAX; /* new ones come in front: the list goes from high to low */
    size_t at = 0, n = 0;
    int error = state->chunk != NULL ? 0 : -ENOMEM;
    do {
        tow_mutex_lock(&state->lock);
        n = error == 0 ? next_changes(state, &after, &at) : 0;
        tow_mutex_unlock(&state->lock);
        if (n > 0) {
            error = tows_session_send(session, TOW_CONTROL_MIRROR, 0, 0, 0, state->chunk, n);
        }
    } while (n > 0 && error == 0);
    tow_mutex_unlock(&state->pull_lock);
}

/* With the lock held: whether [address, address + size) is in one mirror, and there. Nothing else
 * of it is looked at: that would bring it here from the GPU. */
static bool can_fetch(const struct mirror_state *state, uint64_t address, uint64_t size)
{
    const struct mirror *m = mirror_find(state, address);
    m = m != NULL && size <= m->size - (address - m->base) ? m : NULL;
    return m != NULL && is_readable(state, address) && is_readable(state, address + size - 1);
}

static int send_fetched(struct tows_session *session, const uint8_t *bytes, struct tow_data data)
{
    static const uint8_t zeros[8];
    uint8_t head[TOW_DATA_HEAD];
    uint32_t pad = 0;
    int error = tow_data_head_encode(&data, 0, 0, head, &pad);
    struct iovec parts[3] = {{head, sizeof head},
                             {(void *)(uintptr_t)bytes, data.size},
                             {(void *)(uintptr_t)zeros, pad}};
    return error == 0 ? tow_line_send_direct(session->side.line, parts, 3) : error;
}

/* Whether [address, address + size) is managed memory that is fetched. Who is inside the hold has
 * it until it leaves, and the driver may be asked for it. */
static bool may_carry(struct mirror_state *state, uint64_t address, uint64_t size)
{
    tow_mutex_lock(&state->lock);
    const struct mirror *m = mirror_find(state, address);
    bool may = m != NULL && m->managed && m->fetched && size <= m->size - (address - m->base);
    tow_mutex_unlock(&state->lock);
    return may;
}

/* Has the driver bring what is asked for, if it may. */
static bool fetch_carried(struct tows_session *session, struct mirror_state *state,
                          uint32_t context, const struct tow_fetch *fetch,
                          struct tows_carry *ret_carry)
{
    unsigned held = tows_hold_enter_session(session);
    bool brought = may_carry(state, fetch->address, fetch->size) &&
                   tows_carry_begin(ret_carry, session, context, fetch->size);
    if (brought) {
        CUresult status = tows_carry_down(ret_carry, fetch->address, fetch->size);
        CUresult waited = tows_carry_wait(ret_carry);
        brought = status == CUDA_SUCCESS && waited == CUDA_SUCCESS;
        if (!brought) {
            tows_carry_end(ret_carry);
        }
    }
    tows_hold_leave_session(session, held);
    return brought;
}

/* Sends what the CPU finds. */
static int fetch_copied(struct tows_session *session, struct mirror_state *state,
                        const struct tow_fetch *fetch)
{
    int error = 0;
    if (state->fetched == NULL && (state->fetched = malloc(TOW_DATA_MAX)) == NULL) {
        error = -ENOMEM;
    }
    for (uint64_t done = 0; error == 0 && done < fetch->size;) {
        uint64_t left = fetch->size - done;
        uint32_t n = left < TOW_DATA_MAX ? (uint32_t)left : TOW_DATA_MAX;
        tow_mutex_lock(&state->lock);
        bool found = can_fetch(state, fetch->address + done, n);
        if (found) {
            memcpy(state->fetched, (const void *)(uintptr_t)(fetch->address + done), n);
        }
        tow_mutex_unlock(&state->lock);
        struct tow_data data = {.flags = !found      ? TOW_DATA_FAILED
                                         : n == left ? TOW_DATA_LAST
                                                     : 0,
                                .offset = done,
                                .size = found ? n : 0};
        error = send_fetched(session, state->fetched, data);
        done = found ? done + n : fetch->size;
    }
    return error;
}

int tows_mirror_fetch(struct tows_session *session, const uint8_t *at,
                      const struct tow_frame *frame)
{
    struct tow_fetch fetch;
    struct tows_carry carry;
    struct mirror_state *state = tows_session_state(session, TOW_SESSION_MEMORY);
    int error = state == NULL ? -EPROTO : tow_fetch_decode(at, frame, &fetch);
    if (error < 0) {
        return error;
    }
    if (frame->context == 0 || !fetch_carried(session, state, frame->context, &fetch, &carry)) {
        return fetch_copied(session, state, &fetch);
    }
    for (uint64_t done = 0; error == 0 && done < fetch.size;) {
        uint64_t left = fetch.size - done;
        uint32_t n = left < TOW_DATA_MAX ? (uint32_t)left : TOW_DATA_MAX;
        struct tow_data data = {.flags = n == left ? TOW_DATA_LAST : 0, .offset = done, .size = n};
        error = send_fetched(session, carry.bytes + done, data);
        done += n;
    }
    tows_carry_end(&carry);
    return error;
}

/* How many bytes from the address on lie in one mirror, which stays until the call was carried
 * out. */
static uint64_t mirrored_from(struct tows_serve *call, uint64_t address)
{
    struct mirror_state *state = tows_session_state(call->session, TOW_SESSION_MEMORY);
    uint64_t left = 0;
    if (state != NULL) {
        tows_hold_enter(call);
        tow_mutex_lock(&state->lock);
        const struct mirror *m = mirror_find(state, address);
        left = m != NULL && !m->ending ? m->size - (address - m->base) : 0;
        tow_mutex_unlock(&state->lock);
    }
    return left;
}

bool tows_mirror_reaches(struct tows_serve *call, uint64_t address, uint64_t size)
{
    if (call->session->options->in_process) {
        return true; /* the program's own process */
    }
    uint64_t here;
    do {
        here = mirrored_from(call, address);
        here = here != 0 ? here : tows_share_from(call, address);
        if (here >= size && here != 0) {
            return true;
        }
        address += here;
        size -= here;
    } while (here != 0);
    return false;
}

bool tows_mirror_reaches_operand(struct tows_serve *call, const struct tow_copy_operand *operand,
                                 const struct tow_copy_3d *copy_3d)
{
    /* From the address to the end of the last row; no pitch is less than a row. */
    uint64_t row, pitch, rows, planes, bytes, slice;
    if (__builtin_add_overflow(operand->x, copy_3d->width, &row) ||
        __builtin_add_overflow(operand->y, copy_3d->rows, &rows) ||
        __builtin_add_overflow(operand->z, copy_3d->planes, &planes) || rows == 0 || planes == 0) {
        return false;
    }
    pitch = operand->pitch > row ? operand->pitch : row;
    slice = operand->height > rows ? operand->height : rows;
    return !__builtin_mul_overflow(pitch, slice, &slice) &&
           !__builtin_mul_overflow(slice, planes - 1, &slice) &&
           !__builtin_mul_overflow(pitch, rows - 1, &bytes) &&
           !__builtin_add_overflow(bytes, slice, &bytes) &&
           !__builtin_add_overflow(bytes, row, &bytes) &&
           tows_mirror_reaches(call, operand->address, bytes);
}

/* Where the records of one frame go. */
struct taking {
    const struct mirror_state *state;
    const struct mirror *there; /* the one that was looked for last, and is */
};

static bool find_bytes(void *user, uint64_t address, size_t size, uint8_t **ret_now,
                       uint8_t **ret_known)
{
    struct taking *taking = user;
    const struct mirror *m = taking->there;
    if (m == NULL || address - m->base >= m->size) {
        m = mirror_find(taking->state, address);
        if (m == NULL || (m->known == NULL && !m->fetched) || !is_there(taking->state, m)) {
            return false;
        }
        taking->there = m;
    }
    if (size > m->size - (address - m->base)) {
        return false;
    }
    *ret_now = (uint8_t *)(uintptr_t)address;
    *ret_known = m->known != NULL ? m->known + (address - m->base) : NULL;
    return true;
}

/* Has the driver write what it can, if it may; the CPU the rest. False: nothing was written. */
static bool take_carried(struct tows_session *session, struct taking *taking, uint32_t context,
                         const uint8_t *records, size_t size, int *ret_error)
{
    struct mirror_state *state = tows_session_state(session, TOW_SESSION_MEMORY);
    struct tows_carry carry;
    struct tow_diff_record record;
    struct tow_dec dec = tow_dec_init(records, size);
    CUresult status = CUDA_SUCCESS;
    int more;
    if (!tows_carry_begin(&carry, session, context, size)) {
        return false;
    }
    unsigned held = tows_hold_enter_session(session);
    memcpy(carry.bytes, records, size);
    while ((more = tow_diff_record_next(&dec, &record)) > 0 && status == CUDA_SUCCESS) {
        size_t length = (size_t)record.lines * TOW_DIFF_LINE;
        if (record.full && may_carry(state, record.address, length)) {
            status =
                tows_carry_up(&carry, (size_t)(record.bytes - records), record.address, length);
        } else {
            tow_mutex_lock(&state->lock);
            taking->there = NULL;
            tow_diff_record_apply(&record, find_bytes, taking);
            tow_mutex_unlock(&state->lock);
        }
    }
    CUresult waited = tows_carry_wait(&carry);
    tows_carry_end(&carry);
    tows_hold_leave_session(session, held);
    *ret_error = more;
    return status == CUDA_SUCCESS && waited == CUDA_SUCCESS;
}

int tows_mirror_take(struct tows_session *session, uint32_t context, const uint8_t *records,
                     size_t size)
{
    struct mirror_state *state = tows_session_state(session, TOW_SESSION_MEMORY);
    int error = 0;
    if (state == NULL) {
        return -EPROTO;
    }
    struct taking taking = {state, NULL};
    if (context != 0 && take_carried(session, &taking, context, records, size, &error)) {
        return error;
    }
    tow_mutex_lock(&state->lock);
    taking.there = NULL;
    error = tow_diff_apply(records, size, find_bytes, &taking);
    tow_mutex_unlock(&state->lock);
    return error;
}
