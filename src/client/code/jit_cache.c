/* SPDX-License-Identifier: Apache-2.0 */
/* The compile cache on disk: finding, storing, and making room. */
#include "client/code/jit_cache.h"
#include "client/code/linked_cubin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mutex.h"
#include "wire/cursor.h"

enum {
    NAME_SIZE = 2 * TOW_SHA256_SIZE + 1,
    HEAD_SIZE = 48,            /* magic, flags, size, hash of the data */
    DATA_MAX = 512 << 20,      /* one result; NVRTC's are a few hundred KiB at most */
    REMEMBERED_MAX = 64 << 20, /* PTX kept in this process */
    HAS_PTX = 1,               /* flag of a cubin: a file with its PTX stands beside it */
};
static const char magic[8] = "TOWJIT1";

/* What the caller's opaque key is. */
struct key {
    int kind;
    uint8_t input[TOW_SHA256_SIZE]; /* hash of the compiler's input, without options */
    char name[NAME_SIZE];           /* hash of everything: the file's name */
    char *ptx;                      /* owned: the input itself, if it is PTX; else NULL */
    size_t ptx_size;
};

/* PTX that this process has seen, by the hash of the bitcode it came from or of the cubin that it
 * became. */
struct remembered {
    struct remembered *next;
    uint8_t hash[TOW_SHA256_SIZE];
    size_t size;
    char text[];
};

/* Process-wide: a cache of the user's folder; keys say for which device. */
static struct {
    struct tow_mutex lock;     /* guards all here */
    struct remembered *memory; /* newest first */
    size_t memory_size;
    struct towc_linked_object *objects; /* owned: for a linker, newest first */
    bool looked;                        /* the environment was read */
    char folder[512];                   /* "" if the disk is not to be used */
    uint64_t folder_max;                /* bytes */
    int64_t folder_size;                /* bytes there, as far as known; -1: not counted yet */
} cache = {.lock = TOW_MUTEX(CLIENT_JIT_CACHE), .folder_size = -1};

/* ---- in memory ---- */

static void jit_cache_remember(const uint8_t hash[TOW_SHA256_SIZE], const char *text, size_t size)
{
    if (size > REMEMBERED_MAX / 4) {
        return;
    }
    struct remembered *r = malloc(sizeof *r + size);
    if (r == NULL) {
        return;
    }
    memcpy(r->hash, hash, sizeof r->hash);
    memcpy(r->text, text, size);
    r->size = size;
    tow_mutex_lock(&cache.lock);
    r->next = cache.memory;
    cache.memory = r;
    cache.memory_size += size;
    size_t kept = 0;
    for (struct remembered **at = &cache.memory; *at != NULL;) {
        struct remembered *old = *at;
        if (old != r &&
            (memcmp(old->hash, hash, sizeof old->hash) == 0 || kept + old->size > REMEMBERED_MAX)) {
            *at = old->next;
            cache.memory_size -= old->size;
            free(old);
        } else {
            kept += old->size;
            at = &old->next;
        }
    }
    tow_mutex_unlock(&cache.lock);
}

static int jit_cache_recall(const uint8_t hash[TOW_SHA256_SIZE], struct tow_buf *text)
{
    int result = -ENOENT;
    tow_mutex_lock(&cache.lock);
    for (struct remembered *r = cache.memory; r != NULL; r = r->next) {
        if (memcmp(r->hash, hash, sizeof r->hash) == 0) {
            result = tow_buf_append(text, r->text, r->size);
            break;
        }
    }
    tow_mutex_unlock(&cache.lock);
    return result;
}

/* An object for a linker, and the PTX it was compiled from: newest first, each once. */
static void jit_cache_keep_object(const void *elf, size_t n, const struct tow_buf *ptx)
{
    if (!towc_linked_is_object(elf, n) || n + ptx->size > REMEMBERED_MAX / 4) {
        return;
    }
    struct towc_linked_object *object =
        towc_linked_object_create(elf, n, (const char *)ptx->data, ptx->size);
    if (object == NULL) {
        return;
    }
    tow_mutex_lock(&cache.lock);
    object->next = cache.objects;
    cache.objects = object;
    size_t kept = n + ptx->size;
    for (struct towc_linked_object **at = &object->next; *at != NULL;) {
        struct towc_linked_object *old = *at;
        size_t size = old->elf_size + old->text_size;
        if (kept + size > REMEMBERED_MAX || (old->elf_size == n && memcmp(old->elf, elf, n) == 0)) {
            *at = old->next;
            free(old);
        } else {
            kept += size;
            at = &old->next;
        }
    }
    tow_mutex_unlock(&cache.lock);
}

