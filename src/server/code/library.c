/* SPDX-License-Identifier: Apache-2.0 */
/* Loading, looking up, unloading: libraries and modules alike. */
#include "server/code/code.h"
#include "server/copy/mirror.h"
#include "server/code/jit_options.h"
#include "server/session/session.h"
#include "gen/module_server.h"
#include "gen/memory.h"

#include "base/log.h"
#include "base/thread.h"
#include "wire/result.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the client keeps of kernels ---- */

/* The kernel or function that is asked. */
struct subject {
    struct tows_serve *call;
    CUkernel kernel; /* or NULL */
    CUfunction function;
    int device;
    uint64_t name_of; /* of the library or module, see tows_code_name */
    const char *name;
    struct tow_buf *facts; /* or NULL, see tows_code_learn */
};

static CUresult ask_attribute(const struct subject *s, CUfunction_attribute attribute,
                              int *ret_value)
{
    if (s->kernel == NULL) {
        return tow_drive(s->call->driver, cuFuncGetAttribute)(ret_value, attribute, s->function);
    }
    return s->device < 0 ? CUDA_ERROR_INVALID_DEVICE
                         : tow_drive(s->call->driver, cuKernelGetAttribute)(ret_value, attribute,
                                                                            s->kernel, s->device);
}

static CUresult ask_param(const struct subject *s, size_t index, size_t *ret_offset,
                          size_t *ret_size)
{
    return s->kernel == NULL ? tow_drive(s->call->driver, cuFuncGetParamInfo)(s->function, index,
                                                                              ret_offset, ret_size)
                             : tow_drive(s->call->driver, cuKernelGetParamInfo)(
                                   s->kernel, index, ret_offset, ret_size);
}

/* Appends to the reply what the client keeps of it. */
static void library_describe(const struct subject *s)
{
    struct tows_serve *call = s->call;
    struct tow_kernel_info info = {0};
    for (unsigned i = 0; i < TOW_KERNEL_ATTRIBUTES; i++) {
        int value = 0;
        CUresult result = ask_attribute(s, (CUfunction_attribute)i, &value);
        if (result == CUDA_SUCCESS) {
            info.attributes[i] = value;
            info.known |= 1u << i;
        } else if (result != CUDA_ERROR_INVALID_VALUE) {
            break; /* not of this attribute: asking for more would only repeat it */
        }
    }
    struct {
        uint32_t offset, size;
    } param;
    size_t at = (size_t)(call->out.at - call->out_start);
    tows_serve_reserve(call, sizeof info);
    tow_enc_bytes(&call->out, &info, sizeof info);
    size_t offset = 0, size = 0;
    CUresult asked = CUDA_SUCCESS;
    while (info.params < TOW_KERNEL_PARAMS_MAX &&
           (asked = ask_param(s, info.params, &offset, &size)) == CUDA_SUCCESS) {
        param.offset = (uint32_t)offset;
        param.size = (uint32_t)size;
        if (tow_enc_left(&call->out) < sizeof param) {
            tows_serve_reserve(call, 512 * sizeof param);
        }
        tow_enc_bytes(&call->out, &param, sizeof param);
        info.params++;
    }
    if (tow_result_is_sticky(asked)) {
        call->status = asked; /* not the end of the list: the client must not keep a short one */
        return;
    }
    if (!call->out.overflow) {
        memcpy(call->out_start + at, &info, sizeof info);
    }
    /* Only what is surely whole is kept for others. */
    if (!call->out.overflow && (asked == CUDA_SUCCESS || asked == CUDA_ERROR_INVALID_VALUE)) {
        tows_code_learn(call, s->name_of, s->kernel == NULL ? TOW_DEVICE_NONE : s->device, &info,
                        call->out_start + at + sizeof info, s->name, s->facts);
    }
}

/* Whoever loads an image of a few kernels will use them: they are described at once, so that
 * nobody has to ask for each. Of many most are never used, and describing one makes the driver load
 * it: of those comes what their code says, see below. */
enum {
    FEW_KERNELS = 16,
    ALL_KERNELS = 1024, /* where describing costs nothing */
};

static unsigned list_kernels(struct tows_serve *call, void *library, unsigned most, void **kernels)
{
    unsigned count = 0;
    return tow_drive(call->driver, cuLibraryGetKernelCount)(&count, library) == CUDA_SUCCESS &&
                   count <= most &&
                   tow_drive(call->driver, cuLibraryEnumerateKernels)((CUkernel *)kernels, count,
                                                                      library) == CUDA_SUCCESS
               ? count
               : 0;
}

