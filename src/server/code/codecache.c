/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of code images: reading, checking, writing by rename, and making room. */
#include "server/code/codecache.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "wire/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HASH_DIGITS = 2 * TOW_SHA256_SIZE,
    KEY_DIGITS = 16,
    NAME_SIZE = HASH_DIGITS + 1 + KEY_DIGITS + 1, /* facts: HASH.KEY */
    FACTS_MAX = 4 << 20,                          /* of one image on one GPU */
    FILES_MAX = 1 << 16, /* beyond this many the oldest go, however small they are */
    BLOCK = 4096,        /* what the smallest file takes of a disk */
    STALE_S = 3600,      /* a temporary file of a writer that died is removed after this */
    READABLE = 0644,     /* by workers, which have other users; the folder keeps others out */
    LOOK_SHARE = 64,     /* who has written this part of the limit looks what others wrote */
};

struct tows_codecache {
    char *folder; /* owned */
    uint64_t max;
    struct tow_mutex lock; /* guards the rest, and keeps two evictions of ours apart */
    uint64_t used;         /* as of the last look, plus what was written since */
    uint64_t written;      /* since the last look */
    bool looked;
};

struct file {
    char name[NAME_SIZE];
    uint64_t size;
    struct timespec used;
};

int tows_codecache_open(const char *folder, uint64_t max, struct tows_codecache **ret_cache)
{
    struct tows_codecache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) {
        return -ENOMEM;
    }
    tow_mutex_init(&cache->lock, SERVER_CODE_CACHE);
    cache->max = max != 0 ? max : TOW_CODECACHE_DEFAULT_MAX;
    cache->folder = strdup(folder);
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
        tow_mutex_fini(&cache->lock);
        free(cache->folder);
        free(cache);
    }
}

static uint64_t codecache_cost(uint64_t size)
{
    return (size + BLOCK - 1) / BLOCK * BLOCK;
}

static char *path_of(const struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE])
{
    char name[HASH_DIGITS + 1];
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

static int by_age(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) {
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    }
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

/* Of an image, or of facts about one. */
static bool is_our_name(const char *name)
{
    static const char digits[] = "0123456789abcdef";
    if (strspn(name, digits) != HASH_DIGITS) {
        return false;
    }
    name += HASH_DIGITS;
    return *name == '\0' ||
           (*name == '.' && strspn(name + 1, digits) == KEY_DIGITS && name[1 + KEY_DIGITS] == '\0');
}

/* Lists the images; what dead writers left behind is removed on the way. */
static int codecache_look(struct tows_codecache *cache, struct file **ret_files, size_t *ret_count)
{
    DIR *dir = opendir(cache->folder);
    if (dir == NULL) {
        return -errno;
    }
    struct file *files = NULL;
    size_t count = 0, room = 0;
    int error = 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    cache->used = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL && count < FILES_MAX;
         entry = readdir(dir)) {
        struct stat st;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode)) {
            continue;
        }
        if (!is_our_name(entry->d_name)) {
            if (now.tv_sec - st.st_mtim.tv_sec <= STALE_S ||
                unlinkat(dirfd(dir), entry->d_name, 0) < 0) {
                cache->used += codecache_cost((uint64_t)st.st_size);
            }
            continue;
        }
        if (count == room) {
            room = room == 0 ? 256 : room * 2;
            struct file *more = realloc(files, room * sizeof *files);
            if (more == NULL) {
                error = -ENOMEM;
                break;
            }
            files = more;
        }
        snprintf(files[count].name, sizeof files[count].name, "%s", entry->d_name);
        files[count].size = codecache_cost((uint64_t)st.st_size);
        files[count].used = st.st_mtim;
        cache->used += files[count].size;
        count++;
    }
    closedir(dir);
    if (error < 0) {
        free(files);
        return error;
    }
    cache->looked = true;
    cache->written = 0;
    *ret_files = files;
    *ret_count = count;
    return 0;
}