/* ---- on disk ---- */

/* The folder, made on first use; false if the disk is not to be used. */
static bool use_folder(void)
{
    tow_mutex_lock(&cache.lock);
    if (!cache.looked) {
        cache.looked = true;
        const char *disable = getenv("CUDA_CACHE_DISABLE");
        const char *path = getenv("CUDA_CACHE_PATH");
        const char *max = getenv("CUDA_CACHE_MAXSIZE");
        cache.folder_max =
            max != NULL && max[0] != '\0' ? strtoull(max, NULL, 10) : UINT64_C(1) << 30;
        bool off = (disable != NULL && strtol(disable, NULL, 10) != 0) || cache.folder_max == 0;
        int length = -1;
        if (off) {
            length = -1;
        } else if (path != NULL && path[0] != '\0') {
            length = snprintf(cache.folder, sizeof cache.folder, "%s", path);
        } else if (tow_file_cache_dir(false, cache.folder, sizeof cache.folder - 8) == 0) {
            size_t end = strlen(cache.folder);
            length = (int)end + snprintf(cache.folder + end, sizeof cache.folder - end, "/jit");
        }
        if (length < 0 || length >= (int)sizeof cache.folder ||
            tow_file_mkdir_all(cache.folder, true) < 0) {
            cache.folder[0] = '\0';
        }
    }
    bool use = cache.folder[0] != '\0';
    tow_mutex_unlock(&cache.lock);
    return use;
}

static bool file_path(const char *name, const char *suffix, char *ret_path, size_t size)
{
    return snprintf(ret_path, size, "%s/%s%s", cache.folder, name, suffix) < (int)size;
}

struct found_file {
    char name[NAME_SIZE + 8];
    int64_t used_ns;
    uint64_t size;
};

static int by_age(const void *a, const void *b)
{
    const struct found_file *x = a, *y = b;
    return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}

/* With the lock held: counts what is there; if `needed` more would be too much, removes the oldest.
 * Only files that look like ours count, so that a folder of somebody else's is safe. */
static void make_room(uint64_t needed)
{
    if (cache.folder_size >= 0 && (uint64_t)cache.folder_size + needed <= cache.folder_max) {
        cache.folder_size += (int64_t)needed;
        return;
    }
    DIR *dir = opendir(cache.folder);
    if (dir == NULL) {
        return;
    }
    struct found_file *files = NULL;
    size_t count = 0, room = 0;
    uint64_t total = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        size_t digits = strspn(entry->d_name, "0123456789abcdef");
        const char *suffix = entry->d_name + digits;
        if (digits != NAME_SIZE - 1 ||
            (strcmp(suffix, ".bin") != 0 && strcmp(suffix, ".ptx") != 0)) {
            continue;
        }
        struct statx info;
        if (statx(dirfd(dir), entry->d_name, 0, STATX_SIZE | STATX_MTIME, &info) != 0) {
            continue;
        }
        if (count == room) {
            size_t more = room == 0 ? 256 : room * 2;
            struct found_file *grown = realloc(files, more * sizeof *files);
            if (grown == NULL) {
                break;
            }
            files = grown;
            room = more;
        }
        snprintf(files[count].name, sizeof files[count].name, "%s", entry->d_name);
        files[count].used_ns = (int64_t)info.stx_mtime.tv_sec * 1000000000 + info.stx_mtime.tv_nsec;
        files[count].size = info.stx_size;
        total += info.stx_size;
        count++;
    }
    if (total + needed > cache.folder_max && count > 0) {
        /* Some slack, so that the next stores need not look again. */
        uint64_t goal = cache.folder_max - cache.folder_max / 8;
        qsort(files, count, sizeof *files, by_age);
        for (size_t i = 0; i < count && total + needed > goal; i++) {
            if (unlinkat(dirfd(dir), files[i].name, 0) == 0) {
                total -= files[i].size;
            }
        }
    }
    cache.folder_size = (int64_t)(total + needed);
    closedir(dir);
    free(files);
}

