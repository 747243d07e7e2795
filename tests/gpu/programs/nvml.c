/* SPDX-License-Identifier: Apache-2.0 */
/* NVML opened at run time, as monitoring programs do: what it says of the GPU, and that its memory
 * agrees with CUDA's. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

static void check(int status, const char *what)
{
    if (status != 0) {
        fprintf(stderr, "FAILED: %s: %d\n", what, status);
        exit(1);
    }
}
#define CHECK(call) check((int)(call), #call)
#define EXPECT(condition) check((condition) ? 0 : 1, #condition)

struct memory {
    unsigned long long total, free, used;
};

static void *library;

/* A function of NVML by name. All of them return an int. */
static void *find(const char *name)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        fprintf(stderr, "FAILED: NVML has no %s\n", name);
        exit(1);
    }
    return function;
}

#define NVML(name, types) ((int(*) types)find(name))

/* Bytes in use, as NVML tells them. */
static struct memory ask(void *device)
{
    struct memory memory;
    CHECK(NVML("nvmlDeviceGetMemoryInfo", (void *, struct memory *))(device, &memory));
    return memory;
}

int main(void)
{
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "FAILED: %s\n", dlerror());
        return 1;
    }
    char text[96] = "";
    unsigned devices = 0;
    int cuda_version = 0, count = 0;
    CHECK(NVML("nvmlInit_v2", (void))());
    CHECK(NVML("nvmlSystemGetDriverVersion", (char *, unsigned))(text, sizeof(text)));
    printf("driver %s\n", text);
    CHECK(NVML("nvmlSystemGetCudaDriverVersion_v2", (int *))(&cuda_version));
    printf("CUDA %d\n", cuda_version);
    CHECK(NVML("nvmlDeviceGetCount_v2", (unsigned *))(&devices));
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    printf("%u devices, CUDA says %d\n", devices, count);

    void *device = NULL;
    int major = 0, minor = 0, cuda_major = 0, cuda_minor = 0;
    CHECK(NVML("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device));
    CHECK(NVML("nvmlDeviceGetName", (void *, char *, unsigned))(device, text, sizeof(text)));
    printf("name %s\n", text);
    char name[96] = "";
    CHECK(cuDeviceGetName(name, sizeof(name), 0));
    EXPECT(strcmp(name, text) == 0);
    CHECK(NVML("nvmlDeviceGetUUID", (void *, char *, unsigned))(device, text, sizeof(text)));
    printf("UUID %s\n", text);
    CUuuid uuid;
    CHECK(cuDeviceGetUuid_v2(&uuid, 0));
    char digits[41] = "GPU-";
    for (int i = 0, at = 4; i < 16; i++) {
        at += sprintf(digits + at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                      (unsigned char)uuid.bytes[i]);
    }
    EXPECT(strcmp(digits, text) == 0);
    void *again = NULL;
    CHECK(NVML("nvmlDeviceGetHandleByUUID", (const char *, void **))(text, &again));
    EXPECT(again == device);
    CHECK(
        NVML("nvmlDeviceGetCudaComputeCapability", (void *, int *, int *))(device, &major, &minor));
    CHECK(cuDeviceGetAttribute(&cuda_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    CHECK(cuDeviceGetAttribute(&cuda_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    printf("capability %d.%d, CUDA says %d.%d\n", major, minor, cuda_major, cuda_minor);

    size_t total = 0, free_bytes = 0;
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemGetInfo(&free_bytes, &total));
    struct memory before = ask(device);
    printf("total memory %llu\n", before.total);
    EXPECT(before.total >= total && before.total - total < before.total / 20);
    EXPECT(before.used <= before.total && before.free <= before.total);

    /* Others use the GPU, too: what they free in between must not matter, so there are several
     * tries, the memory of each kept. */
    const size_t size = (size_t)512 << 20;
    int grew = 0;
    for (int i = 0; i < 5 && !grew; i++) {
        CUdeviceptr block;
        before = ask(device);
        CHECK(cuMemAlloc(&block, size));
        CHECK(cuMemsetD8(block, 1, size));
        CHECK(cuCtxSynchronize());
        struct memory after = ask(device);
        grew = after.used >= before.used + size && after.free + size <= before.free;
    }
    printf("the memory in use %s by what was allocated\n", grew ? "grows" : "DOES NOT GROW");
    CHECK(NVML("nvmlShutdown", (void))());
    printf("%s\n", grew ? "OK" : "FAILED");
    return !grew;
}
