/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the context, and so the server, that has a side of a copy. */
#include "client/copy/owner.h"

struct tow_context *tow_owner_of(const struct tow_region *region)
{
    if (tow_region_is_host(region) || region->link == NULL) {
        return NULL;
    }
    struct tow_context *context =
        region->context != NULL ? tow_context_find(region->context) : NULL;
    return context != NULL ? context : tow_context_primary(region->device);
}

struct tow_context *tow_owner_at(CUdeviceptr address)
{
    struct tow_region region;
    return tow_region_find(address, &region) ? tow_owner_of(&region) : NULL;
}

bool tow_owner_is_elsewhere(const struct tow_context *owner)
{
    const struct tow_context *here = tow_context_current();
    return here != NULL && owner != NULL && owner->link != here->link;
}

static struct tow_context *owner_of_side(CUmemorytype type, CUdeviceptr address, CUcontext given)
{
    struct tow_context *context = NULL;
    if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) {
        context = tow_owner_at(address);
    }
    if (context == NULL && given != NULL &&
        (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY)) {
        context = tow_context_find(given);
    }
    return context != NULL ? context : tow_context_current();
}

struct tow_context *tow_owner_of_source(const CUDA_MEMCPY3D_PEER *p)
{
    return owner_of_side(p->srcMemoryType, p->srcDevice, p->srcContext);
}

struct tow_context *tow_owner_of_target(const CUDA_MEMCPY3D_PEER *p)
{
    return owner_of_side(p->dstMemoryType, p->dstDevice, p->dstContext);
}
