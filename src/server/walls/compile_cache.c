/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, hands over and removes the folders of NVIDIA's compile cache. */
#include "server/walls/compile_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "server/walls/walls.h"

enum {
    TENANT_DIGITS = 16,
    DEEP = 16,                 /* descriptors for folders in folders */
    UNUSED_S = 30 * 24 * 3600, /* after this a tenant's folder goes */
};

/* Process-wide, as CUDA_CACHE_PATH is: the descriptor that it names; -1: none. */
static int cache_folder = -1;

static bool cache_base(const struct tows_config *config, char *ret_path, size_t size)
{
    char base[TOW_CONFIG_TEXT_MAX];
    const char *chosen = getenv("CUDA_CACHE_PATH");
    snprintf(base, sizeof base, "%s", config->cache_dir);
    if (tows_config_wants_soft(config)) {
        return false;
    }
    if (chosen != NULL) {
        snprintf(ret_path, size, "%s", chosen);
        return chosen[0] != '\0';
    }
    if (base[0] == '\0' && tow_file_cache_dir(true, base, sizeof base) < 0) {
        return false;
    }
    snprintf(ret_path, size, "%s/nvidia", base);
    return true;
}

/* Each tenant's user makes his own folder in this one, and sees nobody else's. */
static int open_users(const char *base, char *ret_path, size_t size)
{
    int length = snprintf(ret_path, size, "%s/users", base);
    if (length < 0 || (size_t)length >= size || tow_file_mkdir_all(ret_path, true) < 0) {
        return -1;
    }
    int folder = open(ret_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && fchmod(folder, S_ISVTX | 0733) != 0) {
        close(folder);
        folder = -1;
    }
    return folder;
}

void tows_compile_cache_begin(const struct tows_config *config, char *ret_path, size_t size)
{
    char base[PATH_MAX - 16], named[32];
    ret_path[0] = '\0';
    /* The driver would make the folder itself; here it finds it. */
    if (!cache_base(config, base, sizeof base) || tow_file_mkdir_all(base, true) < 0) {
        return;
    }
    if (config->tenant_users.count == 0) {
        snprintf(ret_path, size, "%s", base);
        setenv("CUDA_CACHE_PATH", ret_path, 1);
        return;
    }
    cache_folder = open_users(base, ret_path, size);
    if (cache_folder < 0) {
        ret_path[0] = '\0';
        setenv("CUDA_CACHE_DISABLE", "1", 1);
        return;
    }
    snprintf(named, sizeof named, "/proc/self/fd/%d", cache_folder);
    setenv("CUDA_CACHE_PATH", named, 1);
}

/* Another tenant may have put something there under this name, and has it then. */
static int open_own(uint32_t user, const char *tenant)
{
    uint8_t digest[TOW_SHA256_SIZE];
    char hex[2 * TOW_SHA256_SIZE + 1], name[64];
    struct stat status;
    tow_sha256_of(tenant, strlen(tenant), digest);
    tow_sha256_hex(digest, hex);
    snprintf(name, sizeof name, "%u-%.*s", user, TENANT_DIGITS, hex);
    if (mkdirat(cache_folder, name, 0700) != 0 && errno != EEXIST) {
        return -1;
    }
    int own = openat(cache_folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (own >= 0 && (fstat(own, &status) != 0 || status.st_uid != user ||
                     (status.st_mode & 077) != 0 || futimens(own, NULL) != 0)) {
        close(own);
        own = -1;
    }
    return own;
}

void tows_compile_cache_take(uint32_t user, const char *tenant)
{
    if (cache_folder < 0) {
        return;
    }
    int own = open_own(user, tenant);
    own = own >= 0 ? own : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (own >= 0) {
        dup3(own, cache_folder, O_CLOEXEC);
        close(own);
    } else {
        close(cache_folder);
    }
}

/* ---- folders that nobody uses ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    remove(path);
    return 0;
}

/* In that folder, as the user whose it is: where he has put a link instead of a file, he could have
 * removed what is behind it himself. */
static void remove_unused(const struct tows_config *config, const char *name, time_t now)
{
    const struct tows_config_range *range = &config->tenant_users;
    struct stat status;
    if (stat(name, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid < range->first ||
        status.st_uid - range->first >= range->count || now - status.st_mtime < UNUSED_S ||
        seteuid(status.st_uid) != 0) {
        return;
    }
    nftw(name, remove_one, DEEP, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    if (seteuid(0) != 0) {
        _exit(1);
    }
}

static void be_tidy(const struct tows_config *config, const char *base)
{
    char path[PATH_MAX];
    prctl(PR_SET_NAME, "tow-cache");
    tows_walls_close_now(STDERR_FILENO + 1);
    snprintf(path, sizeof path, "%s/users", base);
    DIR *folder = opendir(path);
    if (folder == NULL || fchdir(dirfd(folder)) != 0) {
        _exit(0);
    }
    time_t now = time(NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            remove_unused(config, entry->d_name, now);
        }
    }
    _exit(0);
}

void tows_compile_cache_tidy(const struct tows_config *config)
{
    char base[PATH_MAX - 16];
    if (config->tenant_users.count != 0 && cache_base(config, base, sizeof base) && fork() == 0) {
        be_tidy(config, base);
    }
}