static unsigned list_functions(struct tows_serve *call, void *module, unsigned most,
                               void **functions)
{
    unsigned count = 0;
    return tow_drive(call->driver, cuModuleGetFunctionCount)(&count, module) == CUDA_SUCCESS &&
                   count <= most &&
                   tow_drive(call->driver, cuModuleEnumerateFunctions)(
                       (CUfunction *)functions, count, module) == CUDA_SUCCESS
               ? count
               : 0;
}

static void describe_few(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id,
                         struct tow_buf *facts)
{
    void *handle = tows_serve_handle(call, kind, id);
    if (call->frame.context == 0 || handle == NULL) {
        return; /* parameters are told of in a context only */
    }
    unsigned most = call->session->backend->describes_all ? ALL_KERNELS : FEW_KERNELS;
    void **handles = tows_serve_room(call, most, sizeof *handles);
    if (handles == NULL) {
        return;
    }
    bool module = kind == TOW_H_MODULE;
    unsigned count = module ? list_functions(call, handle, most, handles)
                            : list_kernels(call, handle, most, handles);
    struct subject s = {.call = call,
                        .device = tows_code_device(call),
                        .name_of = tows_code_name(call->session, id, handle),
                        .facts = facts};
    size_t used = (size_t)(call->out.at - call->out_start);
    for (unsigned i = 0; i < count && call->status == CUDA_SUCCESS; i++) {
        s.kernel = module ? NULL : handles[i];
        s.function = module ? handles[i] : NULL;
        CUresult named = module ? tow_drive(call->driver, cuFuncGetName)(&s.name, s.function)
                                : tow_drive(call->driver, cuKernelGetName)(&s.name, s.kernel);
        if (named == CUDA_SUCCESS) {
            library_describe(&s);
            call->out.at = call->out_start + used; /* as a fact it comes with the others */
        }
    }
    call->status = CUDA_SUCCESS; /* the load went well: who uses a kernel hears of the rest */
}

/* ---- loading ---- */

static CUresult load_library(struct tows_serve *call, uint64_t id, struct tows_code_image *image,
                             struct tows_serve_jit *jit, bool *ret_kept)
{
    CUlibraryOption options[1] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void *values[1] = {(void *)(uintptr_t)1};
    CUlibrary library = NULL;
    CUresult result = tow_drive(call->driver, cuLibraryLoadData)(
        &library, image->handed, jit->options, jit->values, jit->count, options, values, 1);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_kept = true;
    tows_serve_bind(call, TOW_H_LIBRARY, id, library);
    if (!call->malformed) {
        /* The driver may read the image for as long as the library lives. */
        tows_code_keep(call->session, id, library, image, true, tows_serve_jit_is_plain(jit));
    }
    return result;
}

static CUresult load_module(struct tows_serve *call, uint64_t id, struct tows_code_image *image,
                            struct tows_serve_jit *jit, bool *ret_kept)
{
    CUmodule module = NULL;
    CUresult result = tow_drive(call->driver, cuModuleLoadDataEx)(
        &module, image->handed, jit->count, jit->options, jit->values);
    if (result == CUDA_SUCCESS) {
        tows_serve_bind(call, TOW_H_MODULE, id, module);
    }
    if (result == CUDA_SUCCESS && !call->malformed) {
        tows_code_keep(call->session, id, module, image, false, tows_serve_jit_is_plain(jit));
    }
    return result;
}

/* They are of what everybody compiles (`image`): with other options it is something else. */
static void reply_facts(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id,
                        const struct tows_code_image *image)
{
    struct tow_buf facts;
    tow_buf_init(&facts, 8 << 20);
    if (image != NULL) {
        tows_code_recall(call, image, &facts);
    }
    if (image != NULL && facts.size == 0) {
        describe_few(call, kind, id, &facts);
    }
    tows_code_reply_facts(call, &facts);
    tow_buf_fini(&facts);
}

/* The reply to a load is a success of the call itself: logs come back with failures too. But what
 * is known already needs no answer. */