static void write_file(const char *name, const char *suffix, uint32_t flags, const void *data,
                       size_t size)
{
    char path[640];
    if (!use_folder() || !file_path(name, suffix, path, sizeof path) ||
        size + HEAD_SIZE > cache.folder_max) {
        return;
    }
    uint8_t *bytes = malloc(HEAD_SIZE + size);
    if (bytes == NULL) {
        return;
    }
    uint8_t hash[TOW_SHA256_SIZE];
    tow_sha256_of(data, size, hash);
    struct tow_enc enc = tow_enc_init(bytes, HEAD_SIZE + size);
    tow_enc_bytes(&enc, magic, sizeof magic);
    tow_enc_u32(&enc, flags);
    tow_enc_u32(&enc, (uint32_t)size);
    tow_enc_bytes(&enc, hash, sizeof hash);
    tow_enc_bytes(&enc, data, size);
    tow_mutex_lock(&cache.lock);
    make_room(HEAD_SIZE + size);
    tow_mutex_unlock(&cache.lock);
    int error = tow_file_write_atomic(path, bytes, HEAD_SIZE + size, 0600);
    if (error < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_DEBUG, "a compilation could not be kept in %s: %s", path,
                strerror(-error));
    }
    free(bytes);
}

/* Reads a file of ours, checks it and marks it as used. The data begins HEAD_SIZE bytes into `buf`.
 */
static int read_file(const char *name, const char *suffix, struct tow_buf *buf, uint32_t *ret_flags)
{
    char path[640];
    if (!use_folder() || !file_path(name, suffix, path, sizeof path)) {
        return -ENOENT;
    }
    int error = tow_file_read(path, buf);
    if (error < 0) {
        return error;
    }
    struct tow_dec dec = tow_dec_init(buf->data, buf->size);
    const uint8_t *has_magic = tow_dec_bytes(&dec, sizeof magic);
    uint32_t flags = tow_dec_u32(&dec);
    uint32_t size = tow_dec_u32(&dec);
    const uint8_t *has_hash = tow_dec_bytes(&dec, TOW_SHA256_SIZE);
    uint8_t hash[TOW_SHA256_SIZE];
    if (dec.bad || memcmp(has_magic, magic, sizeof magic) != 0 || size != tow_dec_left(&dec)) {
        unlink(path);
        return -ENOENT;
    }
    tow_sha256_of(dec.at, size, hash);
    if (memcmp(hash, has_hash, sizeof hash) != 0) {
        unlink(path);
        return -ENOENT;
    }
    utimensat(AT_FDCWD, path, NULL, 0);
    *ret_flags = flags;
    return 0;
}

/* ---- the table's functions ---- */

static bool looks_like_ptx(const char *text, size_t n)
{
    while (n > 0 && (*text == ' ' || *text == '\n' || *text == '\t' || *text == '\r')) {
        text++;
        n--;
    }
    return n > 8 && (strncmp(text, ".version", 8) == 0 || strncmp(text, "//", 2) == 0);
}

