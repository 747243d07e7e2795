/* SPDX-License-Identifier: Apache-2.0 */
/* Starts processes that check and write images; adds facts itself. */
#include "server/pool/cache_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/code/codecache.h"
#include "server/walls/walls.h"
#include "server/worker/worker.h"
#include "server/worker/worker_msg.h"
#include "transport/transport.h"
#include "wire/image.h"

void tows_cache_writer_init(struct tows_cache_writer *writer, const struct tows_config *config)
{
    memset(writer, 0, sizeof *writer);
    writer->config = config;
    writer->folder = -1;
    void *shared =
        mmap(NULL, sizeof *writer->used, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    writer->used = shared != MAP_FAILED ? shared : NULL;
}

void tows_cache_writer_fini(struct tows_cache_writer *writer)
{
    tows_codecache_close(writer->cache);
    writer->cache = NULL;
    if (writer->folder >= 0) {
        close(writer->folder);
        writer->folder = -1;
    }
    if (writer->used != NULL) {
        munmap(writer->used, sizeof *writer->used);
        writer->used = NULL;
    }
}

void tows_cache_writer_move(struct tows_cache_writer *writer, int folder)
{
    tows_codecache_close(writer->cache);
    writer->cache = NULL;
    if (writer->folder >= 0) {
        close(writer->folder);
    }
    writer->folder = folder;
    writer->given = true;
}

uint64_t tows_cache_writer_used(const struct tows_cache_writer *writer)
{
    return writer->used != NULL ? atomic_load(writer->used) : 0;
}

uint64_t tows_cache_writer_used_by(const struct tows_cache_writer *writer, const char *tenant)
{
    return writer->cache != NULL ? tows_codecache_used_by(writer->cache, tenant) : 0;
}

static int writer_open(const struct tows_cache_writer *writer, int folder,
                       struct tows_codecache **ret_cache, char *ret_folder, size_t size)
{
    const struct tows_config *config = writer->config;
    if (!writer->given) {
        tows_worker_code_cache(config, ret_folder, size);
    } else if (folder >= 0 && config->code_cache != 0) {
        snprintf(ret_folder, size, "/proc/self/fd/%d", folder);
    } else {
        ret_folder[0] = '\0';
    }
    return ret_folder[0] == '\0' ? -ENOENT
                                 : tows_codecache_open(ret_folder, config->code_cache,
                                                       config->code_cache_per_peer, ret_cache);
}

static int write_checked(struct tows_codecache *cache, const char *tenant,
                         const uint8_t hash[TOW_SHA256_SIZE], int image, size_t size)
{
    uint8_t digest[TOW_SHA256_SIZE];
    void *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, image, 0);
    if (bytes == MAP_FAILED) {
        return -errno;
    }
    tow_sha256_of(bytes, size, digest);
    int error = memcmp(digest, hash, sizeof digest) != 0
                    ? -EBADMSG
                    : tows_codecache_put(cache, hash, tenant, bytes, size);
    munmap(bytes, size);
    return error;
}

static void writer_answer(int answer, int error)
{
    struct tows_worker_msg_answer said = {.error = error};
    tow_fds_try_send(answer, &said, sizeof said, NULL, 0);
}

/* ---- the process that writes one image ---- */

enum { WRITER_IMAGE = STDERR_FILENO + 1, WRITER_ANSWER, WRITER_FOLDER };

/* Connections of clients must not stay open because of this process. All are moved out of the way
 * first: each may be where another is to be. */
static void writer_keep(int image, int answer, int folder)
{
    int high_image = fcntl(image, F_DUPFD, WRITER_FOLDER + 1);
    int high_answer = fcntl(answer, F_DUPFD, WRITER_FOLDER + 1);
    int high_folder = folder >= 0 ? fcntl(folder, F_DUPFD, WRITER_FOLDER + 1) : -1;
    if (high_image < 0 || high_answer < 0 || dup2(high_image, WRITER_IMAGE) < 0 ||
        dup2(high_answer, WRITER_ANSWER) < 0 ||
        (folder >= 0 && (high_folder < 0 || dup2(high_folder, WRITER_FOLDER) < 0))) {
        _exit(1); /* who asked sees its connection end */
    }
    tows_walls_close_now(folder >= 0 ? WRITER_FOLDER + 1 : WRITER_FOLDER);
}

