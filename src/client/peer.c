#include "client/peer.h"

#include <stdlib.h>

#include "client/region.h"
#include "gen/client_api.h"

enum { PIECE = 8 << 20 }; /* bytes on their way at a time */

/* The context in which memory is copied: the one it was made in, else its device's primary one.
 * NULL: host memory, or memory that only the current context's server can know. */
static struct tow_context *owner_of(CUdeviceptr address)
{
    struct tow_region region;
    if (!tow_region_find(address, &region) || tow_region_is_host(&region) || region.link == NULL) {
        return NULL;
    }
    struct tow_context *context = region.context != NULL ? tow_context_find(region.context) : NULL;
    return context != NULL ? context : tow_context_primary(region.device);
}

bool tow_peer_elsewhere(CUdeviceptr address)
{
    if (tow_client_link_count() < 2) {
        return false;
    }
    const struct tow_context *here = tow_context_current();
    const struct tow_context *owner = owner_of(address);
    return here != NULL && owner != NULL && owner->link != here->link;
}

static CUresult read_piece(struct tow_context *context, void *into, CUdeviceptr from, size_t size)
{
    CUresult status = tow_cuCtxPushCurrent_v2(context->handle);
    if (status == CUDA_SUCCESS) {
        status = tow_cuMemcpyDtoH_v2(into, from, size);
        tow_cuCtxPopCurrent_v2(NULL);
    }
    return status;
}

static CUresult write_piece(struct tow_context *context, CUdeviceptr to, const void *from,
                            size_t size)
{
    CUresult status = tow_cuCtxPushCurrent_v2(context->handle);
    if (status == CUDA_SUCCESS) {
        status = tow_cuMemcpyHtoD_v2(to, from, size);
        if (status == CUDA_SUCCESS) {
            /* Streams that do not wait for the default stream must find it too. */
            status = tow_send_cuStreamSynchronize(tow_default_stream());
        }
        tow_cuCtxPopCurrent_v2(NULL);
    }
    return status;
}

CUresult tow_peer_copy(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    bool to_device = tow_region_is_device(dst), from_device = tow_region_is_device(src);
    struct tow_context *here = tow_context_current();
    struct tow_context *to = to_device ? owner_of(dst) : NULL;
    struct tow_context *from = from_device ? owner_of(src) : NULL;
    to = to != NULL ? to : here;
    from = from != NULL ? from : here;
    CUresult status = tow_cuStreamSynchronize(stream);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (to_device && !from_device) {
        return write_piece(to, dst, (const void *)(uintptr_t)src, size);
    }
    if (!to_device) {
        return read_piece(from, (void *)(uintptr_t)dst, src, size);
    }
    void *piece = malloc(size < PIECE ? size : PIECE);
    if (piece == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t done = 0; done < size && status == CUDA_SUCCESS;) {
        size_t part = size - done < PIECE ? size - done : PIECE;
        status = read_piece(from, piece, src + done, part);
        if (status == CUDA_SUCCESS) {
            status = write_piece(to, dst + done, piece, part);
        }
        done += part;
    }
    free(piece);
    return status;
}
