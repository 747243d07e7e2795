/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver-API programs share: checks, a context, a few kernels in PTX.
 *
 * Each program is an ordinary one, linked to libcuda, and is run through client and server over
 * every transport.
 */
#ifndef TOW_TESTS_API_H
#define TOW_TESTS_API_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

static int api_failures;

static inline void api_fail(const char *file, int line, const char *what, long long got,
                            long long wanted)
{
    const char *name = file + strlen(file);
    while (name > file && name[-1] != '/') {
        name--;
    }
    printf("%s:%d: %s is %lld, not %lld\n", name, line, what, got, wanted);
    api_failures++;
}

#define EQUAL(expression, wanted)                                                                  \
    do {                                                                                           \
        long long got_ = (long long)(expression), wanted_ = (long long)(wanted);                   \
        if (got_ != wanted_) {                                                                     \
            api_fail(__FILE__, __LINE__, #expression, got_, wanted_);                              \
        }                                                                                          \
    } while (0)
#define OK(call) EQUAL(call, CUDA_SUCCESS)
#define TRUE(expression) EQUAL(!!(expression), 1)

/* add(int *data, int count, int by): data[i] += by; copy(int *to, const int *from, int count);
 * spin(int *word): waits until *word is not 0 (bounded), then adds 1 to word[1]. */
static const char api_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 counter = 7;\n"
    ".visible .entry add(.param .u64 p0, .param .u32 p1, .param .u32 p2)\n{\n"
    ".reg .u64 %a, %o; .reg .u32 %i, %n, %b, %t, %c, %v; .reg .pred %p;\n"
    "ld.param.u64 %a, [p0]; ld.param.u32 %n, [p1]; ld.param.u32 %b, [p2];\n"
    "mov.u32 %i, %ctaid.x; mov.u32 %c, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %c, %t;\n"
    "setp.ge.u32 %p, %i, %n; @%p bra done;\n"
    "mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; ld.global.u32 %v, [%a]; add.u32 %v, %v, %b; "
    "st.global.u32 [%a], %v;\n"
    "done: ret;\n}\n"
    ".visible .entry copy(.param .u64 p0, .param .u64 p1, .param .u32 p2)\n{\n"
    ".reg .u64 %a, %b, %o; .reg .u32 %i, %n, %t, %c, %v; .reg .pred %p;\n"
    "ld.param.u64 %a, [p0]; ld.param.u64 %b, [p1]; ld.param.u32 %n, [p2];\n"
    "mov.u32 %i, %ctaid.x; mov.u32 %c, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %c, %t;\n"
    "setp.ge.u32 %p, %i, %n; @%p bra done;\n"
    "mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; add.u64 %b, %b, %o; ld.global.u32 %v, [%b]; "
    "st.global.u32 [%a], %v;\n"
    "done: ret;\n}\n";

/* Whether Towline is what serves this program: some of what it promises, NVIDIA's driver does not.
 */
static inline bool api_is_remote(void)
{
    return getenv("TOWLINE_SERVER") != NULL;
}

/* Whether this is the software GPU. */
static inline bool api_is_soft(void)
{
    char name[64] = "";
    OK(cuDeviceGetName(name, sizeof name, 0));
    return strcmp(name, "Towline Software GPU") == 0;
}

struct api {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction add, copy;
};

static inline void api_begin_on(struct api *api, int ordinal)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    OK(cuInit(0));
    OK(cuDeviceGet(&api->device, ordinal));
    OK(cuDevicePrimaryCtxRetain(&api->context, api->device));
    OK(cuCtxSetCurrent(api->context));
    OK(cuModuleLoadData(&api->module, api_ptx));
    OK(cuModuleGetFunction(&api->add, api->module, "add"));
    OK(cuModuleGetFunction(&api->copy, api->module, "copy"));
    if (api_failures != 0) {
        exit(1);
    }
}

static inline void api_begin(struct api *api)
{
    api_begin_on(api, 0);
}

static inline CUresult api_add(struct api *api, CUdeviceptr data, int count, int by,
                               CUstream stream)
{
    void *params[] = {&data, &count, &by};
    return cuLaunchKernel(api->add, (unsigned)(count + 63) / 64, 1, 1, 64, 1, 1, 0, stream, params,
                          NULL);
}

static inline int api_end(struct api *api)
{
    OK(cuModuleUnload(api->module));
    OK(cuDevicePrimaryCtxRelease(api->device));
    printf("%s\n", api_failures == 0 ? "OK" : "FAILED");
    return api_failures != 0;
}

/* A host function that holds its stream up, and a thread that lets it go after a while. */
static sem_t api_gate;
static inline void api_pass_gate(void *user)
{
    (void)user;
    sem_wait(&api_gate);
}

static inline void *api_open_gate(void *user)
{
    (void)user;
    usleep(100000);
    sem_post(&api_gate);
    return NULL;
}

#endif
