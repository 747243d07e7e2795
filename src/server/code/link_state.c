/* SPDX-License-Identifier: Apache-2.0 */
/* cuLink*: the driver's linker with the client's inputs.
 *
 * NVIDIA's linker remembers things by thread. When a link was made by one thread, completed by
 * another and destroyed by a third, as our threads take turns, a later one crashed (driver 580:
 * three of nine runs of tests/conform) or failed for want of memory. So each link has a thread of
 * its own.
 */
#include "base/log.h"
#include "base/mutex.h"
#include "gen/module_server.h"
#include "server/code/code.h"
#include "server/session/executor.h"
#include "server/code/jit_options.h"
#include "server/session/session.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_MAX = 512 * 1024, /* of the cubin in one reply */
    LINKS_MAX = 256,        /* of a session at a time: each has a thread */
};

/* One input. The driver may look at all of it until the link ends: its messages name it. */
struct input {
    struct tows_code_image *image; /* shared */
    char *name;                    /* owned */
    struct tows_serve_jit jit;     /* its options and their logs */
    struct input *next;
};

/* What the client's CUlinkState id stands for: its own options and logs must live as long. A client
 * may use and destroy one at the same time: whoever uses it holds it. */
struct linking {
    unsigned users;                /* guarded by linkings.lock; the id is one */
    struct tow_mutex lock;         /* guards the rest, and keeps calls for one link apart */
    struct tows_executor executor; /* does all that the driver does for it */
    CUlinkState state;
    struct tows_serve_jit jit;
    void *cubin; /* owned: the driver's own copy goes with the link's context */
    size_t cubin_size;
    struct input *inputs; /* owned */
    bool completed;
};

static struct {
    struct tow_mutex lock; /* guards all below, which id has which linking, and its users */
    unsigned count;        /* that have a thread, of all sessions of this process: mostly one */
} linkings = {.lock = TOW_MUTEX(SERVER_LINKINGS)};

static void linking_end(struct tows_session *session, struct linking *linking);

/* What the driver is to do with a link, for its thread. */
struct request {
    const struct tow_driver *driver;
    struct linking *linking;
    CUjitInputType type; /* of `input` */
    struct input *input;
    CUresult result;
};

static void create_state(void *arg)
{
    struct request *request = arg;
    struct linking *linking = request->linking;
    request->result = tow_drive(request->driver, cuLinkCreate_v2)(
        linking->jit.count, linking->jit.options, linking->jit.values, &linking->state);
}

static void add_input(void *arg)
{
    struct request *request = arg;
    struct input *input = request->input;
    request->result = tow_drive(request->driver, cuLinkAddData_v2)(
        request->linking->state, request->type, input->image->bytes, input->image->size,
        input->name, input->jit.count, input->jit.options, input->jit.values);
}

