/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the context, and so the server, that has an operand of a copy. */
#include "client/copy/owner.h"

struct towc_context *towc_owner_of(const struct towc_region *region)
{
    if (towc_region_is_host(region) || region->link == NULL) {
        return NULL;
    }
    struct towc_context *context =
        region->context != NULL ? towc_context_find(region->context) : NULL;
    return context != NULL ? context : towc_context_primary(region->device);
}

struct towc_context *towc_owner_at(CUdeviceptr address)
{
    struct towc_region region;
    return towc_region_find(address, &region) ? towc_owner_of(&region) : NULL;
}

bool towc_owner_is_elsewhere(const struct towc_context *owner)
{
    const struct towc_context *here = towc_context_current();
    return here != NULL && owner != NULL && owner->link != here->link;
}

static struct towc_context *owner_of_operand(CUmemorytype type, CUdeviceptr address,
                                             CUcontext given)
{
    struct towc_context *context = NULL;
    if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) {
        context = towc_owner_at(address);
    }
    if (context == NULL && given != NULL &&
        (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY)) {
        context = towc_context_find(given);
    }
    return context != NULL ? context : towc_context_current();
}

struct towc_context *towc_owner_of_source(const CUDA_MEMCPY3D_PEER *p)
{
    return owner_of_operand(p->srcMemoryType, p->srcDevice, p->srcContext);
}

struct towc_context *towc_owner_of_target(const CUDA_MEMCPY3D_PEER *p)
{
    return owner_of_operand(p->dstMemoryType, p->dstDevice, p->dstContext);
}