CUresult towc_jit_cache_key(void **ret_key, int kind, const void *input, size_t n,
                            const char *options)
{
    if (ret_key == NULL || (input == NULL && n > 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct key *key = calloc(1, sizeof *key);
    if (key == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    key->kind = kind;
    tow_sha256_of(input, n, key->input);
    struct tow_sha256 sha;
    uint8_t hash[TOW_SHA256_SIZE];
    tow_sha256_init(&sha);
    tow_sha256_update(&sha, &key->kind, sizeof key->kind);
    tow_sha256_update(&sha, key->input, sizeof key->input);
    if (options != NULL) {
        tow_sha256_update(&sha, options, strlen(options));
    }
    tow_sha256_final(&sha, hash);
    tow_sha256_hex(hash, key->name);
    if (kind == TOW_JIT_CUBIN && n < REMEMBERED_MAX && looks_like_ptx(input, n)) {
        key->ptx = malloc(n);
        if (key->ptx != NULL) {
            memcpy(key->ptx, input, n);
            key->ptx_size = strnlen(key->ptx, n);
        }
    }
    *ret_key = key;
    return CUDA_SUCCESS;
}

CUresult towc_jit_cache_free_key(void *opaque)
{
    struct key *key = opaque;
    if (key != NULL) {
        free(key->ptx);
        free(key);
    }
    return CUDA_SUCCESS;
}

/* A compilation to PTX gave this, now or earlier. */
static void record_ptx(const struct key *key, const char *text, size_t size)
{
    if (looks_like_ptx(text, size)) {
        jit_cache_remember(key->input, text, strnlen(text, size));
    }
}

/* A compilation gave this cubin: ties it to its PTX, if that is known. Returns the file's flags. */
static uint32_t record_cubin(const struct key *key, const void *cubin, size_t size)
{
    struct tow_buf ptx;
    tow_buf_init(&ptx, REMEMBERED_MAX);
    int error = key->ptx != NULL ? tow_buf_append(&ptx, key->ptx, key->ptx_size)
                                 : jit_cache_recall(key->input, &ptx);
    uint32_t flags = 0;
    if (error == 0 && ptx.size > 0) {
        uint8_t hash[TOW_SHA256_SIZE];
        char name[NAME_SIZE];
        tow_sha256_of(cubin, size, hash);
        tow_sha256_hex(hash, name);
        jit_cache_remember(hash, (const char *)ptx.data, ptx.size);
        jit_cache_keep_object(cubin, size, &ptx);
        write_file(name, ".ptx", 0, ptx.data, ptx.size);
        flags = HAS_PTX;
    }
    tow_buf_fini(&ptx);
    return flags;
}

CUresult towc_jit_cache_find(void *opaque, int unused, void **ret_data, uint32_t *ret_size)
{
    (void)unused;
    struct key *key = opaque;
    if (key == NULL || ret_data == NULL || ret_size == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_buf file;
    uint32_t flags = 0;
    tow_buf_init(&file, DATA_MAX);
    if (read_file(key->name, ".bin", &file, &flags) < 0) {
        tow_buf_fini(&file);
        return CUDA_ERROR_NOT_FOUND;
    }
    size_t size = file.size - HEAD_SIZE;
    if (key->kind == TOW_JIT_CUBIN && (flags & HAS_PTX)) {
        /* Its PTX must be there too; if that was removed, the compiler is to run again. */
        struct tow_buf ptx;
        tow_buf_init(&ptx, REMEMBERED_MAX);
        int error = towc_jit_cache_ptx_of(file.data + HEAD_SIZE, size, &ptx);
        if (error == 0) {
            jit_cache_keep_object(file.data + HEAD_SIZE, size, &ptx);
        }
        tow_buf_fini(&ptx);
        if (error < 0) {
            tow_buf_fini(&file);
            return CUDA_ERROR_NOT_FOUND;
        }
    }
    void *data = malloc(size + 1);
    if (data == NULL) {
        tow_buf_fini(&file);
        return CUDA_ERROR_NOT_FOUND;
    }
    memcpy(data, file.data + HEAD_SIZE, size);
    tow_buf_fini(&file);
    if (key->kind == TOW_JIT_PTX) {
        record_ptx(key, data, size);
    }
    *ret_data = data;
    *ret_size = (uint32_t)size;
    return CUDA_SUCCESS;
}

CUresult towc_jit_cache_store(void *opaque, int unused, const void *data, uint32_t size)
{
    (void)unused;
    struct key *key = opaque;
    if (key == NULL || data == NULL || size > DATA_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t flags = 0;
    if (key->kind == TOW_JIT_PTX) {
        record_ptx(key, data, size);
    } else if (key->kind == TOW_JIT_CUBIN) {
        flags = record_cubin(key, data, size);
    }
    write_file(key->name, ".bin", flags, data, size);
    return CUDA_SUCCESS;
}

CUresult towc_jit_cache_free_data(void *data)
{
    free(data);
    return CUDA_SUCCESS;
}

int towc_jit_cache_ptx_of(const void *cubin, size_t n, struct tow_buf *ptx)
{
    uint8_t hash[TOW_SHA256_SIZE];
    char name[NAME_SIZE];
    tow_sha256_of(cubin, n, hash);
    int error = jit_cache_recall(hash, ptx);
    if (error != -ENOENT) {
        return error;
    }
    struct tow_buf file;
    uint32_t flags = 0;
    tow_sha256_hex(hash, name);
    tow_buf_init(&file, REMEMBERED_MAX + HEAD_SIZE);
    error = read_file(name, ".ptx", &file, &flags);
    if (error == 0) {
        error = tow_buf_append(ptx, file.data + HEAD_SIZE, file.size - HEAD_SIZE);
    }
    tow_buf_fini(&file);
    if (error == 0) {
        return 0;
    }
    size_t before = ptx->size;
    tow_mutex_lock(&cache.lock);
    error = towc_linked_ptx_of(cubin, n, cache.objects, ptx);
    tow_mutex_unlock(&cache.lock);
    if (error == 0) { /* for programs that keep the cubin and load it another day */
        jit_cache_remember(hash, (const char *)ptx->data + before, ptx->size - before);
        write_file(name, ".ptx", 0, ptx->data + before, ptx->size - before);
    }
    return error < 0 ? -ENOENT : 0;
}