static void complete_state(void *arg)
{
    struct request *request = arg;
    struct linking *linking = request->linking;
    void *cubin = NULL;
    size_t size = 0;
    request->result = tow_drive(request->driver, cuLinkComplete)(linking->state, &cubin, &size);
    if (request->result != CUDA_SUCCESS) {
        return;
    }
    linking->cubin = malloc(size + 1);
    if (linking->cubin == NULL) {
        request->result = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    memcpy(linking->cubin, cubin, size);
    linking->cubin_size = size;
}

static void destroy_state(void *arg)
{
    struct request *request = arg;
    request->result = tow_drive(request->driver, cuLinkDestroy)(request->linking->state);
}

static CUresult link_state_ask(struct request *request, void (*what)(void *arg))
{
    tows_executor_do(&request->linking->executor, what, request);
    return request->result;
}

/* False: there are too many. */
static bool linkings_count(int change)
{
    tow_mutex_lock(&linkings.lock);
    bool room = change < 0 || linkings.count < LINKS_MAX;
    if (room) {
        linkings.count += (unsigned)change;
    }
    tow_mutex_unlock(&linkings.lock);
    return room;
}

static bool begin_executor(struct tows_session *session, struct linking *linking)
{
    bool room = linkings_count(1), allowed = room && tows_session_claim_thread(session, true);
    char sentence[160];
    if (allowed && tows_executor_begin(&linking->executor, session->driver) == 0) {
        return true;
    }
    if (allowed) {
        tows_session_unclaim_thread(session);
    }
    if (room) {
        linkings_count(-1);
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "cuLinkCreate fails: %s",
            allowed ? "no thread can be started for the link"
            : room  ? tows_session_thread_limit(session, sentence, sizeof sentence)
                    : "the program has too many links at once; cuLinkDestroy ends one");
    return false;
}

static void end_executor(struct tows_session *session, struct linking *linking)
{
    tows_executor_end(&linking->executor);
    tows_session_unclaim_thread(session);
    linkings_count(-1);
}

/* The link of the id that comes next; NULL, or to be given back. */
static struct linking *linking_take(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    tow_mutex_lock(&linkings.lock);
    struct linking *linking = tows_serve_handle(call, TOW_H_LINKSTATE, id);
    if (linking != NULL) {
        linking->users++;
    }
    tow_mutex_unlock(&linkings.lock);
    if (linking != NULL) {
        tow_mutex_lock(&linking->lock);
    }
    return linking;
}

static CUresult drop_user(struct tows_session *session, struct linking *linking)
{
    tow_mutex_lock(&linkings.lock);
    bool last = --linking->users == 0;
    tow_mutex_unlock(&linkings.lock);
    CUresult status = CUDA_SUCCESS;
    if (last) {
        struct request request = {.driver = session->driver, .linking = linking};
        status = link_state_ask(&request, destroy_state);
        end_executor(session, linking);
        linking_end(session, linking);
    }
    return status;
}

static void linking_give(struct tows_serve *call, struct linking *linking)
{
    if (linking != NULL) {
        tow_mutex_unlock(&linking->lock);
        drop_user(call->session, linking);
    }
}

void tows_serve_cuLinkCreate_v2(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    struct linking *linking = calloc(1, sizeof *linking);
    if (linking == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    linking->users = 1;
    tow_mutex_init(&linking->lock, SERVER_LINKING);
    tows_serve_jit_init(&linking->jit, call);
    if (tows_serve_ready(call)) {
        struct request request = {.driver = call->driver, .linking = linking};
        bool begun = begin_executor(call->session, linking);
        call->status = begun ? link_state_ask(&request, create_state) : CUDA_ERROR_OUT_OF_MEMORY;
        if (call->status == CUDA_SUCCESS) {
            tows_serve_bind(call, TOW_H_LINKSTATE, id, linking);
            if (linking->jit.count > 0) {
                tows_serve_jit_reply(&linking->jit, call);
            }
            return;
        }
        if (begun) {
            end_executor(call->session, linking);
        }
    }
    linking_end(call->session, linking);
}

static void add_data(struct tows_serve *call, struct linking *linking)
{
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
    tows_serve_jit_init(&input->jit, call);
    bool send = false;
    if (tows_serve_ready(call) && linking != NULL) {
        call->in = ref;
        input->name = name != NULL ? strdup(name) : NULL;
        input->image = tows_code_take(call, &send);
    }
    if (input->image != NULL) {
        input->next = linking->inputs;
        linking->inputs = input;
        struct request request = {call->driver, linking, (CUjitInputType)type, input, CUDA_SUCCESS};
        tow_enc_u32(&call->out, (uint32_t)link_state_ask(&request, add_input));
        tow_enc_u32(&call->out, TOW_CODE_DONE);
        tows_serve_jit_reply(&linking->jit, call);
        return;
    }
    if (send) {
        tow_enc_u32(&call->out, CUDA_SUCCESS);
        tow_enc_u32(&call->out, TOW_CODE_SEND);
    }
    tows_serve_jit_fini(&input->jit);
    free(input->name);
    free(input);
}

void tows_serve_cuLinkAddData_v2(struct tows_serve *call)
{
    struct linking *linking = linking_take(call);
    add_data(call, linking);
    linking_give(call, linking);
}

static void link_state_complete(struct tows_serve *call, struct linking *linking)
{
    uint64_t offset = tow_dec_u64(&call->in);
    if (!tows_serve_ready(call) || linking == NULL) {
        return;
    }
    CUresult result = CUDA_SUCCESS;
    if (offset == 0 && !linking->completed) {
        struct request request = {.driver = call->driver, .linking = linking};
        result = link_state_ask(&request, complete_state);
        linking->completed = result == CUDA_SUCCESS;
    }
    uint64_t total = linking->completed ? linking->cubin_size : 0;
    uint64_t here = offset < total ? tow_min_u64(total - offset, CHUNK_MAX) : 0;
    tows_serve_reserve(call, 32 + here);
    tow_enc_u32(&call->out, (uint32_t)result);
    tow_enc_u32(&call->out, 0);
    tow_enc_u64(&call->out, total);
    tow_enc_u64(&call->out, here);
    if (offset == 0) {
        tows_serve_jit_reply(&linking->jit, call);
    }
    if (here > 0) {
        tows_serve_reserve(call, here);
        tow_enc_bytes(&call->out, (const uint8_t *)linking->cubin + offset, here);
    }
}

void tows_serve_cuLinkComplete(struct tows_serve *call)
{
    struct linking *linking = linking_take(call);
    link_state_complete(call, linking);
    linking_give(call, linking);
}

/* The driver's state and the thread, if there were any, have gone. */
static void linking_end(struct tows_session *session, struct linking *linking)
{
    while (linking->inputs != NULL) {
        struct input *input = linking->inputs;
        linking->inputs = input->next;
        tows_code_unref(session, input->image);
        tows_serve_jit_fini(&input->jit);
        free(input->name);
        free(input);
    }
    tows_serve_jit_fini(&linking->jit);
    free(linking->cubin);
    tow_mutex_fini(&linking->lock);
    free(linking);
}

void tows_serve_cuLinkDestroy(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    tow_mutex_lock(&linkings.lock);
    struct linking *linking = tows_serve_handle(call, TOW_H_LINKSTATE, id);
    bool ready = tows_serve_ready(call) && linking != NULL;
    if (ready) {
        tows_serve_unbind(call, TOW_H_LINKSTATE, id);
    }
    tow_mutex_unlock(&linkings.lock);
    if (ready) {
        call->status = drop_user(call->session, linking);
    }
}

static void end_one(void *user, uint64_t id, const struct tows_handle_entry *entry)
{
    struct tows_session *session = user;
    struct linking *linking = entry->handle;
    tows_handles_unbind(&session->handles, id);
    if (linking != NULL) {
        drop_user(session, linking);
    }
}

void tows_link_state_end(struct tows_session *session)
{
    tows_handles_each(&session->handles, TOW_H_LINKSTATE, end_one, session);
}