static void library_load(struct tows_serve *call, enum tow_handle_kind kind,
                         CUresult (*one)(struct tows_serve *call, uint64_t id,
                                         struct tows_code_image *image, struct tows_serve_jit *jit,
                                         bool *ret_kept))
{
    uint64_t id = tow_dec_u64(&call->in);
    struct tow_dec again = call->in;
    struct tow_code_ref ref;
    tow_dec_copy(&call->in, &ref, sizeof ref);
    struct tows_serve_jit jit;
    tows_serve_jit_init(&jit, call);
    if (tows_serve_ready(call)) {
        bool send = false;
        call->in = again;
        struct tows_code_image *image = tows_code_take(call, &send);
        if (image != NULL && image->form == TOW_IMAGE_RAW) {
            /* Only the linker is told a length: of this nobody has measured one. */
            tows_code_unref(call->session, image);
            call->status = CUDA_ERROR_INVALID_IMAGE;
        } else if (image != NULL) {
            bool kept = false, known = ref.stage == TOW_CODE_KNOWN;
            bool plain = tows_serve_jit_is_plain(&jit);
            CUresult result = one(call, id, image, &jit, &kept);
            if (known) {
                call->status = result;
                kept = true; /* the client counts on it: where the load failed, until the end */
            } else {
                tow_enc_u32(&call->out, (uint32_t)result);
                tow_enc_u32(&call->out, TOW_CODE_DONE);
                tows_serve_jit_reply(&jit, call);
                if (result == CUDA_SUCCESS) {
                    reply_facts(call, kind, id, plain ? image : NULL);
                }
            }
            if (!kept) {
                tows_code_unref(call->session, image);
            }
        } else if (send) {
            tow_enc_u32(&call->out, CUDA_SUCCESS);
            tow_enc_u32(&call->out, TOW_CODE_SEND);
        }
    }
    tows_serve_jit_fini(&jit);
}

void tows_serve_cuModuleLoadDataEx(struct tows_serve *call)
{
    library_load(call, TOW_H_MODULE, load_module);
}

void tows_serve_cuLibraryLoadData(struct tows_serve *call)
{
    library_load(call, TOW_H_LIBRARY, load_library);
}

/* ---- kernels ---- */

/* {u64 module or library, u64 id, i32 device, u32 0, string}. Without a reply the client knows the
 * kernel already, and an error belongs to the id. With one, the id may be known: then the client
 * wants to hear what its image did not say of it. */
static void look_up(struct tows_serve *call, enum tow_handle_kind from, enum tow_handle_kind to)
{
    struct subject s = {.call = call};
    uint64_t library_id = tow_dec_u64(&call->in);
    void *library = tows_serve_handle(call, from, library_id);
    s.name_of = tows_code_name(call->session, library_id, library);
    uint64_t id = tow_dec_u64(&call->in);
    s.device = tow_dec_i32(&call->in);
    tow_dec_u32(&call->in);
    s.name = tows_serve_text(call);
    bool waits = call->frame.seq != 0;
    if (!tows_serve_ready(call) && (waits || call->malformed)) {
        return;
    }
    if (call->status == CUDA_SUCCESS) {
        call->status =
            to == TOW_H_FUNCTION
                ? tow_drive(call->driver, cuModuleGetFunction)(&s.function, library, s.name)
                : tow_drive(call->driver, cuLibraryGetKernel)(&s.kernel, library, s.name);
    }
    bool is_new = !waits || tows_handles_find(&call->session->handles, id) == NULL;
    if (is_new && (call->status == CUDA_SUCCESS || !waits)) {
        tows_serve_bind(call, to, id, to == TOW_H_FUNCTION ? (void *)s.function : (void *)s.kernel);
    }
    if (call->status != CUDA_SUCCESS || !waits) {
        return;
    }
    if (call->frame.context == 0) {
        /* The runtime looks kernels up before the program has a context, and NVIDIA's driver tells
         * of their parameters in a context only. */
        call->status = tows_session_enter_primary(call->session);
    }
    if (call->status == CUDA_SUCCESS) {
        library_describe(&s);
    }
    if (call->status != CUDA_SUCCESS && is_new) {
        tows_serve_unbind(call, to, id);
    }
}

void tows_serve_cuModuleGetFunction(struct tows_serve *call)
{
    look_up(call, TOW_H_MODULE, TOW_H_FUNCTION);
}

void tows_serve_cuLibraryGetKernel(struct tows_serve *call)
{
    look_up(call, TOW_H_LIBRARY, TOW_H_KERNEL);
}

