/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of a library: each context has its own. */
#include "api.h"

static void a_new_context_has_new_variables(struct api *api)
{
    CUlibrary library;
    CUcontext context;
    CUdeviceptr at = 0, before = 0, room;
    size_t size = 0;
    int value = 0;
    OK(cuLibraryLoadData(&library, api_ptx, NULL, NULL, 0, NULL, NULL, 0));
    for (int i = 0; i < 4; i++) {
        OK(cuCtxCreate(&context, NULL, 0, api->device));
        /* It lies elsewhere than the one before. */
        OK(cuMemAlloc(&room, (size_t)(i % 2) * (4 << 20) + 256));
        OK(cuLibraryGetGlobal(&at, &size, library, "counter"));
        EQUAL(size, 4);
        OK(cuMemcpyDtoH(&value, at, sizeof value));
        EQUAL(value, 7);
        OK(cuMemsetD32(at, 100 + (unsigned)i, 1));
        OK(cuLibraryGetGlobal(&before, NULL, library, "counter"));
        TRUE(before == at);
        OK(cuCtxDestroy(context));
        OK(cuCtxSetCurrent(api->context));
    }
    OK(cuLibraryUnload(library));
}

int main(void)
{
    struct api api;
    api_begin(&api);
    a_new_context_has_new_variables(&api);
    return api_end(&api);
}
