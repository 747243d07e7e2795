/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one of the programs beside it: a PTX text whose first lines say what its host does.
 *
 *     check_host FILE
 *
 * `// host:` lines are done in order: alloc, pool, pinned or managed NAME BYTES, free NAME,
 * set NAME BYTE COUNT, upload NAME BYTES, copy TO FROM BYTES, launch KERNEL BLOCKS THREADS
 * SHARED NAME..., load FILE, whose kernels are launched from then on, sync, die. A call that fails
 * is told on stdout and the next is done, as a program does that does not look. It is linked to
 * libcuda, so it runs here as under NVIDIA's compute-sanitizer.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

enum { LINE_MAX_ = 512, NAMES = 26, FILE_BYTES = 1 << 16 };

static struct {
    CUdeviceptr at;
    void *host; /* of pinned memory */
    int pool;
} names[NAMES];
static CUmodule module;
static int failed; /* calls */

static void done(const char *line, CUresult result)
{
    const char *name = "?";
    if (result != CUDA_SUCCESS) {
        cuGetErrorName(result, &name);
        printf("%s: %s\n", line, name);
        failed++;
    }
}

static unsigned long number(const char *word)
{
    return word == NULL ? 0 : strtoul(word, NULL, 0);
}

static int index_of(const char *word)
{
    if (word == NULL || word[0] < 'a' || word[0] > 'z') {
        fprintf(stderr, "check_host: a name is one letter\n");
        exit(2);
    }
    return word[0] - 'a';
}

static CUresult launch(char **rest)
{
    const char *kernel = strtok_r(NULL, " ", rest);
    unsigned blocks = (unsigned)number(strtok_r(NULL, " ", rest));
    unsigned threads = (unsigned)number(strtok_r(NULL, " ", rest));
    unsigned shared = (unsigned)number(strtok_r(NULL, " ", rest));
    void *params[NAMES];
    char *word;
    for (int i = 0; i < NAMES && (word = strtok_r(NULL, " ", rest)) != NULL; i++) {
        params[i] = &names[index_of(word)].at;
    }
    CUfunction function;
    CUresult result = cuModuleGetFunction(&function, module, kernel);
    return result != CUDA_SUCCESS
               ? result
               : cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, NULL, params, NULL);
}

static CUresult make(const char *what, int i, size_t bytes)
{
    names[i].pool = strcmp(what, "pool") == 0;
    names[i].host = NULL;
    if (names[i].pool) {
        return cuMemAllocAsync(&names[i].at, bytes, NULL);
    }
    if (strcmp(what, "managed") == 0) {
        return cuMemAllocManaged(&names[i].at, bytes, CU_MEM_ATTACH_GLOBAL);
    }
    if (strcmp(what, "pinned") == 0) {
        CUresult result = cuMemHostAlloc(&names[i].host, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
        return result != CUDA_SUCCESS ? result
                                      : cuMemHostGetDevicePointer(&names[i].at, names[i].host, 0);
    }
    return cuMemAlloc(&names[i].at, bytes);
}

static CUresult give(int i)
{
    return names[i].host != NULL ? cuMemFreeHost(names[i].host)
           : names[i].pool       ? cuMemFreeAsync(names[i].at, NULL)
                                 : cuMemFree(names[i].at);
}

static CUresult upload(int i, size_t bytes)
{
    void *zeroes = calloc(1, bytes);
    CUresult result = cuMemcpyHtoD(names[i].at, zeroes, bytes);
    free(zeroes);
    return result;
}

static void read_text(const char *path, char text[FILE_BYTES])
{
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    memset(text, 0, FILE_BYTES);
    if (file == NULL || fread(text, 1, FILE_BYTES - 1, file) == 0) {
        fprintf(stderr, "usage: check_host FILE\n");
        exit(2);
    }
    fclose(file);
}

static CUresult load(const char *text)
{
    CUjit_option options[] = {CU_JIT_GENERATE_LINE_INFO};
    void *values[] = {(void *)1};
    return cuModuleLoadDataEx(&module, text, 1, options, values);
}

static CUresult load_file(const char *path)
{
    static char text[FILE_BYTES];
    read_text(path, text);
    return load(text);
}

static CUresult step(char *line)
{
    char *rest;
    const char *what = strtok_r(line, " ", &rest);
    if (strcmp(what, "launch") == 0) {
        return launch(&rest);
    }
    if (strcmp(what, "load") == 0) {
        return load_file(strtok_r(NULL, " ", &rest));
    }
    if (strcmp(what, "sync") == 0) {
        return cuCtxSynchronize();
    }
    if (strcmp(what, "die") == 0) {
        fflush(stdout);
        raise(SIGKILL);
    }
    int i = index_of(strtok_r(NULL, " ", &rest));
    const char *second = strtok_r(NULL, " ", &rest), *third = strtok_r(NULL, " ", &rest);
    if (strcmp(what, "free") == 0) {
        return give(i);
    }
    if (strcmp(what, "set") == 0) {
        return cuMemsetD8(names[i].at, (unsigned char)number(second), number(third));
    }
    if (strcmp(what, "upload") == 0) {
        return upload(i, number(second));
    }
    if (strcmp(what, "copy") == 0) {
        return cuMemcpyDtoD(names[i].at, names[index_of(second)].at, number(third));
    }
    return make(what, i, number(second));
}

int main(int argc, char **argv)
{
    static char text[FILE_BYTES];
    read_text(argc == 2 ? argv[1] : NULL, text);
    CUdevice device;
    CUcontext context;
    CUresult result = cuInit(0);
    result = result != CUDA_SUCCESS ? result : cuDeviceGet(&device, 0);
    result = result != CUDA_SUCCESS ? result : cuDevicePrimaryCtxRetain(&context, device);
    result = result != CUDA_SUCCESS ? result : cuCtxSetCurrent(context);
    result = result != CUDA_SUCCESS ? result : load(text);
    if (result != CUDA_SUCCESS) {
        done(argv[1], result);
        return 2;
    }
    static const char mark[] = "// host: ";
    for (const char *at = strstr(text, mark); at != NULL; at = strstr(at, mark)) {
        char line[LINE_MAX_], words[LINE_MAX_];
        at += sizeof mark - 1;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        memcpy(words, line, sizeof words);
        done(line, step(words));
    }
    done("unload", cuModuleUnload(module));
    done("release", cuDevicePrimaryCtxRelease(device));
    return failed != 0;
}
