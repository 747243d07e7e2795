#include "client/calm.h"

#include "client/context.h"
#include "client/fault.h"
#include "client/link.h"
#include "client/mirror.h"
#include "wire/limits.h"

/* NVIDIA's driver takes and gives back memory in pieces of 2 MiB. What is freed without a reply is
 * less than that altogether, until something is waited for; and at most so many pieces, since the
 * last of several in one of the driver's takes all of that with it. */
enum { UNSEEN_MAX = 2 << 20, UNSEEN_LEAST = UNSEEN_MAX / 32 };

static bool is_quiet(struct tow_link *link)
{
    return (atomic_load_explicit(&tow_captures, memory_order_relaxed) |
            atomic_load_explicit(&tow_wait_always, memory_order_relaxed) |
            atomic_load_explicit(&tow_mirror_count, memory_order_relaxed) |
            atomic_load_explicit(&tow_fault_count, memory_order_relaxed) |
            atomic_load_explicit(&link->hostfns.turns, memory_order_relaxed) |
            atomic_load_explicit(&link->hostfns.graphs, memory_order_relaxed)) == 0 &&
           !tow_link_expects(link);
}

struct tow_calm tow_calm_before(const struct tow_context *context)
{
    struct tow_calm before = {0};
    const struct tow_thread *self = tow_thread_self();
    if (context == NULL || self == NULL) {
        return before;
    }
    struct tow_link *link = context->link;
    before.own = self->sent;
    tow_lock_take(&link->send_lock);
    before.sent = tow_link_sent(link);
    /* What another thread waits for may be carried out after a later command. */
    bool known =
        !link->calm.several && atomic_load_explicit(&link->calm.awaited, memory_order_acquire) == 0;
    tow_lock_give(&link->send_lock);
    before.context = known ? context : NULL;
    return before;
}

void tow_calm_after(const struct tow_calm *before, CUresult status)
{
    if (status != CUDA_SUCCESS || before->context == NULL) {
        return;
    }
    struct tow_link *link = before->context->link;
    uint64_t own = tow_thread_self()->sent - before->own;
    tow_lock_take(&link->send_lock);
    /* Unless others sent something meanwhile. */
    if (own > 0 && tow_link_sent(link) == before->sent + own) {
        link->calm.at = atomic_load_explicit(&link->counters.commands, memory_order_relaxed);
        link->calm.beside = atomic_load_explicit(&link->beside, memory_order_relaxed);
        link->calm.context = before->context->number;
    }
    tow_lock_give(&link->send_lock);
}

CUresult tow_calm_fetched(const struct tow_calm *before, CUstream stream, CUresult status)
{
    /* With several servers a copy may have sent commands to each. */
    if (before->context != NULL && stream != CU_STREAM_PER_THREAD &&
        !atomic_load(&before->context->link->calm.aside) && tow_client_link_count() == 1) {
        tow_calm_after(before, status);
    }
    return status;
}

void tow_calm_begin(struct tow_context *context)
{
    struct tow_link *link = context->link;
    tow_lock_take(&link->send_lock);
    link->calm.several =
        link->calm.several || (link->calm.only != NULL && link->calm.only != context);
    link->calm.only = context;
    tow_lock_give(&link->send_lock);
}

void tow_calm_stream(struct tow_context *context, unsigned flags)
{
    if (flags & CU_STREAM_NON_BLOCKING) {
        atomic_store(&context->link->calm.aside, true);
    }
}

void tow_call_rests(struct tow_call *call)
{
    struct tow_link *link = call->link;
    uint64_t sent = atomic_load_explicit(&link->counters.commands, memory_order_relaxed);
    link->calm.at += link->calm.at == sent;
}

bool tow_calm_free(CUdeviceptr address, size_t size, CUresult *ret_status)
{
    const struct tow_context *context = tow_context_current();
    struct tow_link *link = context->link;
    size_t unseen = size > UNSEEN_LEAST ? size : UNSEEN_LEAST;
    struct tow_call call;
    if (unseen >= UNSEEN_MAX || !is_quiet(link) ||
        tow_call_begin(&call, TOW_FN_cuMemFree_v2, 8, TOW_CALL_CONTEXT) != CUDA_SUCCESS) {
        return false;
    }
    struct tow_link_calm *calm = &link->calm;
    if (call.waits || calm->several || calm->context != context->number ||
        calm->at != atomic_load_explicit(&link->counters.commands, memory_order_relaxed) ||
        calm->beside != atomic_load_explicit(&link->beside, memory_order_relaxed) ||
        unseen >= UNSEEN_MAX - calm->unseen) {
        tow_call_cancel(&call);
        return false;
    }
    calm->unseen += unseen;
    atomic_store_explicit(&calm->freed, calm->at + 1, memory_order_relaxed);
    tow_enc_u64(&call.enc, address);
    tow_call_rests(&call);
    *ret_status = tow_call_send(&call);
    return true;
}

/* A question that the leading thread of the server answers: all before it has been carried out. */
static void settle(struct tow_link *link)
{
    uint64_t freed = atomic_load_explicit(&link->calm.freed, memory_order_relaxed);
    struct tow_call call;
    if (freed <= atomic_load_explicit(&link->calm.settled, memory_order_acquire) ||
        tow_call_begin_on(&call, link, 0, TOW_FN_cuMemGetInfo_v2, 0, TOW_CALL_REPLY) !=
            CUDA_SUCCESS) {
        return;
    }
    tow_call_rests(&call);
    tow_call_end(&call, tow_call_wait(&call));
    tow_link_raise(&link->calm.settled, freed);
}

void tow_calm_settle(void)
{
    /* A host function that is running came after what was freed. */
    if (tow_client_state() != CUDA_SUCCESS || tow_thread_in_hostfn()) {
        return;
    }
    for (unsigned i = 0; i < tow_client_link_count(); i++) {
        settle(tow_client_link_at(i));
    }
}
