/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts. The software GPU shares out its processors on paper only: a green context's
 * kernels run wherever a thread is free, as if the shares were equal to what is asked for. */
#include "backend/soft/entry/entry.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/stream/event.h"
#include "gen/context.h"
#include "gen/device.h"
#include "gen/green.h"
#include "gen/stream.h"

#include <stdlib.h>
#include <string.h>

/* A description of resources; the driver API has no way to end one. */
struct tow_soft_resources {
    struct tow_soft_object object;
    struct tow_soft_resources *next; /* in `descriptions` */
    unsigned processors;
};

struct tow_soft_green {
    struct tow_soft_object object;
    struct tow_soft_green *next; /* in `greens` */
    CUcontext context;           /* owned: an ordinary one */
    unsigned processors;
    uint64_t id;
};

/* Guarded by tow_soft.lock. */
static struct tow_soft_resources *descriptions; /* owned */
static struct tow_soft_green *greens;           /* owned */

/* Functions of other families, as the table has them. */
static CUresult (*context_create)(CUcontext *, unsigned, CUdevice);
static CUresult (*context_destroy)(CUcontext);
static CUresult (*context_push)(CUcontext);
static CUresult (*context_pop)(CUcontext *);
static CUresult (*stream_create)(CUstream *, unsigned, int);
static CUresult (*stream_context)(CUstream, CUcontext *);
static CUresult (*attribute)(int *, CUdevice_attribute, CUdevice);

static CUdevResource resource_of(unsigned processors)
{
    CUdevResource resource;
    memset(&resource, 0, sizeof resource);
    resource.type = CU_DEV_RESOURCE_TYPE_SM;
    resource.sm.smCount = processors;
    resource.sm.minSmPartitionSize = 1;
    resource.sm.smCoscheduledAlignment = 1;
    return resource;
}

static CUresult soft_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
                                            CUdevResourceType type)
{
    int count = 0;
    if (resource == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    CUresult result = attribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    if (result == CUDA_SUCCESS) {
        *resource = resource_of((unsigned)count);
    }
    return result;
}

/* With the lock held. */
static struct tow_soft_green *green_of(CUcontext context)
{
    struct tow_soft_green *green = greens;
    while (green != NULL && green->context != context) {
        green = green->next;
    }
    return green;
}

static CUresult soft_cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource,
                                         CUdevResourceType type)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_ctx *ctx =
        hCtx != NULL ? tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(hCtx)) : tow_soft_current();
    if (ctx == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    const struct tow_soft_green *green = green_of(TOW_SOFT_POINTER(ctx->object.handle));
    unsigned processors = green != NULL ? green->processors : 0;
    int ordinal = ctx->device->ordinal;
    tow_soft_leave(CUDA_SUCCESS);
    result = soft_cuDeviceGetDevResource(ordinal, resource, type);
    if (result == CUDA_SUCCESS && processors != 0) {
        *resource = resource_of(processors);
    }
    return result;
}

static CUresult soft_cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource,
                                              CUdevResourceType type)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct tow_soft_green *green = tow_soft_lookup(TOW_SOFT_GREEN, TOW_SOFT_HANDLE(hCtx));
    if (green == NULL || resource == NULL) {
        return tow_soft_leave(green == NULL ? CUDA_ERROR_INVALID_CONTEXT
                                            : CUDA_ERROR_INVALID_VALUE);
    }
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
        return tow_soft_leave(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    *resource = resource_of(green->processors);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *nbGroups,
                                                 const CUdevResource *input,
                                                 CUdevResource *remaining, unsigned int useFlags,
                                                 unsigned int minCount)
{
    (void)useFlags;
    if (nbGroups == NULL || input == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    unsigned size = minCount > 0 ? minCount : 1;
    unsigned possible = input->sm.smCount / size;
    if (possible == 0) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    unsigned count = groups != NULL && *nbGroups < possible ? *nbGroups : possible;
    for (unsigned i = 0; groups != NULL && i < count; i++) {
        groups[i] = resource_of(size);
    }
    if (remaining != NULL) {
        *remaining = resource_of(input->sm.smCount - count * size);
        if (remaining->sm.smCount == 0) {
            remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
        }
    }
    *nbGroups = count;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                               unsigned int nbResources)
{
    if (phDesc == NULL || resources == NULL || nbResources == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned processors = 0;
    for (unsigned i = 0; i < nbResources; i++) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM || resources[i].sm.smCount == 0) {
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        }
        processors += resources[i].sm.smCount;
    }
    struct tow_soft_resources *made = calloc(1, sizeof *made);
    CUresult result = made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    made->processors = processors;
    if (tow_soft_object_add(&made->object, TOW_SOFT_RESOURCES, NULL) != 0) {
        free(made);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->next = descriptions;
    descriptions = made;
    *phDesc = TOW_SOFT_POINTER(made->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                                      unsigned int flags)
{
    if (phCtx == NULL || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUcontext context = NULL;
    int all = 0; /* what a green context without a description gets */
    CUresult result = attribute(&all, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev);
    if (result == CUDA_SUCCESS) {
        result = context_create(&context, 0, dev);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUcontext popped = NULL;
    context_pop(&popped);
    struct tow_soft_green *green = calloc(1, sizeof *green);
    result = tow_soft_enter_any();
    const struct tow_soft_resources *resources =
        desc != NULL ? tow_soft_lookup(TOW_SOFT_RESOURCES, TOW_SOFT_HANDLE(desc)) : NULL;
    if (desc != NULL && resources == NULL) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else if (green == NULL || tow_soft_object_add(&green->object, TOW_SOFT_GREEN, NULL) != 0) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        green->context = context;
        green->processors = resources != NULL ? resources->processors : (unsigned)all;
        green->id = ++tow_soft.next_id;
        green->next = greens;
        greens = green;
        *phCtx = TOW_SOFT_POINTER(green->object.handle);
    }
    tow_soft_leave(result);
    if (result != CUDA_SUCCESS) {
        free(green);
        context_destroy(context);
    }
    return result;
}

/* Finds one; locked afterwards only on success. */
static CUresult enter_green(CUgreenCtx handle, struct tow_soft_green **ret_green)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_green = tow_soft_lookup(TOW_SOFT_GREEN, TOW_SOFT_HANDLE(handle));
    return *ret_green == NULL ? tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT) : CUDA_SUCCESS;
}

static CUresult soft_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    struct tow_soft_green *green;
    CUresult result = enter_green(hCtx, &green);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_green **at = &greens;
    while (*at != green) {
        at = &(*at)->next;
    }
    *at = green->next;
    tow_soft_object_remove(&green->object);
    tow_soft_leave(CUDA_SUCCESS);
    result = context_destroy(green->context);
    free(green);
    return result;
}

