/* Compares what images say of their kernels (src/server/layouts.h) with what a driver says of them.
 *
 *     compare_layouts [-d cuda|soft|dry|PATH] [-c CAPABILITY] FILE...
 *
 * A file is a cubin, a fat binary, or anything that has fat binaries in it (a shared library); all
 * in it that is for the GPU is loaded. The software GPU (-d soft) reads PTX only: it compares the
 * machine code of a fat binary with the PTX beside it. Every difference is a line; the last one has
 * the totals. Exit code 1 if something differs, or nothing was compared.
 *
 * Parameters must be the same. The driver may allow larger blocks and more shared memory than the
 * image promises, never less.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/file.h"
#include "base/clock.h"
#include "server/layouts.h"
#include "wire/image.h"

static struct tow_backend backend;
static CUdevice device;
static unsigned capability;

static struct {
    unsigned images, unread, unloaded, kernels, unknown, differ, threads_less, shared_less;
    size_t code, most_layouts;
    int64_t unpack_ns, read_ns;
} total;

static int attribute(CUfunction_attribute which, CUkernel kernel)
{
    int value = -1;
    backend.driver.cuKernelGetAttribute(&value, which, kernel, device);
    return value;
}

static void differ(const char *name, const char *what, long here, long there)
{
    printf("%s: %s: the image says %ld, the driver %ld\n", name, what, here, there);
    total.differ++;
}

/* True if there is something to compare. */
static bool compare_kernel(CUkernel kernel, const struct tow_buf *layouts)
{
    const char *name = NULL;
    struct tow_kernel_layout layout;
    const uint8_t *bytes;
    if (backend.driver.cuKernelGetName(&name, kernel) != CUDA_SUCCESS) {
        return false;
    }
    total.kernels++;
    if (!tow_kernel_layout_find(layouts->data, layouts->size, name, &layout, &bytes)) {
        total.unknown++;
        return false;
    }
    size_t offset, size;
    unsigned count = 0;
    while (backend.driver.cuKernelGetParamInfo(kernel, count, &offset, &size) == CUDA_SUCCESS) {
        struct tow_layout_param param;
        if (count < layout.params) {
            memcpy(&param, bytes + count * sizeof param, sizeof param);
            if (param.offset != offset) {
                differ(name, "offset of a parameter", param.offset, (long)offset);
            }
            if (param.size != size) {
                differ(name, "size of a parameter", param.size, (long)size);
            }
        }
        count++;
    }
    if (count != layout.params) {
        differ(name, "parameters", layout.params, count);
    }
    int threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel);
    int shared = attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel);
    if (threads < (int)layout.threads) {
        differ(name, "threads of a block", layout.threads, threads);
    }
    if (shared < 0 || (unsigned)shared < layout.shared) {
        differ(name, "dynamic shared memory", (long)layout.shared, shared);
    }
    total.threads_less += threads > (int)layout.threads;
    total.shared_less += shared > (int)layout.shared;
    return true;
}

static void compare_image(const char *file, const uint8_t *image, size_t size,
                          enum tow_image_form form)
{
    struct tow_buf layouts;
    const uint8_t *code;
    size_t code_size;
    uint8_t *owned;
    tow_buf_init(&layouts, TOW_KERNEL_LAYOUTS_MAX);
    total.images++;
    int64_t begin = tow_time_now_ns();
    int chosen = tow_layouts_code(image, size, form, capability, &code, &code_size, &owned);
    int64_t unpacked = tow_time_now_ns();
    int count = chosen > 0 ? tow_layouts_read(code, code_size, &layouts) : -1;
    int64_t read = tow_time_now_ns();
    free(owned);
    if (count < 0) {
        total.unread++;
        return;
    }
    total.code += code_size;
    total.unpack_ns += unpacked - begin;
    total.read_ns += read - unpacked;
    total.most_layouts = layouts.size > total.most_layouts ? layouts.size : total.most_layouts;

