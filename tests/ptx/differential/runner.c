/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the kernels of a work file on whatever libcuda.so.1 the loader finds, and writes their
 * memory to a result file.
 *
 *     runner WORK RESULT FIRST
 *
 * Begins with form FIRST. The result is flushed after each form: when one takes this process with
 * it (an endless kernel, a fault that ruins the context) the caller sees which it was and goes on
 * after it. All numbers are little endian. WORK: u32 forms, u32 pool bytes, pool; then of each form
 * struct head, PTX text with its NUL, texture data. RESULT: of each form i32 status (a CUresult),
 * u32 length, the memory or the error text. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORM_SECONDS 12 /* until a kernel counts as endless */
#define OUT_MAX (1u << 20)
#define NO_TEXTURE 0xf1e2d3c4b5a69788u /* the third parameter then */
#define FILL 0xee                      /* of memory that no kernel wrote */

struct head {
    uint32_t text_bytes, grid, block, out_bytes, data_bytes;
    uint32_t texture; /* 0 none, 1 texture, 2 surface */
    uint32_t size[3], format, channels, array_flags, filter, address, texture_flags;
};

/* Layouts of the driver's interface. */
struct array3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct resource {
    int type;
    union {
        void *array;
        int reserved[32];
    } res;
    unsigned flags;
};
struct sampler {
    int address[3], filter;
    unsigned flags, anisotropy;
    int mipmap_filter;
    float bias, low, high, border[4];
    int reserved[12];
};
struct place {
    size_t x, y, z, lod;
    int type;
    const void *host;
    uint64_t device;
    void *array, *reserved;
    size_t pitch, height;
};
struct copy3d {
    struct place from, to;
    size_t width, height, depth;
};

static int (*init)(unsigned), (*device_get)(int *, int), (*retain)(void **, int);
static int (*set_current)(void *), (*mem_alloc)(uint64_t *, size_t);
static int (*to_device)(uint64_t, const void *, size_t), (*to_host)(void *, uint64_t, size_t);
static int (*fill)(uint64_t, unsigned char, size_t), (*synchronize)(void);
static int (*load)(void **, const void *, unsigned, int *, void **), (*unload)(void *);
static int (*function)(void **, void *, const char *), (*driver_version)(int *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);
static int (*error_name)(int, const char **), (*device_name)(char *, int, int);
static int (*array_create)(void **, const struct array3d *), (*array_destroy)(void *);
static int (*copy)(const struct copy3d *), (*texture_destroy)(uint64_t),
    (*surface_destroy)(uint64_t);
static int (*texture_create)(uint64_t *, const struct resource *, const struct sampler *,
                             const void *);
static int (*surface_create)(uint64_t *, const struct resource *);

static const struct {
    const char *name;
    void *at;
} symbols[] = {
    {"cuInit", &init},
    {"cuDeviceGet", &device_get},
    {"cuDeviceGetName", &device_name},
    {"cuDriverGetVersion", &driver_version},
    {"cuDevicePrimaryCtxRetain", &retain},
    {"cuCtxSetCurrent", &set_current},
    {"cuMemAlloc_v2", &mem_alloc},
    {"cuMemcpyHtoD_v2", &to_device},
    {"cuMemcpyDtoH_v2", &to_host},
    {"cuMemsetD8_v2", &fill},
    {"cuCtxSynchronize", &synchronize},
    {"cuModuleLoadDataEx", &load},
    {"cuModuleUnload", &unload},
    {"cuModuleGetFunction", &function},
    {"cuLaunchKernel", &launch},
    {"cuGetErrorName", &error_name},
    {"cuArray3DCreate_v2", &array_create},
    {"cuArrayDestroy", &array_destroy},
    {"cuMemcpy3D_v2", &copy},
    {"cuTexObjectCreate", &texture_create},
    {"cuTexObjectDestroy", &texture_destroy},
    {"cuSurfObjectCreate", &surface_create},
    {"cuSurfObjectDestroy", &surface_destroy},
};

static void fail(const char *what, int code)
{
    fprintf(stderr, "runner: %s failed (%d)\n", what, code);
    exit(1);
}

static void must(const char *what, int code)
{
    if (code) {
        fail(what, code);
    }
}

static void open_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) {
        fprintf(stderr, "runner: %s\n", dlerror());
        exit(1);
    }
    for (unsigned i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(lib, symbols[i].name);
        if (!address) {
            fail(symbols[i].name, 0);
        }
        memcpy(symbols[i].at, &address, sizeof address);
    }
}

static unsigned format_bytes(unsigned format)
{
    return format == 1 || format == 8 ? 1 : format == 2 || format == 9 || format == 0x10 ? 2 : 4;
}