/* The ordinary context of a green one; locked on success. */
static CUresult enter_context(CUgreenCtx handle, struct tow_soft_ctx **ret_ctx)
{
    struct tow_soft_green *green;
    CUresult result = enter_green(handle, &green);
    if (result == CUDA_SUCCESS) {
        *ret_ctx = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(green->context));
        result = *ret_ctx != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    return result;
}

static CUresult soft_cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    struct tow_soft_ctx *ctx;
    CUresult result = enter_context(hCtx, &ctx);
    return result != CUDA_SUCCESS ? result : tow_soft_leave(tow_soft_event_record_all(hEvent, ctx));
}

static CUresult soft_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    struct tow_soft_ctx *ctx;
    CUresult result = enter_context(hCtx, &ctx);
    return result != CUDA_SUCCESS ? result : tow_soft_leave(tow_soft_event_wait_all(hEvent, ctx));
}

static CUresult soft_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    struct tow_soft_green *green;
    CUresult result = pContext == NULL ? CUDA_ERROR_INVALID_VALUE : enter_green(hCtx, &green);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *pContext = green->context;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    struct tow_soft_green *green;
    CUresult result = greenCtxId == NULL ? CUDA_ERROR_INVALID_VALUE : enter_green(greenCtx, &green);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *greenCtxId = green->id;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx,
                                            unsigned int flags, int priority)
{
    struct tow_soft_green *green;
    if (phStream == NULL || flags != CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_green(greenCtx, &green);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUcontext context = green->context, popped = NULL;
    tow_soft_leave(CUDA_SUCCESS);
    result = context_push(context);
    if (result == CUDA_SUCCESS) {
        result = stream_create(phStream, flags, priority);
        context_pop(&popped);
    }
    return result;
}

static CUresult soft_cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    CUcontext context = NULL;
    CUresult result = phCtx == NULL ? CUDA_ERROR_INVALID_VALUE : stream_context(hStream, &context);
    if (result == CUDA_SUCCESS) {
        result = tow_soft_enter_any();
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct tow_soft_green *green = green_of(context);
    *phCtx = green != NULL ? TOW_SOFT_POINTER(green->object.handle) : NULL;
    return tow_soft_leave(CUDA_SUCCESS);
}

void tow_soft_greens_free(void)
{
    while (greens != NULL) {
        struct tow_soft_green *green = greens;
        greens = green->next;
        tow_soft_object_remove(&green->object);
        free(green); /* its context is among all contexts */
    }
    while (descriptions != NULL) {
        struct tow_soft_resources *description = descriptions;
        descriptions = description->next;
        tow_soft_object_remove(&description->object);
        free(description);
    }
}

void tow_soft_fill_green(struct tow_driver *driver)
{
    context_create = tow_drive(driver, cuCtxCreate_v2);
    context_destroy = tow_drive(driver, cuCtxDestroy_v2);
    context_push = tow_drive(driver, cuCtxPushCurrent_v2);
    context_pop = tow_drive(driver, cuCtxPopCurrent_v2);
    stream_create = tow_drive(driver, cuStreamCreateWithPriority);
    stream_context = tow_drive(driver, cuStreamGetCtx);
    attribute = tow_drive(driver, cuDeviceGetAttribute);
    tow_driver_set(driver, cuGreenCtxRecordEvent, soft_cuGreenCtxRecordEvent);
    tow_driver_set(driver, cuGreenCtxWaitEvent, soft_cuGreenCtxWaitEvent);
    tow_driver_set(driver, cuDeviceGetDevResource, soft_cuDeviceGetDevResource);
    tow_driver_set(driver, cuCtxGetDevResource, soft_cuCtxGetDevResource);
    tow_driver_set(driver, cuGreenCtxGetDevResource, soft_cuGreenCtxGetDevResource);
    tow_driver_set(driver, cuDevSmResourceSplitByCount, soft_cuDevSmResourceSplitByCount);
    tow_driver_set(driver, cuDevResourceGenerateDesc, soft_cuDevResourceGenerateDesc);
    tow_driver_set(driver, cuGreenCtxCreate, soft_cuGreenCtxCreate);
    tow_driver_set(driver, cuGreenCtxDestroy, soft_cuGreenCtxDestroy);
    tow_driver_set(driver, cuCtxFromGreenCtx, soft_cuCtxFromGreenCtx);
    tow_driver_set(driver, cuGreenCtxGetId, soft_cuGreenCtxGetId);
    tow_driver_set(driver, cuGreenCtxStreamCreate, soft_cuGreenCtxStreamCreate);
    tow_driver_set(driver, cuStreamGetGreenCtx, soft_cuStreamGetGreenCtx);
}
