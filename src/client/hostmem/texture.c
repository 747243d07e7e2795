/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of arrays, textures and surfaces: what is null is answered here. */
#include "client/stream/context.h"
#include "client/session/state.h"
#include "gen/texture_client.h"

/* Without a context, too. */
static CUresult no_array(void)
{
    CUresult state = tow_client_state();
    return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_HANDLE;
}

CUresult tow_cuArrayDestroy(CUarray hArray)
{
    return hArray != NULL ? tow_send_cuArrayDestroy(hArray) : no_array();
}

CUresult tow_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    return hMipmappedArray != NULL ? tow_send_cuMipmappedArrayDestroy(hMipmappedArray) : no_array();
}

/* In a context, no texture and no surface can be destroyed. */
CUresult tow_cuTexObjectDestroy(CUtexObject texObject)
{
    struct tow_link *link;
    return texObject != 0 ? tow_send_cuTexObjectDestroy(texObject) : tow_context_link(&link);
}

CUresult tow_cuSurfObjectDestroy(CUsurfObject surfObject)
{
    struct tow_link *link;
    return surfObject != 0 ? tow_send_cuSurfObjectDestroy(surfObject) : tow_context_link(&link);
}