void tows_serve_cuKernelGetFunction(struct tows_serve *call)
{
    CUkernel kernel = tows_serve_handle(call, TOW_H_KERNEL, tow_dec_u64(&call->in));
    uint64_t id = tow_dec_u64(&call->in);
    if (call->in.bad) {
        call->malformed = true;
        return;
    }
    CUfunction function = NULL;
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuKernelGetFunction)(&function, kernel);
    }
    /* Nobody waits: the error, if there is one, belongs to the id. */
    tows_serve_bind(call, TOW_H_FUNCTION, id, function);
}

void tows_serve_cuLibraryGetModule(struct tows_serve *call)
{
    CUlibrary library = tows_serve_handle(call, TOW_H_LIBRARY, tow_dec_u64(&call->in));
    uint64_t id = tow_dec_u64(&call->in);
    if (!tows_serve_ready(call)) {
        return;
    }
    CUmodule module = NULL;
    call->status = tow_drive(call->driver, cuLibraryGetModule)(&module, library);
    if (call->status == CUDA_SUCCESS) {
        tows_serve_bind(call, TOW_H_MODULE, id, module);
    }
}

/* ---- names ---- */

enum { NAMES_BYTES_MAX = 512 * 1024 }; /* of one reply */

static void reply_names(struct tows_serve *call, uint32_t start, uint32_t total, void **handles,
                        CUresult (*name_of)(struct tows_serve *call, void *handle,
                                            const char **ret_name))
{
    size_t at = (size_t)(call->out.at - call->out_start);
    uint32_t here = 0;
    tows_serve_reserve(call, 8);
    tow_enc_u32(&call->out, total);
    tow_enc_u32(&call->out, 0);
    for (uint32_t i = start; i < total && call->out.at - call->out_start < NAMES_BYTES_MAX; i++) {
        const char *name = NULL;
        call->status = name_of(call, handles[i], &name);
        if (call->status != CUDA_SUCCESS) {
            return;
        }
        size_t size = strlen(name) + 1;
        tows_serve_reserve(call, tow_enc_left(&call->out) > size + 16 ? 0 : size + 16 + 65536);
        tow_enc_cstr(&call->out, name);
        here++;
    }
    if (!call->out.overflow) {
        memcpy(call->out_start + at + 4, &here, sizeof here);
    }
}

static CUresult function_name(struct tows_serve *call, void *handle, const char **ret_name)
{
    return tow_drive(call->driver, cuFuncGetName)(ret_name, handle);
}

static CUresult kernel_name(struct tows_serve *call, void *handle, const char **ret_name)
{
    return tow_drive(call->driver, cuKernelGetName)(ret_name, handle);
}

void tows_serve_cuModuleEnumerateFunctions(struct tows_serve *call)
{
    CUmodule module = tows_serve_handle(call, TOW_H_MODULE, tow_dec_u64(&call->in));
    uint32_t start = tow_dec_u32(&call->in);
    if (!tows_serve_ready(call)) {
        return;
    }
    unsigned total = 0;
    call->status = tow_drive(call->driver, cuModuleGetFunctionCount)(&total, module);
    CUfunction *functions = tows_serve_room(call, total, sizeof *functions);
    if (call->status == CUDA_SUCCESS && total > 0) {
        call->status =
            tow_drive(call->driver, cuModuleEnumerateFunctions)(functions, total, module);
    }
    if (call->status == CUDA_SUCCESS) {
        reply_names(call, start, total, (void **)functions, function_name);
    }
}

void tows_serve_cuLibraryEnumerateKernels(struct tows_serve *call)
{
    CUlibrary library = tows_serve_handle(call, TOW_H_LIBRARY, tow_dec_u64(&call->in));
    uint32_t start = tow_dec_u32(&call->in);
    if (!tows_serve_ready(call)) {
        return;
    }
    unsigned total = 0;
    call->status = tow_drive(call->driver, cuLibraryGetKernelCount)(&total, library);
    CUkernel *kernels = tows_serve_room(call, total, sizeof *kernels);
    if (call->status == CUDA_SUCCESS && total > 0) {
        call->status = tow_drive(call->driver, cuLibraryEnumerateKernels)(kernels, total, library);
    }
    if (call->status == CUDA_SUCCESS) {
        reply_names(call, start, total, (void **)kernels, kernel_name);
    }
}

/* ---- the end ---- */

