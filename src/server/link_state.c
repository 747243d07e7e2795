/* cuLink*: the driver's linker with the client's inputs. */
#include "base/log.h"
#include "gen/server_api.h"
#include "server/code.h"
#include "server/jit_options.h"
#include "server/session.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_MAX = 512 * 1024 }; /* of the cubin in one reply */

/* One input. The driver may look at all of it until the link ends: its messages name it. */
struct input {
    struct tow_code_image *image; /* shared */
    char *name;                   /* owned */
    struct tow_serve_jit jit;     /* its options and their logs */
    struct input *next;
};

/* What the client's CUlinkState id stands for: its own options and logs must live as long. */
struct linking {
    CUlinkState state;
    struct tow_serve_jit jit;
    void *cubin; /* borrowed from the driver's state */
    size_t cubin_size;
    struct input *inputs; /* owned */
    bool completed;
};

static struct linking *linking_of(struct tow_serve *call)
{
    return tow_serve_handle(call, TOW_H_LINKSTATE, tow_dec_u64(&call->in));
}

void tow_serve_cuLinkCreate_v2(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    struct linking *linking = calloc(1, sizeof *linking);
    if (linking == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    tow_serve_jit_init(&linking->jit, call);
    if (tow_serve_ready(call)) {
        call->status = call->driver->cuLinkCreate_v2(linking->jit.count, linking->jit.options,
                                                     linking->jit.values, &linking->state);
        if (call->status == CUDA_SUCCESS) {
            tow_serve_bind(call, TOW_H_LINKSTATE, id, linking);
            return;
        }
    }
    tow_serve_jit_fini(&linking->jit);
    free(linking);
}

void tow_serve_cuLinkAddData_v2(struct tow_serve *call)
{
    struct linking *linking = linking_of(call);
    struct tow_dec ref = call->in;
    tow_dec_bytes(&call->in, sizeof(struct tow_code_ref));
    uint32_t type = tow_dec_u32(&call->in);
    const char *name = tow_dec_cstr(&call->in, 4096);
    tow_dec_align(&call->in, 8);
    struct input *input = calloc(1, sizeof *input);
    if (input == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    tow_serve_jit_init(&input->jit, call);
    bool send = false;
    if (tow_serve_ready(call) && linking != NULL) {
        call->in = ref;
        input->name = name != NULL ? strdup(name) : NULL;
        input->image = tow_code_take(call, &send);
    }
    if (input->image != NULL) {
        input->next = linking->inputs;
        linking->inputs = input;
        CUresult result = call->driver->cuLinkAddData_v2(
            linking->state, (CUjitInputType)type, input->image->bytes, input->image->size,
            input->name, input->jit.count, input->jit.options, input->jit.values);
        tow_enc_u32(&call->out, (uint32_t)result);
        tow_enc_u32(&call->out, TOW_CODE_DONE);
        tow_serve_jit_reply(&linking->jit, call);
        return;
    }
    if (send) {
        tow_enc_u32(&call->out, CUDA_SUCCESS);
        tow_enc_u32(&call->out, TOW_CODE_SEND);
    }
    tow_serve_jit_fini(&input->jit);
    free(input->name);
    free(input);
}

void tow_serve_cuLinkComplete(struct tow_serve *call)
{
    struct linking *linking = linking_of(call);
    uint64_t offset = tow_dec_u64(&call->in);
    if (!tow_serve_ready(call) || linking == NULL) {
        return;
    }
    CUresult result = CUDA_SUCCESS;
    if (offset == 0 && !linking->completed) {
        result =
            call->driver->cuLinkComplete(linking->state, &linking->cubin, &linking->cubin_size);
        linking->completed = result == CUDA_SUCCESS;
    }
    uint64_t total = linking->completed ? linking->cubin_size : 0;
    uint64_t here = offset < total ? tow_min_u64(total - offset, PIECE_MAX) : 0;
    tow_serve_reserve(call, 32 + here);
    tow_enc_u32(&call->out, (uint32_t)result);
    tow_enc_u32(&call->out, 0);
    tow_enc_u64(&call->out, total);
    tow_enc_u64(&call->out, here);
    if (offset == 0) {
        tow_serve_jit_reply(&linking->jit, call);
    }
    if (here > 0) {
        tow_serve_reserve(call, here);
        tow_enc_bytes(&call->out, (const uint8_t *)linking->cubin + offset, here);
    }
}

static void linking_end(struct tow_session *session, struct linking *linking)
{
    while (linking->inputs != NULL) {
        struct input *input = linking->inputs;
        linking->inputs = input->next;
        tow_code_unref(session, input->image);
        tow_serve_jit_fini(&input->jit);
        free(input->name);
        free(input);
    }
    tow_serve_jit_fini(&linking->jit);
    free(linking);
}

void tow_serve_cuLinkDestroy(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    struct linking *linking = tow_serve_handle(call, TOW_H_LINKSTATE, id);
    if (!tow_serve_ready(call) || linking == NULL) {
        return;
    }
    tow_serve_unbind(call, TOW_H_LINKSTATE, id);
    call->status = call->driver->cuLinkDestroy(linking->state);
    linking_end(call->session, linking);
}

static void end_one(void *user, uint64_t id, const struct tow_handle_entry *entry)
{
    struct tow_session *session = user;
    struct linking *linking = entry->handle;
    tow_handles_unbind(&session->handles, id);
    if (linking != NULL) {
        session->driver->cuLinkDestroy(linking->state);
        linking_end(session, linking);
    }
}

void tow_link_state_end(struct tow_session *session)
{
    tow_handles_each(&session->handles, TOW_H_LINKSTATE, end_one, session);
}