    CUlibrary library;
    unsigned kernels = 0;
    CUresult result =
        backend.driver.cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    if (result != CUDA_SUCCESS) {
        printf("%s: an image of %zu bytes is not loaded: error %d\n", file, size, (int)result);
        total.unloaded++;
        tow_buf_fini(&layouts);
        return;
    }
    backend.driver.cuLibraryGetKernelCount(&kernels, library);
    CUkernel *list = calloc(kernels + 1u, sizeof *list);
    if (list != NULL &&
        backend.driver.cuLibraryEnumerateKernels(list, kernels, library) == CUDA_SUCCESS) {
        int found = 0;
        for (unsigned i = 0; i < kernels; i++) {
            found += compare_kernel(list[i], &layouts);
        }
        if (found != count) {
            differ(file, "kernels of which there is a layout", count, found);
        }
    }
    free(list);
    backend.driver.cuLibraryUnload(library);
    tow_buf_fini(&layouts);
}

/* All fat binaries within a file that is none itself. */
static void compare_all(const char *file, const uint8_t *bytes, size_t size)
{
    static const uint8_t begin[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    const uint8_t *at = bytes, *end = bytes + size;
    while ((at = memmem(at, (size_t)(end - at), begin, sizeof begin)) != NULL) {
        struct tow_image_memory memory = {at, (size_t)(end - at), tow_image_within};
        enum tow_image_form form;
        size_t length;
        if (tow_image_measure(&memory, &form, &length) == 0 && form == TOW_IMAGE_FATBIN) {
            /* A driver wants it aligned. */
            uint8_t *copy = aligned_alloc(64, (length + 63) & ~(size_t)63);
            if (copy != NULL) {
                memcpy(copy, at, length);
                compare_image(file, copy, length, form);
                free(copy);
            }
            at += length;
        } else {
            at += sizeof begin;
        }
    }
}

static void compare_file(const char *file)
{
    struct tow_buf content;
    tow_buf_init(&content, (size_t)4 << 30);
    if (tow_file_read(file, &content) < 0) {
        fprintf(stderr, "compare_layouts: %s cannot be read\n", file);
        exit(2);
    }
    struct tow_image_memory memory = {content.data, content.size, tow_image_within};
    enum tow_image_form form = TOW_IMAGE_RAW;
    size_t length = 0;
    bool is_cubin = content.size > 0x14 && content.data[0x12] == 190 &&
                    tow_image_measure(&memory, &form, &length) == 0 && form == TOW_IMAGE_CUBIN;
    if (is_cubin) {
        compare_image(file, content.data, length, form);
    } else {
        compare_all(file, content.data, content.size);
    }
    tow_buf_fini(&content);
}

static void open_device(const char *name)
{
    char why[512] = "";
    struct tow_soft_options options = {
        .memory = 1 << 30, .capability = (int)capability, .dry = strcmp(name, "dry") == 0};
    bool soft = options.dry || strcmp(name, "soft") == 0;
    const char *path = strcmp(name, "cuda") == 0 ? NULL : name;
    int error = soft ? tow_backend_soft_open(&options, &backend, why, sizeof why)
                     : tow_backend_cuda_open(path, 0, &backend, why, sizeof why);
    CUcontext context;
    int major = 0, minor = 0;
    if (error < 0 || backend.driver.cuInit(0) != CUDA_SUCCESS ||
        backend.driver.cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        backend.driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
        backend.driver.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        backend.driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                            device) != CUDA_SUCCESS ||
        backend.driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                            device) != CUDA_SUCCESS) {
        fprintf(stderr, "compare_layouts: there is no GPU: %s\n", why);
        exit(2);
    }
    capability = (unsigned)(10 * major + minor);
}

int main(int argc, char **argv)
{
    const char *name = "cuda";
    int option;
    while ((option = getopt(argc, argv, "d:c:")) != -1) {
        if (option == 'd') {
            name = optarg;
        } else if (option == 'c') {
            capability = (unsigned)strtoul(optarg, NULL, 10);
        } else {
            return 2;
        }
    }
    open_device(name);
    for (int i = optind; i < argc; i++) {
        compare_file(argv[i]);
    }
    printf("%u images (%u without layouts, %u not loaded), %u kernels, %u without a layout, %u "
           "differences; bounds lower than the driver's: threads %u, shared memory %u; %.1f MB of "
           "code unpacked in %.1f ms, read in %.2f ms; most bytes of layouts %zu\n",
           total.images, total.unread, total.unloaded, total.kernels, total.unknown, total.differ,
           total.threads_less, total.shared_less, (double)total.code / 1e6,
           (double)total.unpack_ns / 1e6, (double)total.read_ns / 1e6, total.most_layouts);
    return total.differ > 0 || total.kernels == total.unknown;
}