static int make_texture(const struct head *h, const void *data, void **ret_array,
                        uint64_t *ret_handle)
{
    struct array3d desc = {h->size[0],     h->size[1],  h->size[2],
                           (int)h->format, h->channels, h->array_flags};
    int error = array_create(ret_array, &desc);
    if (error) {
        return error;
    }
    size_t row = (size_t)h->size[0] * h->channels * format_bytes(h->format);
    size_t rows = h->size[1] ? h->size[1] : 1;
    struct copy3d job = {.from = {.type = 1, .host = data, .pitch = row, .height = rows},
                         .to = {.type = 3, .array = *ret_array},
                         .width = row,
                         .height = rows,
                         .depth = h->size[2] ? h->size[2] : 1};
    struct resource resource = {.type = 0, .res = {.array = *ret_array}};
    struct sampler sampler = {.address = {(int)h->address, (int)h->address, (int)h->address},
                              .filter = (int)h->filter,
                              .flags = h->texture_flags,
                              .border = {0.25f, -1.5f, 3.0f, 0.5f}};
    error = copy(&job);
    if (error) {
        return error;
    }
    return h->texture == 1 ? texture_create(ret_handle, &resource, &sampler, NULL)
                           : surface_create(ret_handle, &resource);
}

static void answer(FILE *to, int status, const void *bytes, uint32_t length)
{
    fwrite(&status, 4, 1, to);
    fwrite(&length, 4, 1, to);
    fwrite(bytes, 1, length, to);
    fflush(to);
}

static int run_form(const struct head *h, const char *text, const void *data, uint64_t pool,
                    uint64_t out, uint8_t *ret_bytes, char *log, size_t log_bytes)
{
    int names[] = {5, 6}; /* error log and its size */
    void *options[] = {log, (void *)(uintptr_t)log_bytes};
    void *module = NULL, *kernel = NULL, *array = NULL;
    uint64_t handle = NO_TEXTURE;
    int error = load(&module, text, 2, names, options);
    if (error) {
        return error;
    }
    if (h->texture) {
        error = make_texture(h, data, &array, &handle);
    }
    void *params[] = {&pool, &out, &handle};
    if (error == 0 && (error = function(&kernel, module, "k")) == 0 &&
        (error = fill(out, FILL, h->out_bytes)) == 0 &&
        (error = launch(kernel, h->grid, 1, 1, h->block, 1, 1, 0, NULL, params, NULL)) == 0 &&
        (error = synchronize()) == 0) {
        error = to_host(ret_bytes, out, h->out_bytes);
    }
    if (handle != NO_TEXTURE) {
        (h->texture == 1 ? texture_destroy : surface_destroy)(handle);
    }
    if (array) {
        array_destroy(array);
    }
    unload(module);
    return error;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: runner WORK RESULT FIRST\n");
        return 2;
    }
    FILE *work = fopen(argv[1], "rb"), *result = fopen(argv[2], "wb");
    if (!work || !result) {
        perror(argv[1]);
        return 1;
    }
    fseek(work, 0, SEEK_END);
    size_t size = (size_t)ftell(work);
    rewind(work);
    uint8_t *all = malloc(size), *bytes = malloc(OUT_MAX);
    if (!all || !bytes || fread(all, 1, size, work) != size) {
        perror(argv[1]);
        return 1;
    }
    open_driver();
    int device, version = 0;
    char name[128] = "";
    void *context;
    uint64_t pool, out;
    uint32_t counts[2];
    memcpy(counts, all, 8);
    must("cuInit", init(0));
    must("cuDeviceGet", device_get(&device, 0));
    must("cuDevicePrimaryCtxRetain", retain(&context, device));
    must("cuCtxSetCurrent", set_current(context));
    must("cuMemAlloc", mem_alloc(&pool, counts[1]));
    must("cuMemAlloc", mem_alloc(&out, OUT_MAX));
    must("cuMemcpyHtoD", to_device(pool, all + 8, counts[1]));
    must("cuDeviceGetName", device_name(name, sizeof name, device));
    must("cuDriverGetVersion", driver_version(&version));
    printf("%s\t%d\n", name, version);
    fflush(stdout);
    size_t at = 8 + counts[1];
    for (uint32_t i = 0; i < counts[0]; i++) {
        struct head h;
        memcpy(&h, all + at, sizeof h);
        const char *text = (const char *)all + at + sizeof h;
        at += sizeof h + h.text_bytes + h.data_bytes;
        if (i < (uint32_t)atoi(argv[3])) {
            continue;
        }
        char log[4096] = "";
        alarm(FORM_SECONDS);
        int error = run_form(&h, text, text + h.text_bytes, pool, out, bytes, log, sizeof log);
        alarm(0);
        if (error == 0) {
            answer(result, 0, bytes, h.out_bytes);
            continue;
        }
        const char *word = "?";
        error_name(error, &word);
        char message[4400];
        int length = snprintf(message, sizeof message, "%s %s", word, log);
        answer(result, error, message, (uint32_t)length);
        if (synchronize()) { /* the context is lost */
            return 3;
        }
    }
    free(all);
    free(bytes);
    fclose(work);
    fclose(result);
    return 0;
}
