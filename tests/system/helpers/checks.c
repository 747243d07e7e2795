/* SPDX-License-Identifier: Apache-2.0 */
/* checks ROUNDS SEED: a program that checks everything that a line carries, so that what was lost
 * or came twice shows: kernels, copies both ways of many sizes, commands without replies, host
 * functions, device printf, mirrored memory, loading of modules, on all of a session's
 * connections. It prints what the device printed,
 * and "done". Exit code 1 and a line on stderr: something was wrong. */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text[] =
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    ".global .align 1 .b8 form[10] = {114, 111, 117, 110, 100, 32, 37, 117, 10, 0};\n"
    ".visible .entry add(.param .u64 at, .param .u32 n, .param .u32 by)\n"
    "{\n"
    "    .reg .pred %p<2>;\n"
    "    .reg .b32 %r<9>;\n"
    "    .reg .b64 %rd<5>;\n"
    "    ld.param.u64 %rd1, [at];\n"
    "    ld.param.u32 %r1, [n];\n"
    "    ld.param.u32 %r2, [by];\n"
    "    mov.u32 %r3, %ctaid.x;\n"
    "    mov.u32 %r4, %ntid.x;\n"
    "    mov.u32 %r5, %tid.x;\n"
    "    mad.lo.u32 %r6, %r3, %r4, %r5;\n"
    "    setp.ge.u32 %p1, %r6, %r1;\n"
    "    @%p1 bra end;\n"
    "    mul.wide.u32 %rd2, %r6, 4;\n"
    "    add.u64 %rd3, %rd1, %rd2;\n"
    "    ld.global.u32 %r7, [%rd3];\n"
    "    add.u32 %r8, %r7, %r2;\n"
    "    st.global.u32 [%rd3], %r8;\n"
    "end:\n"
    "    ret;\n"
    "}\n"
    ".visible .entry say(.param .u32 what)\n"
    "{\n"
    "    .local .align 8 .b8 words[8];\n"
    "    .reg .b32 %r<3>;\n"
    "    .reg .b64 %rd<5>;\n"
    "    ld.param.u32 %r1, [what];\n"
    "    mov.u64 %rd1, words;\n"
    "    cvta.local.u64 %rd2, %rd1;\n"
    "    st.local.u32 [words], %r1;\n"
    "    mov.u64 %rd3, form;\n"
    "    cvta.global.u64 %rd4, %rd3;\n"
    "    {\n"
    "        .param .b64 f;\n"
    "        .param .b64 a;\n"
    "        .param .b32 r;\n"
    "        st.param.b64 [f], %rd4;\n"
    "        st.param.b64 [a], %rd2;\n"
    "        call.uni (r), vprintf, (f, a);\n"
    "        ld.param.b32 %r2, [r];\n"
    "    }\n"
    "    ret;\n"
    "}\n";

/* Kernels change the first of them only: what is tested is how they get there. */
enum { WORDS = 1 << 19, CHANGED = 1 << 14, LAUNCHES = 40, LARGE = 3 << 19 };

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 24) % below;
}

static bool right = true;

static void check(bool good, const char *what, int round)
{
    if (!good) {
        fprintf(stderr, "round %d: %s\n", round, what);
        right = false;
    }
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "round %d: %s is %d\n", round, #call, (int)result_);                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void called(void *user)
{
    ++*(int *)user;
}

/* All that kernels write is in memory that they share with the program, or comes by copies. */
static void round_of(int round, CUdeviceptr device, uint32_t *host, uint32_t *shared,
                     CUstream stream)
{
    static int calls;
    CUmodule module;
    CUfunction add, say;
    CUdeviceptr mapped;
    uint32_t n = 1 + draw(WORDS), by = draw(1000) + 1, count = n < CHANGED ? n : CHANGED;
    const uint32_t start = (uint32_t)round * 77u;
    void *arguments[] = {&device, &count, &by};
    TRY(cuModuleLoadData(&module, text));
    TRY(cuModuleGetFunction(&add, module, "add"));
    TRY(cuModuleGetFunction(&say, module, "say"));
    for (uint32_t i = 0; i < n; i++) {
        host[i] = start + i;
    }
    TRY(cuMemcpyHtoD(device, host, n * sizeof *host));
    memset(host, 0xee, n * sizeof *host); /* the copy has its bytes */
    for (int i = 0; i < LAUNCHES; i++) {
        TRY(cuLaunchKernel(add, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
    }
    TRY(cuStreamSynchronize(stream));
    TRY(cuMemcpyDtoH(host, device, n * sizeof *host));
    bool same = true;
    for (uint32_t i = 0; i < n && same; i++) {
        uint32_t wanted = start + i + (i < CHANGED ? LAUNCHES * by : 0);
        same = host[i] == wanted;
        if (!same) {
            fprintf(stderr, "word %u of %u is %#x, not %#x; each launch adds %#x\n", i, n, host[i],
                    wanted, by);
        }
    }
    check(same, "what came back is not what the kernels made", round);

    uint32_t what = (uint32_t)round;
    void *words[] = {&what};
    TRY(cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, stream, words, NULL));
    TRY(cuMemHostGetDevicePointer(&mapped, shared, 0));
    count = 1000 + draw(3000);
    for (uint32_t i = 0; i < count; i++) {
        shared[i] = start ^ i;
    }
    void *on_shared[] = {&mapped, &count, &by};
    TRY(cuLaunchKernel(add, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, on_shared, NULL));
    int before = calls;
    if (round % 4 == 3) {
        TRY(cuLaunchHostFunc(stream, called, &calls));
    }
    TRY(cuStreamSynchronize(stream));
    check(calls == before + (round % 4 == 3), "the host function was not called once", round);
    same = true;
    for (uint32_t i = 0; i < count; i++) {
        same = same && shared[i] == (start ^ i) + by;
    }
    check(same, "mirrored memory is not what the kernel made", round);
    TRY(cuModuleUnload(module));
}

/* Copies that are spread over the session's connections. */
static void large_copies(int round, CUdeviceptr device, uint32_t *host)
{
    uint32_t n = LARGE - draw(1000), salt = draw(1u << 30);
    for (uint32_t i = 0; i < n; i++) {
        host[i] = salt ^ i * 2654435761u;
    }
    TRY(cuMemcpyHtoD(device, host, n * sizeof *host));
    memset(host, 0xee, n * sizeof *host);
    TRY(cuMemcpyDtoH(host, device, n * sizeof *host));
    bool same = true;
    for (uint32_t i = 0; i < n; i++) {
        same = same && host[i] == (salt ^ i * 2654435761u);
    }
    check(same, "what came back is not what was copied", round);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1, round = -1;
    CUdevice gpu;
    CUcontext context;
    CUstream stream;
    CUdeviceptr device;
    uint32_t *host = malloc(LARGE * sizeof *host), *shared;
    seed = 88172645463325252u ^ (argc > 2 ? strtoull(argv[2], NULL, 0) << 20 : 0);
    TRY(cuInit(0));
    TRY(cuDeviceGet(&gpu, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, gpu));
    TRY(cuCtxSetCurrent(context));
    /* Behind the copies, which may return before the device has what they copied. */
    TRY(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    TRY(cuMemAlloc(&device, LARGE * sizeof *host));
    TRY(cuMemHostAlloc((void **)&shared, 16384, CU_MEMHOSTALLOC_DEVICEMAP));
    for (round = 0; round < rounds && right; round++) {
        round_of(round, device, host, shared, stream);
        if (round % 3 == 0) {
            large_copies(round, device, host);
        }
    }
    fflush(stdout);
    printf("done\n");
    free(host);
    return right ? 0 : 1;
}
