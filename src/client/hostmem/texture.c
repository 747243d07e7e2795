/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of arrays, textures and surfaces: what is null is answered here. */
#include "client/stream/context.h"
#include "client/session/state.h"
#include "gen/texture_client.h"

/* Without a context, too. */
static CUresult no_array(void)
{
    CUresult state = towc_client_state();
    return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_HANDLE;
}

CUresult towc_cuArrayDestroy(CUarray hArray)
{
    return hArray != NULL ? towc_send_cuArrayDestroy(hArray) : no_array();
}

CUresult towc_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    return hMipmappedArray != NULL ? towc_send_cuMipmappedArrayDestroy(hMipmappedArray)
                                   : no_array();
}

/* In a context, no texture and no surface can be destroyed. */
CUresult towc_cuTexObjectDestroy(CUtexObject texObject)
{
    struct towc_link *link;
    return texObject != 0 ? towc_send_cuTexObjectDestroy(texObject) : towc_context_link(&link);
}

CUresult towc_cuSurfObjectDestroy(CUsurfObject surfObject)
{
    struct towc_link *link;
    return surfObject != 0 ? towc_send_cuSurfObjectDestroy(surfObject) : towc_context_link(&link);
}
