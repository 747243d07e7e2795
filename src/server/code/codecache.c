/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of code images: reading, checking, and writing by rename. */
#include "server/code/codecache.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "server/code/codecache_room.h"
#include "wire/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FACTS_MAX = 4 << 20, /* of one image on one GPU */
    READABLE = 0644,     /* by workers, which have other users; the folder keeps others out */
};

struct tows_codecache {
    char *folder; /* owned */
    struct tows_codecache_room room;
};

int tows_codecache_open(const char *folder, uint64_t max, uint64_t peer_max,
                        struct tows_codecache **ret_cache)
{
    struct tows_codecache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) {
        return -ENOMEM;
    }
    cache->folder = strdup(folder);
    tows_codecache_room_init(&cache->room, cache->folder,
                             max != 0 ? max : TOW_CODECACHE_DEFAULT_MAX, peer_max);
    int error = cache->folder == NULL ? -ENOMEM : tow_file_mkdir_all(folder, true);
    if (error < 0) {
        tows_codecache_close(cache);
        return error;
    }
    *ret_cache = cache;
    return 0;
}

void tows_codecache_close(struct tows_codecache *cache)
{
    if (cache != NULL) {
        tows_codecache_room_fini(&cache->room);
        free(cache->folder);
        free(cache);
    }
}

static char *path_of(const struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE])
{
    char name[TOW_CODECACHE_HASH_DIGITS + 1];
    char *path = NULL;
    tow_sha256_hex(hash, name);
    return asprintf(&path, "%s/%s", cache->folder, name) < 0 ? NULL : path;
}

/* Now is when it was last used. 1: this process cannot say so. */
static int codecache_touch(const char *path)
{
    return utimensat(AT_FDCWD, path, NULL, 0) == 0 ? 0 : 1;
}

int tows_codecache_get(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                       size_t size, uint8_t **ret_bytes)
{
    char *path = path_of(cache, hash);
    if (path == NULL) {
        return -ENOMEM;
    }
    struct stat st;
    int error = stat(path, &st) < 0 ? -errno : 0;
    struct tow_buf content;
    tow_buf_init(&content, size);
    if (error == 0 && (uint64_t)st.st_size == size) {
        error = tow_buf_reserve(&content, size);
        if (error == 0) {
            error = tow_file_read(path, &content);
        }
    } else if (error == 0) {
        error = -EBADMSG;
    }
    if (error == 0) {
        uint8_t digest[TOW_SHA256_SIZE];
        tow_sha256_of(content.data, content.size, digest);
        if (content.size != size || memcmp(digest, hash, sizeof digest) != 0) {
            error = -EBADMSG;
        }
    }
    if (error == -EBADMSG || error == -E2BIG) {
        /* A worker cannot remove it; it goes when the right one is put there. */
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s is not what its name says", path);
        unlink(path);
        error = -ENOENT;
    }
    if (error == 0) {
        *ret_bytes = tow_buf_steal(&content);
        error = codecache_touch(path);
    }
    tow_buf_fini(&content);
    free(path);
    return error;
}

/* Whoever has its bytes has looked for it first: what is there now is as good, or is not what its
 * name says. */
static bool image_link(const char *from, const char *path)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 ||
           (errno == EEXIST && unlink(path) == 0 &&
            linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0);
}

/* It gets its name when it is whole: of a writer that ends on the way nothing is left. */
static int write_image(const struct tows_codecache *cache, const char *path, const void *bytes,
                       size_t size)
{
    int fd = open(cache->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        char self[32];
        int error = tow_file_write_all(fd, bytes, size);
        fchmod(fd, READABLE);
        snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
        bool linked = error == 0 && image_link(self, path);
        close(fd);
        if (error < 0 || linked) {
            return error;
        }
    }
    /* Not every file system can do that. */
    return tow_file_write_atomic(path, bytes, size, READABLE);
}

