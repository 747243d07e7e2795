/* SPDX-License-Identifier: Apache-2.0 */
/* The linker: collects PTX and hands it out as one text that a load takes apart again (image.c). */
#include "backend/soft/code/image.h"
#include "backend/soft/code/module.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"

#include <stdio.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "gen/module.h"

enum { ERRORS_MAX = 256 * 1024 };

struct link {
    struct tow_soft_object object;
    struct tow_soft_texts texts;
    struct tow_soft_jit jit; /* its buffers are the caller's until the link is destroyed */
    struct tow_buf errors;   /* all that was said so far, a text */
    int64_t spent_ns;        /* in compiler and linker */
    struct tow_buf image;    /* what cuLinkComplete returned */
    pthread_t thread;        /* that made it */
};

void tow_soft_link_end(struct tow_soft_object *object)
{
    struct link *link = (struct link *)object;
    tow_soft_object_remove(object);
    tow_soft_texts_fini(&link->texts);
    tow_buf_fini(&link->image);
    tow_buf_fini(&link->errors);
    free(link);
}

/* What the options of cuLinkCreate ask for is written after each call. */
static void write_outputs(struct link *link, int64_t begin, const char *error)
{
    link->spent_ns += tow_time_now_ns() - begin;
    if (*error != '\0') {
        tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR, "link: %s", error);
        tow_buf_printf(&link->errors, "%s%s", link->errors.size > 0 ? "\n" : "", error);
    }
    if (tow_buf_append(&link->errors, "", 1) == 0) {
        link->errors.size--;
    }
    tow_soft_jit_done(&link->jit, link->spent_ns, "",
                      link->errors.data != NULL ? (const char *)link->errors.data : "");
}

static CUresult enter_link(CUlinkState state, struct link **ret_link)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct link *link = tow_soft_lookup(TOW_SOFT_LINK, TOW_SOFT_HANDLE(state));
    if (link == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    /* NVIDIA's linker remembers things by thread, and fails later if others come to it. */
    if (tow_soft.strict && !pthread_equal(link->thread, pthread_self())) {
        return tow_soft_leave(CUDA_ERROR_UNKNOWN);
    }
    *ret_link = link;
    return CUDA_SUCCESS;
}

