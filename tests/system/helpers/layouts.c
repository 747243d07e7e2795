/* Loads an image and does one thing with each of its first N kernels, k0, k1, ...: (u64, u32) each.
 *
 *     layouts FILE module|library WHAT N
 *
 * WHAT: launch; wide, with blocks of 512 threads, twice; attributes, all of them; set, of dynamic
 * shared memory, and a launch with it; refused, launches that the driver refuses at the call; nodes
 * of a graph, three of each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static CUstream stream;

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes = file != NULL ? malloc(1 << 24) : NULL;
    if (bytes == NULL || fread(bytes, 1, 1 << 24, file) == 0) {
        exit(2);
    }
    fclose(file);
    return bytes;
}

static CUresult launch(CUfunction kernel, unsigned threads, unsigned shared)
{
    unsigned long long at = 0;
    unsigned n = 0;
    void *args[] = {&at, &n};
    return cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, shared, stream, args, NULL);
}

static void refused(CUresult result)
{
    if (result != CUDA_ERROR_INVALID_VALUE) {
        fprintf(stderr, "layouts: %d where it is to be refused\n", (int)result);
        exit(1);
    }
}

static void nodes(CUfunction kernel)
{
    static CUgraph graph;
    unsigned long long at = 0;
    unsigned n = 0;
    void *args[] = {&at, &n};
    CUDA_KERNEL_NODE_PARAMS p = {.func = kernel,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = args};
    if (graph == NULL) {
        CHECK(cuGraphCreate(&graph, 0));
    }
    for (int i = 0; i < 3; i++) {
        CUgraphNode node;
        CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
    }
}

static void use(CUfunction kernel, const char *what)
{
    int value;
    size_t offset, size;
    if (strcmp(what, "launch") == 0) {
        CHECK(cuFuncGetParamInfo(kernel, 1, &offset, &size));
        if (offset != 8 || size != 4 ||
            cuFuncGetParamInfo(kernel, 2, &offset, &size) != CUDA_ERROR_INVALID_VALUE) {
            exit(1);
        }
        CHECK(launch(kernel, 256, 1024));
    } else if (strcmp(what, "wide") == 0) {
        CHECK(launch(kernel, 512, 0));
        CHECK(launch(kernel, 512, 0));
    } else if (strcmp(what, "attributes") == 0) {
        for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++) {
            CHECK(cuFuncGetAttribute(&value, (CUfunction_attribute)i, kernel));
        }
    } else if (strcmp(what, "set") == 0) {
        CHECK(cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
        CHECK(launch(kernel, 32, 60000));
        refused(launch(kernel, 32, 60001));
    } else if (strcmp(what, "refused") == 0) {
        refused(launch(kernel, 32, 60000));
        refused(launch(kernel, 1025, 0));
        CHECK(launch(kernel, 32, 48 << 10));
    } else {
        nodes(kernel);
    }
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUmodule module;
    CUlibrary library;
    if (argc != 5) {
        return 2;
    }
    char *image = read_file(argv[1]);
    int is_module = strcmp(argv[2], "module") == 0;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (is_module) {
        CHECK(cuModuleLoadData(&module, image));
    } else {
        CHECK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    }
    for (int i = 0; i < atoi(argv[4]); i++) {
        CUfunction function;
        CUkernel kernel;
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        if (is_module) {
            CHECK(cuModuleGetFunction(&function, module, name));
        } else {
            CHECK(cuLibraryGetKernel(&kernel, library, name));
            CHECK(cuKernelGetFunction(&function, kernel));
        }
        use(function, argv[3]);
    }
    CHECK(cuStreamSynchronize(stream));
    return 0;
}