/* It ends without a word but the answer: the log's descriptor is closed, too. */
static void be_writer(const struct tows_cache_writer *writer, const char *tenant,
                      const uint8_t hash[TOW_SHA256_SIZE], int image, size_t size, int answer)
{
    char folder[TOW_CONFIG_TEXT_MAX + 16];
    struct tows_codecache *cache;
    prctl(PR_SET_NAME, "tow-cache");
    /* The listener goes before others, with the group that its terminal's session is; this has
     * time. */
    (void)setsid();
    if (getpriority(PRIO_PROCESS, 0) < 0) {
        setpriority(PRIO_PROCESS, 0, 0);
    }
    writer_keep(image, answer, writer->folder);
    int error = writer_open(writer, writer->folder >= 0 ? WRITER_FOLDER : -1, &cache, folder,
                            sizeof folder);
    if (error == 0) {
        /* One at a time, so that all together keep the limit. */
        int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (lock >= 0) {
            flock(lock, LOCK_EX);
        }
        error = write_checked(cache, tenant, hash, WRITER_IMAGE, size);
        if (writer->used != NULL && error == 0) {
            atomic_store(writer->used, tows_codecache_used(cache)); /* it has looked at all */
        }
    }
    writer_answer(WRITER_ANSWER, error);
    _exit(0);
}

/* ---- the listener ---- */

/* Nobody can change it any more, or make it shorter under who reads it. */
static bool is_sealed(int image)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    int seals = fcntl(image, F_GET_SEALS);
    return seals >= 0 && (seals & wanted) == wanted;
}

/* The listener's own: it knows how much there is without looking each time. */
static int own_cache(struct tows_cache_writer *writer)
{
    char folder[TOW_CONFIG_TEXT_MAX + 16];
    return writer->cache != NULL
               ? 0
               : writer_open(writer, writer->folder, &writer->cache, folder, sizeof folder);
}

/* The listener has written by itself: what others wrote meanwhile stays counted. */
static void writer_count(struct tows_cache_writer *writer, uint64_t before)
{
    uint64_t after = tows_codecache_used(writer->cache);
    if (writer->used != NULL && atomic_load(writer->used) == 0) {
        atomic_store(writer->used, after);
    } else if (writer->used != NULL && after > before) {
        atomic_fetch_add(writer->used, after - before);
    }
}

int tows_cache_writer_store(struct tows_cache_writer *writer, uint64_t session, const char *tenant,
                            const uint8_t hash[TOW_SHA256_SIZE], int image, int answer)
{
    struct stat status;
    int place = -1, own = 0;
    if (image < 0 || answer < 0 || !is_sealed(image) || fstat(image, &status) != 0 ||
        status.st_size <= 0 || (uint64_t)status.st_size > TOW_IMAGE_MAX) {
        return -EINVAL;
    }
    size_t size = (size_t)status.st_size;
    if (size <= TOW_STORES_SMALL) {
        int error = own_cache(writer);
        if (error == 0) {
            uint64_t before = tows_codecache_used(writer->cache);
            error = write_checked(writer->cache, tenant, hash, image, size);
            writer_count(writer, before);
        }
        writer_answer(answer, error);
        return 0;
    }
    for (int i = 0; i < TOW_STORES_MAX; i++) {
        if (writer->stores[i].pid == 0) {
            place = i;
        } else if (writer->stores[i].session == session) {
            own++;
        }
    }
    if (place < 0 || own >= TOW_STORES_SESSION_MAX) {
        return -EBUSY;
    }
    if (own_cache(writer) == 0) {
        tows_codecache_count(writer->cache, tenant, size);
    }
    pid_t pid = fork();
    if (pid == 0) {
        be_writer(writer, tenant, hash, image, size, answer);
    }
    if (pid < 0) {
        return -errno;
    }
    writer->stores[place].pid = pid;
    writer->stores[place].session = session;
    return 0;
}

void tows_cache_writer_reaped(struct tows_cache_writer *writer, pid_t pid)
{
    for (int i = 0; i < TOW_STORES_MAX; i++) {
        if (writer->stores[i].pid == pid) {
            writer->stores[i].pid = 0;
        }
    }
}

void tows_cache_writer_facts(struct tows_cache_writer *writer, const char *tenant,
                             const uint8_t hash[TOW_SHA256_SIZE], uint64_t key, const void *bytes,
                             size_t size)
{
    if (size != 0 && key != 0 && own_cache(writer) == 0) {
        uint64_t before = tows_codecache_used(writer->cache);
        tows_codecache_add_facts(writer->cache, hash, tenant, key, bytes, size);
        writer_count(writer, before);
    }
}

void tows_cache_writer_use(struct tows_cache_writer *writer, const char *tenant,
                           const uint8_t hash[TOW_SHA256_SIZE], uint64_t key)
{
    if (own_cache(writer) == 0) {
        tows_codecache_use(writer->cache, hash, tenant, key);
    }
}
