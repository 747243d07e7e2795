/* SPDX-License-Identifier: Apache-2.0 */
/* What compiler and linker write back into the values of their options: times, logs and the sizes
 * of these, threads of a block; and when they do. */
#include "api.h"

#include <math.h>
#include <time.h>

enum { ROOM = 4096, UNTOUCHED = 0x5a };
#define UPPER 0x1234567800000000u

static const char bad[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry k()\n{\nadd.u32 %nowhere, 1, 1;\nret;\n}\n";
static const char caller[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .func (.param .b32 r) outside(.param .b32 x);\n"
    ".visible .entry c(.param .u64 p)\n{\n.reg .b64 %a; .reg .b32 %v;\nld.param.u64 %a, [p];\n"
    "{ .param .b32 i; .param .b32 o; st.param.b32 [i], 3; call (o), outside, (i);\n"
    "ld.param.b32 %v, [o]; }\nst.global.u32 [%a], %v;\nret;\n}\n";
static const char callee[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .func (.param .b32 r) outside(.param .b32 x)\n{\n.reg .b32 %v;\n"
    "ld.param.b32 %v, [x];\nadd.u32 %v, %v, 5;\nst.param.b32 [r], %v;\nret;\n}\n";

/* Options with places for all that is written back. */
struct wanted {
    unsigned count;
    CUjit_option options[8];
    void *values[8];
    char info[ROOM + 1], error[ROOM + 1];
};

static void want(struct wanted *w, CUjit_option option, uintptr_t value)
{
    w->options[w->count] = option;
    w->values[w->count++] = (void *)value;
}

/* The time is value 0, the sizes of info and error log values 2 and 4. */
static void want_all(struct wanted *w, unsigned info, unsigned error)
{
    w->count = 0;
    memset(w->info, UNTOUCHED, sizeof w->info);
    memset(w->error, UNTOUCHED, sizeof w->error);
    want(w, CU_JIT_WALL_TIME, UPPER | 0x7fc00000); /* not a number */
    want(w, CU_JIT_INFO_LOG_BUFFER, (uintptr_t)w->info);
    want(w, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info);
    want(w, CU_JIT_ERROR_LOG_BUFFER, (uintptr_t)w->error);
    want(w, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error);
}

/* Milliseconds: a float in the lower half of the value; the upper half is left alone. */
static float time_of(const struct wanted *w)
{
    float ms;
    memcpy(&ms, &w->values[0], sizeof ms);
    EQUAL((uintptr_t)w->values[0] >> 32, UPPER >> 32);
    TRUE(isfinite(ms) && ms >= 0 && ms < 60000);
    return ms;
}

static size_t size_of(const struct wanted *w, unsigned i)
{
    return (size_t)(uintptr_t)w->values[i];
}

/* Nothing was written at all. */
static void untouched(const struct wanted *w)
{
    EQUAL((uintptr_t)w->values[0], UPPER | 0x7fc00000);
    EQUAL(w->info[0], UNTOUCHED);
    EQUAL(w->error[0], UNTOUCHED);
}

/* A text that no cache has. */
static const char *fresh(void)
{
    static char text[sizeof api_ptx + 100];
    static int number;
    snprintf(text, sizeof text, "%s.visible .global .align 4 .u32 u%d_%lld_%d = 1;\n", api_ptx,
             (int)getpid(), (long long)time(NULL), number++);
    return text;
}

static CUresult load_module(const void *image, struct wanted *w)
{
    CUmodule module = NULL;
    CUresult result = cuModuleLoadDataEx(&module, image, w->count, w->options, w->values);
    if (result == CUDA_SUCCESS) {
        OK(cuModuleUnload(module));
    }
    return result;
}

static CUresult load_library(const void *image, struct wanted *w)
{
    CUlibrary library = NULL;
    CUresult result =
        cuLibraryLoadData(&library, image, w->options, w->values, w->count, NULL, NULL, 0);
    if (result == CUDA_SUCCESS) {
        OK(cuLibraryUnload(library));
    }
    return result;
}

static CUresult load_file(const void *image, struct wanted *w)
{
    char path[] = "/tmp/towline-api-jit-XXXXXX";
    int file = mkstemp(path);
    TRUE(file >= 0 && write(file, image, strlen(image)) == (ssize_t)strlen(image));
    close(file);
    CUlibrary library = NULL;
    CUresult result =
        cuLibraryLoadFromFile(&library, path, w->options, w->values, w->count, NULL, NULL, 0);
    unlink(path);
    if (result == CUDA_SUCCESS) {
        OK(cuLibraryUnload(library));
    }
    return result;
}

static void a_load_tells_its_time_and_that_it_has_nothing_to_say(CUresult (*load)(const void *image,
                                                                                  struct wanted *w))
{
    static struct wanted w;
    want_all(&w, ROOM, ROOM);
    want(&w, CU_JIT_THREADS_PER_BLOCK, 33);
    OK(load(fresh(), &w));
    TRUE(time_of(&w) > 0);
    EQUAL(size_of(&w, 2), 0);
    EQUAL(size_of(&w, 4), 0);
    EQUAL(w.info[0], 0);
    EQUAL(w.error[0], 0);
    EQUAL(size_of(&w, 5), 64); /* whole warps */
    EQUAL((uintptr_t)w.values[1], (uintptr_t)w.info);
    EQUAL((uintptr_t)w.values[3], (uintptr_t)w.error);
    want_all(&w, ROOM, ROOM);
    want(&w, CU_JIT_THREADS_PER_BLOCK, 2000);
    OK(load(fresh(), &w));
    EQUAL(size_of(&w, 5), 1024);
}

/* `size`: of the buffer for errors. */
static void a_mistake_is_told(unsigned size)
{
    static struct wanted w;
    want_all(&w, ROOM, size);
    EQUAL(load_module(bad, &w), CUDA_ERROR_INVALID_PTX);
    time_of(&w);
    EQUAL(w.info[0], 0);
    size_t length = strnlen(w.error, ROOM);
    if (size == ROOM) {
        TRUE(length > 20 && strstr(w.error, "line 6") != NULL);
        EQUAL(size_of(&w, 4), length);
    } else {
        EQUAL(length, size > 0 ? size - 1 : 0);
        EQUAL(size_of(&w, 4), size > 1 ? size : 0);
        EQUAL(w.error[length + 1], UNTOUCHED);
    }
}

static void options_that_cannot_be_write_nothing(void)
{
    static struct wanted w;
    want_all(&w, ROOM, ROOM);
    want(&w, (CUjit_option)1000, 0);
    EQUAL(load_module(fresh(), &w), CUDA_ERROR_INVALID_VALUE);
    untouched(&w);
    want_all(&w, ROOM, ROOM);
    w.values[3] = NULL; /* a size without a buffer */
    EQUAL(load_module(fresh(), &w), CUDA_ERROR_INVALID_VALUE);
    untouched(&w);
    want_all(&w, ROOM, ROOM);
    w.count = 4; /* a buffer without a size */
    EQUAL(load_module(fresh(), &w), CUDA_ERROR_INVALID_VALUE);
    untouched(&w);
}

static void of_two_options_the_last_counts(void)
{
    static struct wanted w;
    static char other[ROOM];
    want_all(&w, ROOM, ROOM);
    memset(other, UNTOUCHED, sizeof other);
    want(&w, CU_JIT_INFO_LOG_BUFFER, (uintptr_t)other);
    want(&w, CU_JIT_WALL_TIME, 0);
    OK(load_module(fresh(), &w));
    EQUAL((uintptr_t)w.values[0], UPPER | 0x7fc00000);
    EQUAL(w.info[0], UNTOUCHED);
    EQUAL(other[0], 0);
    TRUE((uintptr_t)w.values[6] != 0);
}

static CUresult add(CUlinkState link, const char *text)
{
    return cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, strlen(text) + 1, "text",
                         0, NULL, NULL);
}

static void a_link_writes_after_each_call(void)
{
    static struct wanted w;
    CUlinkState link = NULL;
    want_all(&w, ROOM, ROOM);
    OK(cuLinkCreate(w.count, w.options, w.values, &link));
    float created = time_of(&w);
    EQUAL(size_of(&w, 2), 0);
    EQUAL(size_of(&w, 4), 0);
    EQUAL(w.info[0], 0);
    EQUAL(w.error[0], 0);
    OK(add(link, caller));
    float added = time_of(&w);
    TRUE(added >= created);

    /* Logs and time are the link's: an input has none of its own. */
    CUjit_option option = CU_JIT_WALL_TIME;
    void *value = (void *)0x55;
    EQUAL(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)callee, sizeof callee, "own", 1,
                        &option, &value),
          CUDA_ERROR_INVALID_VALUE);
    EQUAL((uintptr_t)value, 0x55);
    EQUAL(cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/nonexistent/file", 0, NULL, NULL),
          CUDA_ERROR_FILE_NOT_FOUND);
    TRUE(time_of(&w) == added);
    OK(add(link, callee));
    TRUE(time_of(&w) > added);

    void *cubin = NULL;
    size_t size = 0;
    float before = time_of(&w);
    OK(cuLinkComplete(link, &cubin, &size));
    TRUE(cubin != NULL && size > 0 && time_of(&w) > before);
    EQUAL(size_of(&w, 4), 0);
    EQUAL(cuLinkComplete(link, &cubin, &size), CUDA_ERROR_INVALID_HANDLE);
    EQUAL(add(link, callee), CUDA_ERROR_INVALID_VALUE);
    want_all(&w, ROOM, ROOM);
    OK(cuLinkDestroy(link));
    untouched(&w);
}

/* The link goes on without it. */
static void an_input_with_a_mistake_is_told(void)
{
    static struct wanted w;
    CUlinkState link = NULL;
    void *cubin = NULL;
    size_t size = 0;
    want_all(&w, ROOM, ROOM);
    OK(cuLinkCreate(w.count, w.options, w.values, &link));
    EQUAL(add(link, bad), CUDA_ERROR_INVALID_PTX);
    time_of(&w);
    TRUE(strstr(w.error, "line 6") != NULL);
    EQUAL(size_of(&w, 4), strlen(w.error));
    OK(add(link, fresh()));
    OK(cuLinkComplete(link, &cubin, &size));
    TRUE(cubin != NULL && size > 0);
    TRUE(strstr(w.error, "line 6") != NULL);
    EQUAL(size_of(&w, 4), strlen(w.error));
    OK(cuLinkDestroy(link));
}

static void what_does_not_link_is_told(void)
{
    static struct wanted w;
    CUlinkState link = NULL;
    void *cubin = NULL;
    size_t size = 0;
    want_all(&w, ROOM, ROOM);
    OK(cuLinkCreate(w.count, w.options, w.values, &link));
    OK(add(link, caller));
    EQUAL(size_of(&w, 4), 0);
    CUresult result = cuLinkComplete(link, &cubin, &size);
    TRUE(result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_INVALID_SOURCE); /* by its options */
    time_of(&w);
    TRUE(strstr(w.error, "outside") != NULL);
    EQUAL(size_of(&w, 4), strlen(w.error));
    OK(cuLinkDestroy(link));
}

static void a_link_without_inputs_is_an_empty_module(void)
{
    CUlinkState link = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    void *cubin = NULL;
    size_t size = 0;
    OK(cuLinkCreate(0, NULL, NULL, &link));
    OK(cuLinkComplete(link, &cubin, &size));
    TRUE(cubin != NULL && size > 0);
    OK(cuModuleLoadData(&module, cubin));
    EQUAL(cuModuleGetFunction(&function, module, "none"), CUDA_ERROR_NOT_FOUND);
    EQUAL(add(link, caller), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuLinkComplete(link, &cubin, &size), CUDA_ERROR_INVALID_HANDLE);
    OK(cuLinkDestroy(link));
    OK(cuModuleUnload(module));
}

/* Some are the whole link's. */
static void an_input_takes_some_options(void)
{
    static char log[64];
    const struct {
        CUjit_option option;
        void *value;
        CUresult result;
    } cases[] = {
        {CU_JIT_MAX_REGISTERS, (void *)32, CUDA_SUCCESS},
        {CU_JIT_OPTIMIZATION_LEVEL, (void *)3, CUDA_SUCCESS},
        {CU_JIT_LOG_VERBOSE, (void *)1, CUDA_SUCCESS},
        {CU_JIT_GENERATE_DEBUG_INFO, (void *)1, CUDA_SUCCESS},
        {CU_JIT_WALL_TIME, NULL, CUDA_ERROR_INVALID_VALUE},
        {CU_JIT_ERROR_LOG_BUFFER, log, CUDA_ERROR_INVALID_VALUE},
        {CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, (void *)64, CUDA_ERROR_INVALID_VALUE},
        {CU_JIT_TARGET_FROM_CUCONTEXT, NULL, CUDA_ERROR_INVALID_VALUE},
        {CU_JIT_TARGET, (void *)90, CUDA_ERROR_INVALID_VALUE},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CUlinkState link = NULL;
        CUjit_option option = cases[i].option;
        void *value = cases[i].value;
        OK(cuLinkCreate(0, NULL, NULL, &link));
        EQUAL(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)callee, sizeof callee, "own",
                            1, &option, &value),
              cases[i].result);
        OK(cuLinkDestroy(link));
    }
}

int main(void)
{
    struct api api;
    api_begin(&api);
    a_load_tells_its_time_and_that_it_has_nothing_to_say(load_module);
    a_load_tells_its_time_and_that_it_has_nothing_to_say(load_library);
    a_load_tells_its_time_and_that_it_has_nothing_to_say(load_file);
    a_mistake_is_told(ROOM);
    a_mistake_is_told(16);
    a_mistake_is_told(1);
    a_mistake_is_told(0);
    options_that_cannot_be_write_nothing();
    of_two_options_the_last_counts();
    a_link_writes_after_each_call();
    an_input_with_a_mistake_is_told();
    what_does_not_link_is_told();
    a_link_without_inputs_is_an_empty_module();
    an_input_takes_some_options();
    return api_end(&api);
}