uint64_t tows_codecache_used(struct tows_codecache *cache)
{
    return tows_codecache_room_used(&cache->room);
}

uint64_t tows_codecache_used_by(struct tows_codecache *cache, const char *tenant)
{
    return tows_codecache_room_used_by(&cache->room, tows_codecache_tenant(tenant));
}

void tows_codecache_count(struct tows_codecache *cache, const char *tenant, uint64_t size)
{
    tows_codecache_room_count(&cache->room, tows_codecache_tenant(tenant), size);
}

static char *facts_path(const struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                        const char *tenant, uint64_t key)
{
    char name[TOW_CODECACHE_HASH_DIGITS + 1], owner[1 + TOW_CODECACHE_WORD_DIGITS + 1] = "";
    char *path = NULL;
    tow_sha256_hex(hash, name);
    if (tenant != NULL) {
        snprintf(owner, sizeof owner, ".%016llx",
                 (unsigned long long)tows_codecache_tenant(tenant));
    }
    return asprintf(&path, "%s/%s.%016llx%s", cache->folder, name, (unsigned long long)key, owner) <
                   0
               ? NULL
               : path;
}

int tows_codecache_get_facts(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                             const char *tenant, uint64_t key, struct tow_buf *facts)
{
    char *path = facts_path(cache, hash, tenant, key);
    int error = path == NULL ? -ENOMEM : tow_file_read(path, facts);
    if (error == 0) {
        error = codecache_touch(path);
    }
    free(path);
    return error;
}

void tows_codecache_use(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                        const char *tenant, uint64_t key)
{
    char *path = key == 0 ? path_of(cache, hash) : facts_path(cache, hash, tenant, key);
    if (path != NULL) {
        codecache_touch(path);
    }
    free(path);
}

int tows_codecache_add_facts(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                             const char *tenant, uint64_t key, const void *bytes, size_t size)
{
    int error = tows_codecache_room_make(&cache->room, tows_codecache_tenant(tenant), size);
    char *path = error == 0 ? facts_path(cache, hash, tenant, key) : NULL;
    if (path == NULL) {
        return error < 0 ? error : -ENOMEM;
    }
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    error = fd < 0 ? -errno : 0;
    free(path);
    if (error < 0) {
        return error;
    }
    struct stat st;
    fchmod(fd, READABLE);
    if (fstat(fd, &st) == 0 && st.st_size + (off_t)size <= FACTS_MAX) {
        /* One write: what two workers add at once stands one behind the other. */
        error = write(fd, bytes, size) < 0 ? -errno : 0;
    } else {
        error = -E2BIG;
    }
    close(fd);
    return error;
}

int tows_codecache_was_sent(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                            const char *tenant)
{
    struct tow_buf mark;
    if (tenant == NULL) {
        return 0;
    }
    tow_buf_init(&mark, FACTS_MAX);
    int found = tows_codecache_get_facts(cache, hash, tenant, TOW_CODECACHE_SENT, &mark);
    tow_buf_fini(&mark);
    return found;
}

static int mark_sent(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                     const char *tenant)
{
    return tows_codecache_was_sent(cache, hash, tenant) >= 0
               ? 0
               : tows_codecache_add_facts(cache, hash, tenant, TOW_CODECACHE_SENT, "\n", 1);
}

/* The mark goes first: who looks meanwhile charges the tenant for the image once it is there. */
int tows_codecache_put(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                       const char *tenant, const void *bytes, size_t size)
{
    uint64_t owner = tows_codecache_tenant(tenant);
    if (!tows_codecache_room_fits(&cache->room, owner, size)) {
        return -E2BIG;
    }
    char *path = path_of(cache, hash);
    if (path == NULL) {
        return -ENOMEM;
    }
    int error = mark_sent(cache, hash, tenant);
    if (error == 0) {
        error = tows_codecache_room_make(&cache->room, owner, size);
    }
    if (error == 0) {
        error = write_image(cache, path, bytes, size);
    }
    free(path);
    return error;
}