static CUresult soft_cuLinkCreate(unsigned int numOptions, CUjit_option *options,
                                  void **optionValues, CUlinkState *stateOut)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (stateOut == NULL || (numOptions != 0 && (options == NULL || optionValues == NULL))) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    int64_t begin = tow_time_now_ns();
    struct tow_soft_jit jit;
    result = tow_soft_jit_parse(numOptions, options, optionValues, &jit);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct link *link = calloc(1, sizeof *link);
    if (link == NULL || tow_soft_object_add(&link->object, TOW_SOFT_LINK, ctx) != 0) {
        free(link);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    link->thread = pthread_self();
    link->jit = jit;
    tow_buf_init(&link->image, TOW_SOFT_IMAGE_MAX);
    tow_buf_init(&link->errors, ERRORS_MAX);
    write_outputs(link, begin, "");
    *stateOut = TOW_SOFT_POINTER(link->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

/* What came from `first` on must be PTX by itself; what it lacks others may still bring. If it is
 * not, none of it is linked. */
static CUresult check_texts(struct link *link, size_t first, char *why, size_t why_size)
{
    struct tow_soft_texts *texts = &link->texts;
    struct tow_ptx_diag diag = {0};
    int rc = 0;
    for (size_t i = first; i < texts->count && (rc == 0 || rc == -ENOENT); i++) {
        struct tow_ptx_module *ptx = NULL;
        rc = tow_ptx_load(&texts->texts[i], 1, &diag, &ptx);
        tow_ptx_unload(ptx);
    }
    if (rc == 0 || rc == -ENOENT) {
        return CUDA_SUCCESS;
    }
    while (texts->count > first) {
        texts->count--;
        free((char *)texts->texts[texts->count].text);
        free((char *)texts->texts[texts->count].name);
    }
    snprintf(why, why_size, "PTX line %u: %s", diag.line, diag.message);
    return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
}

static CUresult link_add(struct link *link, CUjitInputType type, const void *data, size_t size)
{
    char why[640] = "";
    CUresult result;
    int64_t begin = tow_time_now_ns();
    size_t first = link->texts.count;
    switch (type) {
    case CU_JIT_INPUT_PTX:
    case CU_JIT_INPUT_FATBINARY:
        result = tow_soft_image_texts(data, size, &link->texts, why, sizeof why);
        if (result == CUDA_SUCCESS) {
            result = check_texts(link, first, why, sizeof why);
        }
        break;
    case CU_JIT_INPUT_CUBIN:
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
        snprintf(
            why, sizeof why,
            "The software GPU links PTX and fat binaries that hold PTX, not machine code; give "
            "the linker the PTX.");
        result = CUDA_ERROR_NO_BINARY_FOR_GPU;
        break;
    case CU_JIT_INPUT_NVVM:
        snprintf(why, sizeof why,
                 "The software GPU has no compiler for NVVM bitcode; give the linker PTX.");
        result = CUDA_ERROR_NOT_SUPPORTED;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    write_outputs(link, begin, result != CUDA_SUCCESS ? why : "");
    return result;
}

/* Logs, their time and their target are the whole link's. */
static bool are_of_an_input(unsigned count, const CUjit_option *options)
{
    for (unsigned i = 0; i < count; i++) {
        switch (options[i]) {
        case CU_JIT_WALL_TIME:
        case CU_JIT_INFO_LOG_BUFFER:
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        case CU_JIT_ERROR_LOG_BUFFER:
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        case CU_JIT_TARGET_FROM_CUCONTEXT:
        case CU_JIT_TARGET:
            return false;
        default:
            break;
        }
    }
    return true;
}

static CUresult soft_cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                                   const char *name, unsigned int numOptions, CUjit_option *options,
                                   void **optionValues)
{
    (void)name;
    struct link *link;
    CUresult result = enter_link(state, &link);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_jit jit;
    result = tow_soft_jit_parse(numOptions, options, optionValues, &jit);
    if (result != CUDA_SUCCESS || !are_of_an_input(numOptions, options) || data == NULL ||
        size == 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return tow_soft_leave(link_add(link, type, data, size));
}

static CUresult soft_cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
                                   unsigned int numOptions, CUjit_option *options,
                                   void **optionValues)
{
    if (path == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_buf buf;
    tow_buf_init(&buf, TOW_SOFT_IMAGE_MAX);
    int rc = tow_file_read(path, &buf);
    if (rc != 0) {
        tow_buf_fini(&buf);
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    CUresult result = soft_cuLinkAddData(state, type, buf.data, buf.size, path, numOptions, options,
                                         optionValues);
    tow_buf_fini(&buf);
    return result;
}

static CUresult soft_cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    struct link *link;
    CUresult result = enter_link(state, &link);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (cubinOut == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    /* Without an input it is a module that has nothing. */
    static const char nothing[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
    if (link->texts.count == 0 &&
        tow_soft_texts_add(&link->texts, nothing, sizeof nothing - 1, NULL) != 0) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    /* Loaded once here, so that the linker reports what does not link. */
    int64_t begin = tow_time_now_ns();
    struct tow_ptx_diag diag = {0};
    struct tow_ptx_module *ptx = NULL;
    int rc = tow_ptx_load(link->texts.texts, link->texts.count, &diag, &ptx);
    const struct tow_ptx_undefined *undefined = rc == 0 ? tow_soft_undefined(ptx) : NULL;
    if (undefined != NULL) {
        rc = -ENOENT;
        diag.line = undefined->line;
        snprintf(diag.message, sizeof diag.message,
                 "function '%.200s' is called but no text defines it", undefined->name);
    }
    tow_ptx_unload(ptx);
    if (rc != 0) {
        char why[640];
        snprintf(why, sizeof why, "PTX line %u: %s", diag.line, diag.message);
        write_outputs(link, begin, why);
        return tow_soft_leave(rc == -ENOENT   ? CUDA_ERROR_UNKNOWN
                              : rc == -EEXIST ? CUDA_ERROR_INVALID_SOURCE
                                              : CUDA_ERROR_INVALID_PTX);
    }
    tow_buf_clear(&link->image);
    rc = tow_buf_printf(&link->image, "// towline linked");
    for (size_t i = 0; i < link->texts.count && rc >= 0; i++) {
        rc = tow_buf_printf(&link->image, " %zu", link->texts.texts[i].length);
    }
    rc = rc >= 0 ? tow_buf_append(&link->image, "\n", 1) : rc;
    for (size_t i = 0; i < link->texts.count && rc >= 0; i++) {
        rc = tow_buf_append(&link->image, link->texts.texts[i].text, link->texts.texts[i].length);
    }
    rc = rc >= 0 ? tow_buf_append(&link->image, "", 1) : rc;
    if (rc < 0) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    write_outputs(link, begin, "");
    *cubinOut = link->image.data;
    if (sizeOut != NULL) {
        *sizeOut = link->image.size;
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuLinkDestroy(CUlinkState state)
{
    struct link *link;
    CUresult result = enter_link(state, &link);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    tow_soft_link_end(&link->object);
    return tow_soft_leave(CUDA_SUCCESS);
}

void tow_soft_fill_link(struct tow_driver *driver)
{
    tow_driver_set(driver, cuLinkCreate, soft_cuLinkCreate);
    tow_driver_set(driver, cuLinkCreate_v2, soft_cuLinkCreate);
    tow_driver_set(driver, cuLinkAddData, soft_cuLinkAddData);
    tow_driver_set(driver, cuLinkAddData_v2, soft_cuLinkAddData);
    tow_driver_set(driver, cuLinkAddFile, soft_cuLinkAddFile);
    tow_driver_set(driver, cuLinkAddFile_v2, soft_cuLinkAddFile);
    tow_driver_set(driver, cuLinkComplete, soft_cuLinkComplete);
    tow_driver_set(driver, cuLinkDestroy, soft_cuLinkDestroy);
}