/* {u64 id, u32 last, u32 count, ids of what was made of it} */
static uint64_t drop_children(struct tows_serve *call, bool *ret_last)
{
    uint64_t id = tow_dec_u64(&call->in);
    *ret_last = tow_dec_u32(&call->in) != 0;
    uint32_t count = tow_dec_count(&call->in, UINT32_MAX, 8);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t child = tow_dec_u64(&call->in);
        tows_serve_unbind(call, TOW_H_NONE, child);
    }
    return id;
}

void tows_serve_cuModuleUnload(struct tows_serve *call)
{
    bool last = false;
    uint64_t id = drop_children(call, &last);
    CUmodule module = tows_serve_handle(call, TOW_H_MODULE, id);
    if (!tows_serve_ready(call) || !last || !tows_serve_claim(call, TOW_H_MODULE, id)) {
        return;
    }
    struct tows_code_keeper *keeper = tows_code_detach(call->session, id);
    tows_mirror_forget_managed(call->session, &(struct tows_mirror_gone){.owner = id});
    atomic_store(&call->session->last_kernel, NULL);
    call->status = tow_drive(call->driver, cuModuleUnload)(module);
    tows_code_release(call->session, keeper);
}

void tows_serve_cuLibraryUnload(struct tows_serve *call)
{
    bool last = false;
    uint64_t id = drop_children(call, &last);
    CUlibrary library = tows_serve_handle(call, TOW_H_LIBRARY, id);
    if (!tows_serve_ready(call) || !last || !tows_serve_claim(call, TOW_H_LIBRARY, id)) {
        return;
    }
    struct tows_code_keeper *keeper = tows_code_detach(call->session, id);
    tows_mirror_forget_managed(call->session, &(struct tows_mirror_gone){.owner = id});
    atomic_store(&call->session->last_kernel, NULL);
    call->status = tow_drive(call->driver, cuLibraryUnload)(library);
    tows_code_release(call->session, keeper);
}

/* ---- variables ---- */

/* {u64 module or library, u32 which outputs are wanted: both are cheap, u32 0, string} */
static void *symbol_take(struct tows_serve *call, enum tow_handle_kind kind, uint64_t *ret_id,
                         const char **ret_name)
{
    *ret_id = tow_dec_u64(&call->in);
    void *handle = tows_serve_handle(call, kind, *ret_id);
    tow_dec_u32(&call->in);
    tow_dec_align(&call->in, 8);
    *ret_name = tows_serve_text(call);
    return handle;
}

/* {u64 address, u64 size, u32 whether the program is to have it too} */
static void symbol_reply(struct tows_serve *call, uint64_t owner, CUdeviceptr address, size_t size)
{
    unsigned managed = 0;
    if (call->status == CUDA_SUCCESS) {
        tow_drive(call->driver, cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                                       address);
    }
    if (managed) {
        call->status =
            tows_mirror_add_managed(call->session, address, size, owner, call->frame.context);
    }
    tow_enc_u64(&call->out, address);
    tow_enc_u64(&call->out, size);
    tow_enc_u32(&call->out, managed);
}

void tows_serve_cuModuleGetGlobal_v2(struct tows_serve *call)
{
    const char *name;
    uint64_t id;
    CUmodule module = symbol_take(call, TOW_H_MODULE, &id, &name);
    CUdeviceptr address = 0;
    size_t size = 0;
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuModuleGetGlobal_v2)(&address, &size, module, name);
        symbol_reply(call, id, address, size);
    }
}

void tows_serve_cuLibraryGetGlobal(struct tows_serve *call)
{
    const char *name;
    uint64_t id;
    CUlibrary library = symbol_take(call, TOW_H_LIBRARY, &id, &name);
    CUdeviceptr address = 0;
    size_t size = 0;
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuLibraryGetGlobal)(&address, &size, library, name);
        symbol_reply(call, id, address, size);
    }
}

/* The runtime asks for managed variables before the program has a context: they are made in the
 * primary context of the first device then, which the session keeps. */
void tows_serve_cuLibraryGetManaged(struct tows_serve *call)
{
    const char *name;
    uint64_t id;
    CUlibrary library = symbol_take(call, TOW_H_LIBRARY, &id, &name);
    CUdeviceptr address = 0;
    size_t size = 0;
    if (!tows_serve_ready(call)) {
        return;
    }
    if (call->frame.context == 0) {
        call->status = tows_session_enter_primary(call->session);
    }
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuLibraryGetManaged)(&address, &size, library, name);
    }
    symbol_reply(call, id, address, size);
}
