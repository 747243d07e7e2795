/* SPDX-License-Identifier: Apache-2.0 */
/* Code images: recognises what is handed over and brings the PTX out of it.
 *
 * Forms: PTX text; a fat binary (the newest PTX entry for our capability, compressed or not); a
 * wrapper around one or several of those; what cuLinkComplete of this backend returned (texts
 * behind one comment line, so that everyone who measures images takes it for PTX text). A cubin has
 * no PTX and is refused.
 *
 * The API gives no length for an image: a fat binary says its own, text ends with NUL. Everything
 * inside is checked against that length.
 *
 * A dry GPU takes machine code too: of all code only the skeleton is left (skeleton.c).
 */
#include "backend/soft/code/image.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/state.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/unpack.h"
#include "base/clock.h"
#include "base/log.h"

#define MAGIC_WRAPPER 0x466243b1u
#define MAGIC_FATBIN 0xba55ed50u
#define MAGIC_ELF 0x464c457fu
#define TEXT_MAX TOW_UNPACKED_MAX /* one PTX text */
#define TEXTS_MAX 4096
#define PTX_MAJOR_MAX 9
#define LINKED_PREFIX "// towline linked"

static uint16_t image_get16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t image_get32(const uint8_t *at)
{
    return (uint32_t)image_get16(at) | (uint32_t)image_get16(at + 2) << 16;
}

void tow_soft_texts_fini(struct tow_soft_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        free((char *)texts->texts[i].text);
        free((char *)texts->texts[i].name);
    }
    free(texts->texts);
    memset(texts, 0, sizeof *texts);
}

int tow_soft_texts_add(struct tow_soft_texts *texts, const void *bytes, size_t size,
                       const char *name)
{
    if (texts->count == TEXTS_MAX || size > TEXT_MAX) {
        return -E2BIG;
    }
    if (texts->count == texts->capacity) {
        size_t capacity = texts->capacity == 0 ? 4 : texts->capacity * 2;
        struct tow_ptx_text *grown = realloc(texts->texts, capacity * sizeof *grown);
        if (grown == NULL) {
            return -ENOMEM;
        }
        texts->texts = grown;
        texts->capacity = capacity;
    }
    size = strnlen(bytes, size);
    char *copy = malloc(size + 1);
    char *label = name != NULL ? strdup(name) : NULL;
    if (copy == NULL || (name != NULL && label == NULL)) {
        free(copy);
        free(label);
        return -ENOMEM;
    }
    memcpy(copy, bytes, size);
    copy[size] = '\0';
    if (tow_soft.dry) {
        tow_soft_skeleton_of_text(copy);
        size = strlen(copy);
    }
    texts->texts[texts->count++] = (struct tow_ptx_text){copy, size, label};
    return 0;
}

/* Whether an entry is to be taken instead of the best so far: of the PTX that is not for newer GPUs
 * than this one claims to be, the newest. A dry GPU takes the machine code that a GPU of its
 * capability would run, before any other. */
static bool is_better(const struct tow_entry *entry, const struct tow_entry *best)
{
    unsigned capability = (unsigned)tow_soft.capability;
    if (!tow_soft.dry) {
        return entry->kind == TOW_ENTRY_PTX && entry->sm <= capability &&
               (best->payload == NULL || entry->sm >= best->sm);
    }
    if (best->payload == NULL) {
        return entry->kind == TOW_ENTRY_PTX || entry->kind == TOW_ENTRY_ELF;
    }
    bool fits = entry->kind == TOW_ENTRY_ELF && entry->sm <= capability &&
                entry->sm / 10 == capability / 10;
    return fits || (best->kind == TOW_ENTRY_PTX && entry->kind == TOW_ENTRY_ELF);
}

/* Why none of a fat binary's entries will do; `newer`: of the oldest PTX for newer GPUs, or 0. */
static void tell_no_entry(unsigned newer, bool has_elf, char *why, size_t why_size)
{
    unsigned here = (unsigned)tow_soft.capability;
    if (newer != 0) {
        snprintf(why, why_size,
                 "The PTX of this program is for GPUs of compute capability %u.%u and newer; the "
                 "software GPU says that it is one of %u.%u. Build it with nvcc -gencode "
                 "arch=compute_%u,code=compute_%u, or start the server with --soft-capability "
                 "%u.%u.",
                 newer / 10, newer % 10, here / 10, here % 10, here, here, newer / 10, newer % 10);
        return;
    }
    snprintf(why, why_size,
             "This program has %s but no PTX: SASS cannot run on the software GPU. Build it with "
             "PTX, for example with nvcc -gencode arch=compute_90,code=compute_90.",
             has_elf ? "machine code (SASS)" : "no code");
}