/* With the lock held: makes room for `extra` bytes. */
static int codecache_evict(struct tows_codecache *cache, uint64_t extra)
{
    struct file *files = NULL;
    size_t count = 0;
    int error = codecache_look(cache, &files, &count);
    if (error < 0) {
        return error;
    }
    if (count > 0) {
        qsort(files, count, sizeof *files, by_age);
    }
    if (cache->used + extra > cache->max || count == FILES_MAX) {
        /* A little more than needed, so that not every new image has to look at the whole folder.
         */
        uint64_t goal = cache->max - cache->max / 8;
        goal = goal > extra ? goal - extra : 0;
        size_t surplus = count == FILES_MAX ? FILES_MAX / 8 : 0;
        for (size_t i = 0; i < count && (cache->used > goal || i < surplus); i++) {
            char *path = NULL;
            if (asprintf(&path, "%s/%s", cache->folder, files[i].name) < 0) {
                break;
            }
            if (unlink(path) == 0 || errno == ENOENT) {
                cache->used -= files[i].size;
            }
            free(path);
        }
    }
    free(files);
    return 0;
}

/* Room for so many bytes, which the caller writes then. Other workers write to the same folder: who
 * writes much looks often, so that all together stay near the limit. */
static int make_room(struct tows_codecache *cache, uint64_t size)
{
    int error = 0;
    tow_mutex_lock(&cache->lock);
    if (!cache->looked || cache->used + size > cache->max ||
        cache->written + size > cache->max / LOOK_SHARE) {
        error = codecache_evict(cache, size);
    }
    if (error == 0) {
        cache->used += size;
        cache->written += size;
    }
    tow_mutex_unlock(&cache->lock);
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

int tows_codecache_put(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                       const void *bytes, size_t size)
{
    if (size > cache->max) {
        return -E2BIG;
    }
    char *path = path_of(cache, hash);
    if (path == NULL) {
        return -ENOMEM;
    }
    int error = make_room(cache, codecache_cost(size));
    if (error == 0) {
        error = write_image(cache, path, bytes, size);
    }
    free(path);
    return error;
}

uint64_t tows_codecache_used(struct tows_codecache *cache)
{
    tow_mutex_lock(&cache->lock);
    uint64_t used = cache->used;
    tow_mutex_unlock(&cache->lock);
    return used;
}

uint64_t tows_codecache_key(uint64_t key, const char *tenant)
{
    uint8_t digest[TOW_SHA256_SIZE];
    struct tow_sha256 sha;
    if (key == 0 || tenant == NULL) {
        return key;
    }
    tow_sha256_init(&sha);
    tow_sha256_update(&sha, &key, sizeof key);
    tow_sha256_update(&sha, tenant, strlen(tenant));
    tow_sha256_final(&sha, digest);
    memcpy(&key, digest, sizeof key);
    return key != 0 ? key : 1;
}

static char *facts_path(const struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                        uint64_t key)
{
    char name[HASH_DIGITS + 1];
    char *path = NULL;
    tow_sha256_hex(hash, name);
    return asprintf(&path, "%s/%s.%016llx", cache->folder, name, (unsigned long long)key) < 0
               ? NULL
               : path;
}

int tows_codecache_get_facts(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                             uint64_t key, struct tow_buf *facts)
{
    char *path = facts_path(cache, hash, key);
    int error = path == NULL ? -ENOMEM : tow_file_read(path, facts);
    if (error == 0) {
        error = codecache_touch(path);
    }
    free(path);
    return error;
}

void tows_codecache_use(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                        uint64_t key)
{
    char *path = key == 0 ? path_of(cache, hash) : facts_path(cache, hash, key);
    if (path != NULL) {
        codecache_touch(path);
    }
    free(path);
}

int tows_codecache_add_facts(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                             uint64_t key, const void *bytes, size_t size)
{
    int error = make_room(cache, codecache_cost(size));
    char *path = error == 0 ? facts_path(cache, hash, key) : NULL;
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
    int found = tows_codecache_get_facts(cache, hash,
                                         tows_codecache_key(TOW_CODECACHE_SENT, tenant), &mark);
    tow_buf_fini(&mark);
    return found;
}

int tows_codecache_mark_sent(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                             const char *tenant)
{
    return tows_codecache_was_sent(cache, hash, tenant) >= 0
               ? 0
               : tows_codecache_add_facts(cache, hash,
                                          tows_codecache_key(TOW_CODECACHE_SENT, tenant), "\n", 1);
}
