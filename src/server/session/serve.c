/* SPDX-License-Identifier: Apache-2.0 */
/* What handlers call: decoding handles, replying, remembering errors. */
#include "server/session/serve.h"

#include <stdlib.h>
#include <string.h>

#include "wire/id.h"
#include "server/session/completion.h"
#include "server/session/session.h"
#include "server/session/transfer.h"
#include "gen/memory.h"

/* Memory of one call, freed with it. */
struct tows_serve_block {
    struct tows_serve_block *next;
    uint64_t bytes[];
};

enum {
    ROOM_MAX = 64u << 20, /* the most one call may ask for: a graph of a million nodes is 8 MiB */
};

bool tows_serve_ready(struct tows_serve *call)
{
    if (call->in.bad) {
        call->malformed = true;
        call->status = CUDA_ERROR_INVALID_VALUE;
        return false;
    }
    return call->status == CUDA_SUCCESS && !call->malformed;
}

static void *serve_room(struct tows_serve *call, uint64_t count, size_t element)
{
    if (count == 0) {
        return NULL;
    }
    if (element == 0 || count > ROOM_MAX / element) {
        call->status = CUDA_ERROR_INVALID_VALUE;
        return NULL;
    }
    struct tows_serve_block *block = calloc(1, sizeof *block + (size_t)count * element);
    if (block == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    block->next = call->blocks;
    call->blocks = block;
    return block->bytes;
}

static CUresult stream_of(struct tows_serve *call, uint64_t id, void **ret_handle)
{
    if (id <= (uint64_t)(uintptr_t)CU_STREAM_LEGACY) {
        *ret_handle = (void *)(uintptr_t)id;
        return CUDA_SUCCESS;
    }
    CUstream stream = NULL;
    if (call->status != CUDA_SUCCESS) {
        return call->status; /* perhaps another context is current */
    }
    CUresult status =
        tows_session_thread_stream(call->session, call->frame.thread, call->frame.context, &stream);
    *ret_handle = stream;
    return status;
}

static bool kinds_agree(unsigned wanted, unsigned has)
{
    return wanted == has || (wanted == TOW_H_FUNCTION && has == TOW_H_KERNEL) ||
           (wanted == TOW_H_KERNEL && has == TOW_H_FUNCTION);
}

/* What NVIDIA's driver says of one that is gone. */
static CUresult error_of(enum tow_handle_kind kind)
{
    switch (kind) {
    case TOW_H_CONTEXT:
        return CUDA_ERROR_INVALID_CONTEXT;
    case TOW_H_GRAPH:
    case TOW_H_GRAPHNODE:
    case TOW_H_GRAPHEXEC:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_HANDLE;
    }
}

void *tows_serve_handle(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id)
{
    void *handle = NULL;
    if (kind == TOW_H_STREAM) {
        tows_completion_use(call, id);
    }
    if (id == 0) {
        return NULL;
    }
    CUresult status = CUDA_SUCCESS;
    if (kind == TOW_H_STREAM && id <= (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD) {
        status = stream_of(call, id, &handle);
    } else {
        const struct tows_handle_entry *entry = kinds_agree(kind, TOW_ID_KIND(id))
                                                    ? tows_handles_find(&call->session->handles, id)
                                                    : NULL;
        if (entry == NULL) {
            status = error_of(kind);
        } else {
            handle = entry->handle;
            status = atomic_load_explicit(&entry->error, memory_order_relaxed);
        }
    }
    if (status != CUDA_SUCCESS && call->status == CUDA_SUCCESS) {
        call->status = status;
    }
    return handle;
}

void tows_serve_handles(struct tows_serve *call, enum tow_handle_kind kind, void *array,
                        size_t count)
{
    uint64_t *ids = array;
    for (size_t i = 0; array != NULL && i < count; i++) {
        ids[i] = (uint64_t)(uintptr_t)tows_serve_handle(call, kind, ids[i]);
    }
}

const char *tows_serve_text(struct tows_serve *call)
{
    uint32_t size = tow_dec_u32(&call->in);
    const char *text = (const char *)tow_dec_bytes(&call->in, size);
    if (text == NULL || size == 0 || text[size - 1] != '\0') {
        call->malformed = true;
        return "";
    }
    return text;
}

void *tows_serve_array(struct tows_serve *call, uint64_t count, size_t element)
{
    if (count > tow_dec_left(&call->in) / element) {
        call->malformed = true;
        return NULL;
    }
    void *made = serve_room(call, count, element);
    if (made != NULL) {
        tow_dec_copy(&call->in, made, (size_t)count * element);
    }
    return made;
}

void *tows_serve_room(struct tows_serve *call, uint64_t count, size_t element)
{
    return serve_room(call, count, element);
}

void tows_serve_record(struct tows_serve *call, void *into, size_t size)
{
    tow_dec_copy(&call->in, into, size);
}

void tows_serve_reserve(struct tows_serve *call, size_t bytes)
{
    size_t used = (size_t)(call->out.at - call->out_start);
    if (bytes <= tow_enc_left(&call->out)) {
        return;
    }
    uint8_t *made = serve_room(call, used + bytes, 1);
    if (made != NULL) {
        memcpy(made, call->out_start, used);
        call->out_start = made;
        call->out = tow_enc_init(made, used + bytes);
        call->out.at += used;
    }
}

void tows_serve_put_range(struct tows_serve *call, CUdeviceptr address)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    bool known =
        tow_drive(call->driver, cuMemGetAddressRange_v2)(&base, &size, address) == CUDA_SUCCESS;
    tow_enc_u64(&call->out, address);
    tow_enc_u64(&call->out, known ? size - (address - base) : 1);
}

static _Thread_local struct tows_serve_ids *listed;

void tows_serve_list_ids(struct tows_serve_ids *ids)
{
    listed = ids;
}

void tows_serve_list_id(uint64_t id)
{
    if (listed == NULL) {
        return;
    }
    if (listed->count == listed->room) {
        uint32_t room = listed->room * 2 + 16;
        uint64_t *grown = realloc(listed->ids, room * sizeof *grown);
        if (grown == NULL) {
            listed->lacking = true;
            return;
        }
        listed->ids = grown;
        listed->room = room;
    }
    listed->ids[listed->count++] = id;
}

void tows_serve_bind(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id, void *handle)
{
    if (TOW_ID_KIND(id) != (unsigned)kind || TOW_ID_OF_SERVER(id) ||
        tows_handles_bind(&call->session->handles, id, call->status == CUDA_SUCCESS ? handle : NULL,
                          call->status, call->frame.context) < 0) {
        call->malformed = true;
        return;
    }
    tows_serve_list_id(id);
}

void tows_serve_unbind(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id)
{
    (void)kind;
    tows_handles_unbind(&call->session->handles, id);
}

bool tows_serve_claim(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id)
{
    call->claimed.id = 0;
    if (TOW_ID_KIND(id) == 0) {
        return true; /* none, or a stream that CUDA has always: the driver says what it thinks */
    }
    if (!tows_handles_take(&call->session->handles, id, &call->claimed)) {
        call->status = error_of(kind);
        return false;
    }
    /* What an upload has looked up and may be about to give to the driver. */
    if (kind == TOW_H_STREAM || kind == TOW_H_EVENT || kind == TOW_H_ARRAY ||
        kind == TOW_H_MIPMAPPEDARRAY) {
        tows_transfer_wait_users(call->session);
    }
    return true;
}

void tows_serve_unclaim(struct tows_serve *call)
{
    if (call->claimed.id != 0) {
        tows_handles_give_back(&call->session->handles, &call->claimed);
    }
}

uint64_t tows_serve_export(struct tows_serve *call, enum tow_handle_kind kind, void *handle)
{
    if (handle == NULL) {
        return 0;
    }
    uint64_t id = tows_handles_export(&call->session->handles, kind, handle, call->frame.context);
    tows_serve_list_id(id);
    return id;
}

void tows_serve_export_all(struct tows_serve *call, enum tow_handle_kind kind, void *array,
                           size_t count)
{
    uint64_t *handles = array;
    for (size_t i = 0; i < count; i++) {
        handles[i] = tows_serve_export(call, kind, (void *)(uintptr_t)handles[i]);
    }
}