static CUresult add_skeleton(const uint8_t *cubin, size_t size, struct tow_soft_texts *texts,
                             char *why, size_t why_size)
{
    char *text = NULL;
    int rc = tow_soft_skeleton_of_cubin(cubin, size, &text);
    if (rc == 0) {
        rc = tow_soft_texts_add(texts, text, strlen(text), "cubin");
    }
    free(text);
    if (rc == -EINVAL || rc == -E2BIG) {
        snprintf(why, why_size, "The cubin is damaged.");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return rc == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Unpacks one entry's payload into new memory. */
static CUresult image_unpack(const struct tow_entry *entry, uint8_t **ret_bytes, size_t *ret_size,
                             char *why, size_t why_size)
{
    switch (tow_entry_unpack(entry, ret_bytes, ret_size)) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -E2BIG:
        snprintf(why, why_size,
                 "The fat binary says that its PTX is %llu bytes long, which is not believable.",
                 (unsigned long long)entry->unpacked_size);
        return CUDA_ERROR_INVALID_IMAGE;
    case -ENOTSUP:
        snprintf(
            why, why_size,
            "The fat binary is compressed with Zstandard, and this server was built without it; "
            "install libzstd-dev and build again, or compile with -no-compress.");
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        snprintf(why, why_size, "The compressed PTX in the fat binary is damaged.");
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

static CUresult fatbin_texts(const uint8_t *image, size_t known_size, struct tow_soft_texts *texts,
                             char *why, size_t why_size)
{
    if (known_size < 16) {
        snprintf(why, why_size, "The fat binary is cut off.");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    size_t at = 0;
    uint64_t body = 0;
    if (tow_entry_first(image, known_size, &at, &body) < 0 || body > TOW_SOFT_IMAGE_MAX ||
        body > known_size - at) {
        snprintf(why, why_size, "The fat binary's header is damaged.");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    size_t end = at + (size_t)body;
    struct tow_entry entry, best = {0};
    bool has_elf = false;
    unsigned newer = 0;
    int more;
    while ((more = tow_entry_next(image, end, &at, &entry)) > 0) {
        has_elf |= entry.kind == TOW_ENTRY_ELF;
        if (entry.kind == TOW_ENTRY_PTX && (newer == 0 || entry.sm < newer)) {
            newer = entry.sm;
        }
        if (is_better(&entry, &best)) {
            best = entry;
        }
    }
    if (more < 0) {
        snprintf(why, why_size, "An entry of the fat binary is damaged.");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    if (best.payload == NULL) {
        tell_no_entry(newer, has_elf, why, why_size);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    char name[32];
    snprintf(name, sizeof name, "compute_%u", best.sm);
    uint8_t *bytes = NULL;
    size_t size = best.size;
    CUresult result =
        best.is_packed ? image_unpack(&best, &bytes, &size, why, why_size) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const uint8_t *code = best.is_packed ? bytes : best.payload;
    if (best.kind == TOW_ENTRY_ELF) {
        result = add_skeleton(code, size, texts, why, why_size);
        free(bytes);
        return result;
    }
    int rc = tow_soft_texts_add(texts, code, size, name);
    free(bytes);
    return rc == 0        ? CUDA_SUCCESS
           : rc == -E2BIG ? CUDA_ERROR_INVALID_IMAGE
                          : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult wrapper_texts(const uint8_t *image, struct tow_soft_texts *texts, char *why,
                              size_t why_size)
{
    uint32_t version = image_get32(image + 4);
    const void *data, *extra;
    memcpy(&data, image + 8, sizeof data);
    memcpy(&extra, image + 16, sizeof extra);
    if (version == 1 && data != NULL) {
        return tow_soft_image_texts(data, SIZE_MAX, texts, why, why_size);
    }
    if (version != 2 || extra == NULL) {
        snprintf(why, why_size, "The fat binary wrapper has version %u, which is unknown.",
                 version);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    /* Separate compilation: the device-linked image has SASS only, the parts have their PTX. */
    const void *const *parts = extra;
    for (size_t i = 0; parts[i] != NULL; i++) {
        CUresult result = i < TEXTS_MAX
                              ? tow_soft_image_texts(parts[i], SIZE_MAX, texts, why, why_size)
                              : CUDA_ERROR_INVALID_IMAGE;
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return texts->count != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* "// towline linked N L1 L2 ...\n" and then the texts, one after another. */
static CUresult linked_texts(const char *image, size_t length, struct tow_soft_texts *texts,
                             char *why, size_t why_size)
{
    const char *line_end = memchr(image, '\n', length);
    const char *at = image + strlen(LINKED_PREFIX);
    snprintf(why, why_size, "The linked image is damaged.");
    if (line_end == NULL) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const char *body = line_end + 1, *end = image + length;
    while (at < line_end) {
        uint64_t size = 0;
        const char *digits = *at == ' ' ? at + 1 : line_end;
        for (at = digits; at < line_end && isdigit((unsigned char)*at); at++) {
            size = size * 10 + (uint64_t)(*at - '0');
            if (size > (size_t)(end - body)) {
                return CUDA_ERROR_INVALID_IMAGE;
            }
        }
        if (at == digits) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        if (tow_soft_texts_add(texts, body, size, NULL) != 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        body += size;
    }
    why[0] = '\0';
    return texts->count != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* The length of a cubin that nobody has told, as its own headers say; who handed it over has
 * measured it. */
static size_t elf_size(const uint8_t *bytes)
{
    Elf64_Ehdr head;
    memcpy(&head, bytes, sizeof head);
    uint64_t count = head.e_shnum, end = sizeof head;
    for (uint64_t i = 0; head.e_shoff != 0 && (i < count || i == 0); i++) {
        Elf64_Shdr section;
        memcpy(&section, bytes + head.e_shoff + i * sizeof section, sizeof section);
        count = count == 0 ? section.sh_size : count;
        uint64_t last = section.sh_offset + section.sh_size;
        end = section.sh_type != SHT_NOBITS && last > end ? last : end;
    }
    uint64_t table = head.e_shoff + count * sizeof(Elf64_Shdr);
    return table > end ? table : end;
}

CUresult tow_soft_image_texts(const void *image, size_t known_size, struct tow_soft_texts *texts,
                              char *why, size_t why_size)
{
    const uint8_t *bytes = image;
    size_t length = strnlen(image, known_size < 4 ? known_size : 4);
    uint32_t magic = 0;
    if (known_size >= 4 && (length == 4 || known_size != SIZE_MAX || bytes[0] != 0)) {
        /* Text of one to three bytes is not read beyond its end. */
        magic = length == 4 ? image_get32(bytes) : 0;
    }
    if (magic == MAGIC_WRAPPER && known_size == SIZE_MAX) {
        /* Of a known size means that it came as bytes: its pointers are nobody's. */
        return wrapper_texts(bytes, texts, why, why_size);
    }
    if (magic == MAGIC_FATBIN) {
        return fatbin_texts(bytes, known_size, texts, why, why_size);
    }
    if (magic == MAGIC_ELF && tow_soft.dry) {
        return add_skeleton(bytes, known_size == SIZE_MAX ? elf_size(bytes) : known_size, texts,
                            why, why_size);
    }
    if (magic == MAGIC_ELF) {
        snprintf(why, why_size,
                 "This image is a cubin: machine code (SASS) cannot run on the software GPU, and "
                 "which PTX it came from is not known here. Build with PTX, for example with "
                 "nvcc -gencode arch=compute_90,code=compute_90; if a program kept it from an "
                 "earlier run (CuPy: ~/.cupy/kernel_cache), remove what it kept.");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    length = strnlen(image, known_size < TEXT_MAX ? known_size : TEXT_MAX);
    if (length >= TEXT_MAX) {
        snprintf(why, why_size, "The image is neither PTX nor a fat binary.");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    if (length > strlen(LINKED_PREFIX) &&
        memcmp(image, LINKED_PREFIX, strlen(LINKED_PREFIX)) == 0) {
        return linked_texts(image, length, texts, why, why_size);
    }
    if (memmem(image, length, ".version", 8) == NULL) {
        snprintf(why, why_size, "The image is neither PTX nor a fat binary.");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return tow_soft_texts_add(texts, image, length, NULL) == 0 ? CUDA_SUCCESS
                                                               : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- JIT options
 * ------------------------------------------------------------------------------------------ */

CUresult tow_soft_jit_parse(unsigned count, const CUjit_option *options, void **values,
                            struct tow_soft_jit *ret_jit)
{
    memset(ret_jit, 0, sizeof *ret_jit);
    if (count != 0 && (options == NULL || values == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ret_jit->values = values;
    bool info = false, error = false;
    for (unsigned i = 0; i < count; i++) {
        switch (options[i]) {
        case CU_JIT_INFO_LOG_BUFFER:
            ret_jit->info = values[i];
            info = true;
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            ret_jit->info_size = (unsigned)(uintptr_t)values[i];
            ret_jit->index_info = i + 1;
            break;
        case CU_JIT_ERROR_LOG_BUFFER:
            ret_jit->error = values[i];
            error = true;
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            ret_jit->error_size = (unsigned)(uintptr_t)values[i];
            ret_jit->index_error = i + 1;
            break;
        case CU_JIT_WALL_TIME:
            ret_jit->index_wall = i + 1;
            break;
        case CU_JIT_THREADS_PER_BLOCK:
            ret_jit->index_threads = i + 1;
            break;
        default:
            break;
        }
    }
    bool whole =
        (!info ||
         (ret_jit->index_info != 0 && (ret_jit->info != NULL || ret_jit->info_size == 0))) &&
        (!error ||
         (ret_jit->index_error != 0 && (ret_jit->error != NULL || ret_jit->error_size == 0)));
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* As NVIDIA's driver: an empty log has its NUL in a buffer of no size, too; of a log that does not
 * fit the whole buffer counts. */
static void log_out(char *buffer, size_t size, unsigned index, void **values, const char *text)
{
    if (buffer == NULL || index == 0) {
        return;
    }
    buffer[0] = '\0';
    size_t length = strlen(text);
    snprintf(buffer, size, "%s", text);
    size_t written = length < size ? length : size > 1 ? size : 0;
    values[index - 1] = (void *)(uintptr_t)written;
}

void tow_soft_jit_done(struct tow_soft_jit *jit, int64_t ns, const char *info, const char *error)
{
    log_out(jit->info, jit->info_size, jit->index_info, jit->values, info);
    log_out(jit->error, jit->error_size, jit->index_error, jit->values, error);
    if (jit->index_wall != 0) {
        /* The upper half of the value stays as it is. */
        float ms = (float)((double)ns / 1e6);
        memcpy(&jit->values[jit->index_wall - 1], &ms, sizeof ms);
    }
    if (jit->index_threads != 0) {
        /* Whole warps. */
        size_t threads = (unsigned)(uintptr_t)jit->values[jit->index_threads - 1];
        threads = threads < 1024 ? (threads + 31) / 32 * 32 : 1024;
        jit->values[jit->index_threads - 1] = (void *)(uintptr_t)threads;
    }
}

/* ---- code
 * -----------------------------------------------------------------------------------------------
 */

struct tow_soft_code *tow_soft_code_ref(struct tow_soft_code *code)
{
    code->refs++;
    return code;
}

void tow_soft_code_unref(struct tow_soft_code *code)
{
    if (code != NULL && --code->refs == 0) {
        tow_ptx_unload(code->ptx);
        free(code);
    }
}

/* The number in ".target sm_90a", for attribute queries. */
static int target_of(const char *text)
{
    const char *at = strstr(text, ".target");
    at = at != NULL ? strstr(at, "sm_") : NULL;
    return at != NULL && isdigit((unsigned char)at[3]) ? (int)strtol(at + 3, NULL, 10) : 0;
}

/* Whether the text says ".version N" with N beyond what CUDA 13 knows. */
static bool is_too_new(const char *text)
{
    const char *at = strstr(text, ".version");
    return at != NULL && strtoul(at + strlen(".version"), NULL, 10) > PTX_MAJOR_MAX;
}

static CUresult result_of(int rc)
{
    switch (rc) {
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -ENOTSUP:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_PTX;
    }
}

bool tow_soft_is_device_runtime(const char *name)
{
    return strncmp(name, "__cuda_syscall_", 15) == 0 ||
           (strncmp(name, "cnp", 3) == 0 && (isupper((unsigned char)name[3]) || name[3] == 'v'));
}

const struct tow_ptx_undefined *tow_soft_undefined(const struct tow_ptx_module *ptx)
{
    const struct tow_ptx_undefined *undefined;
    for (size_t i = 0; (undefined = tow_ptx_undefined_at(ptx, i)) != NULL; i++) {
        if (!tow_soft_is_device_runtime(undefined->name)) {
            return undefined;
        }
    }
    return NULL;
}

static bool any_kernel_runs(const struct tow_ptx_module *ptx)
{
    for (size_t i = 0; i < tow_ptx_kernel_count(ptx); i++) {
        struct tow_ptx_kernel_info info;
        tow_ptx_kernel_describe(tow_ptx_kernel_at(ptx, i), &info);
        if (info.undefined == NULL && info.refused == NULL) {
            return true;
        }
    }
    return false;
}

/* Instructions that we do not run: the same as below. */
static void tell_refused(const struct tow_ptx_module *ptx)
{
    for (size_t i = 0; i < tow_ptx_kernel_count(ptx) && tow_ptx_refuses(ptx); i++) {
        struct tow_ptx_kernel_info info;
        tow_ptx_kernel_describe(tow_ptx_kernel_at(ptx, i), &info);
        if (info.refused != NULL) {
            tow_log(TOW_AREA_SOFT, TOW_LOG_WARN,
                    "the code has instructions that the software GPU does not have (such as "
                    "'%.120s' in line %u): kernels that can reach one are refused when they are "
                    "launched",
                    info.refused, info.refused_line);
            return;
        }
    }
}

/* Functions that nobody defines: relocatable device code brings the whole device runtime along,
 * whose lowest functions are the driver's. Kernels that can reach one are refused when they are
 * launched. Code of which nothing could be launched is refused as a whole, as a driver does. */
static int check_undefined(const struct tow_ptx_module *ptx, struct tow_ptx_diag *diag)
{
    size_t count = tow_ptx_undefined_count(ptx);
    const struct tow_ptx_undefined *first = tow_soft_undefined(ptx);
    if (first != NULL && !any_kernel_runs(ptx)) {
        diag->line = first->line;
        snprintf(diag->message, sizeof diag->message,
                 "function '%.200s' is called but no text defines it", first->name);
        return -ENOENT;
    }
    if (count != 0) {
        /* Those of the device runtime are in every program that is built so. */
        tow_log(TOW_AREA_SOFT, first != NULL ? TOW_LOG_WARN : TOW_LOG_INFO,
                "the code names functions that nothing defines (%.200s and %zu more): kernels that "
                "can reach one are refused when they are launched",
                first != NULL ? first->name : tow_ptx_undefined_at(ptx, 0)->name, count - 1);
    }
    tell_refused(ptx);
    return 0;
}

static void texts_digest(const struct tow_soft_texts *texts, uint8_t ret_digest[TOW_SHA256_SIZE])
{
    struct tow_sha256 sha;
    tow_sha256_init(&sha);
    for (size_t i = 0; i < texts->count; i++) {
        tow_sha256_update(&sha, texts->texts[i].text, texts->texts[i].length);
        tow_sha256_update(&sha, "", 1);
    }
    tow_sha256_final(&sha, ret_digest);
}

CUresult tow_soft_code_load(const void *image, struct tow_soft_jit *jit,
                            struct tow_soft_code **ret_code)
{
    struct tow_soft_texts texts = {0};
    char why[640] = "";
    int64_t begin = tow_time_now_ns();
    CUresult result = tow_soft_image_texts(image, SIZE_MAX, &texts, why, sizeof why);
    struct tow_soft_code *code = NULL;
    for (size_t i = 0; i < texts.count && result == CUDA_SUCCESS; i++) {
        if (is_too_new(texts.texts[i].text)) {
            snprintf(
                why, sizeof why,
                "The PTX is of a newer version than this software GPU knows (%d.x); build with an "
                "older compiler.",
                PTX_MAJOR_MAX);
            result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
        }
    }
    if (result == CUDA_SUCCESS) {
        code = calloc(1, sizeof *code);
        struct tow_ptx_diag diag = {0};
        int rc = code == NULL ? -ENOMEM : tow_ptx_load(texts.texts, texts.count, &diag, &code->ptx);
        if (rc == 0 && (rc = check_undefined(code->ptx, &diag)) != 0) {
            tow_ptx_unload(code->ptx);
        }
        if (rc != 0) {
            result = result_of(rc);
            free(code);
            if (diag.line != 0) {
                snprintf(why, sizeof why, "PTX line %u: %s", diag.line, diag.message);
            } else {
                snprintf(why, sizeof why, "PTX: %s",
                         rc == -ENOMEM ? "out of memory" : diag.message);
            }
        }
    }
    if (result == CUDA_SUCCESS) {
        code->refs = 1;
        code->kernel_count = tow_ptx_kernel_count(code->ptx);
        code->variable_count = tow_ptx_variable_count(code->ptx);
        code->ptx_target = target_of(texts.texts[0].text);
        if (tow_soft_checked()) {
            texts_digest(&texts, code->digest);
        }
        *ret_code = code;
    } else {
        tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR, "code refused: %s", why);
    }
    tow_soft_jit_done(jit, tow_time_now_ns() - begin, "", why);
    tow_soft_texts_fini(&texts);
    return result;
}
