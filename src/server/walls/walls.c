/* SPDX-License-Identifier: Apache-2.0 */
/* Takes rights away from a worker, and says what could not be taken. */
#include "server/walls/walls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "server/walls/compile_cache.h"
#include "server/walls/landlock.h"
#include "server/walls/seccomp.h"
#include "server/walls/user.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TOW_WALLS_SANITIZED
#endif

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOSE_RANGE_BY_EXEC 4u /* CLOSE_RANGE_CLOEXEC, Linux 5.11 */

/* ---- descriptors ---- */

static void close_one(int fd, bool now)
{
    if (now) {
        close(fd);
    } else {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

static void close_listed(int first, bool now)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) {
        long most = sysconf(_SC_OPEN_MAX);
        for (int fd = first; fd < most; fd++) {
            close_one(fd, now);
        }
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int fd = (int)strtol(entry->d_name, NULL, 10);
        if (fd >= first && fd != dirfd(folder)) {
            close_one(fd, now);
        }
    }
    closedir(folder);
}

void tows_walls_close_from(int first)
{
    if (syscall(SYS_close_range, (unsigned)first, UINT_MAX, CLOSE_RANGE_BY_EXEC) != 0) {
        close_listed(first, false);
    }
}

void tows_walls_close_now(int first)
{
    if (syscall(SYS_close_range, (unsigned)first, UINT_MAX, 0) != 0) {
        close_listed(first, true);
    }
}

/* ---- the environment ---- */

/* What NVIDIA's driver and a worker look at. A name that ends in an underscore stands for all that
 * begin with it. */
static const char *const wanted[] = {
    "CUDA_",           /* the driver's own settings; those of MPS */
    "NVIDIA_",         /* what container runtimes say about GPUs */
    "TOWLINE_",        /* ours: the log */
    "LD_LIBRARY_PATH", /* where the driver's libraries are */
    "HOME",            /* where caches are */
    "XDG_CACHE_HOME",
    "TMPDIR",
    "TZ",
#if defined(TOW_WALLS_SANITIZED)
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "TSAN_OPTIONS",
    "UBSAN_OPTIONS",
#endif
};

/* Secrets of programs that a server's user may run as well. */
static const char *const unwanted[] = {"TOWLINE_TOKEN", "TOWLINE_TOKEN_", "TOWLINE_TLS_",
                                       "TOWLINE_SERVER"};

static bool is_named(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 &&
           (name[length - 1] == '_' || variable[length] == '=');
}

static bool is_among(const char *variable, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_named(variable, names[i])) {
            return true;
        }
    }
    return false;
}

void tows_walls_environment(char *const *environment, char *ret_kept[TOW_WALLS_ENVIRONMENT_MAX + 1])
{
    size_t count = 0;
    for (char *const *at = environment; *at != NULL && count < TOW_WALLS_ENVIRONMENT_MAX; at++) {
        if (is_among(*at, wanted, sizeof wanted / sizeof *wanted) &&
            !is_among(*at, unwanted, sizeof unwanted / sizeof *unwanted)) {
            ret_kept[count++] = *at;
        }
    }
    ret_kept[count] = NULL;
}

void tows_walls_forget_environment(void)
{
    static const char *const own[] = {"NOTIFY_SOCKET", "JOURNAL_STREAM", "XDG_"};
    char **kept = environ;
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        if (is_among(*at, unwanted, sizeof unwanted / sizeof *unwanted) ||
            (!is_among(*at, wanted, sizeof wanted / sizeof *wanted) &&
             !is_among(*at, own, sizeof own / sizeof *own))) {
            explicit_bzero(*at, strlen(*at));
        } else {
            *kept++ = *at;
        }
    }
    if (kept != NULL) {
        *kept = NULL;
    }
}

/* ---- rights ---- */

void tows_walls_hide(void)
{
#if !defined(TOW_WALLS_SANITIZED) /* a leak sanitizer traces its own process */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

void tows_walls_show(void)
{
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

bool tows_walls_sanitized(void)
{
#if defined(TOW_WALLS_SANITIZED)
    return true;
#else
    return false;
#endif
}

static void walls_lack(const char *what, int error)
{
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "this worker keeps %s: %s", what, strerror(error));
}

static int set_capabilities(uint64_t kept, uint64_t handed_on)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    memset(sets, 0, sizeof sets);
    for (int i = 0; i < 2; i++) {
        sets[i].effective = sets[i].permitted = (uint32_t)(kept >> 32 * i);
        sets[i].inheritable = (uint32_t)(handed_on >> 32 * i);
    }
    return syscall(SYS_capset, &head, sets) == 0 ? 0 : -errno;
}

/* What exec can give. */
static void drop_bounds(void)
{
    for (unsigned long i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++) {
        if (prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0) {
            break;
        }
    }
}

/* A user may have no capability to take others from the set that exec can give; then no_new_privs
 * holds alone. */
static void drop_capabilities(uint64_t kept, uint64_t handed_on)
{
    if (handed_on != 0) {
        set_capabilities(tows_user_has(), handed_on); /* which must be bounded by then */
    }
    drop_bounds();
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    int error = set_capabilities(kept, handed_on);
    if (error < 0) {
        walls_lack("its capabilities", -error);
    }
}

/* What needs no list of files. */
static void walls_drop(uint64_t kept, uint64_t handed_on)
{
    struct rlimit none = {0, 0};
    tow_log_on(TOW_AREA_SERVER, TOW_LOG_WARN); /* opens a log file, which must be open by now */
    drop_capabilities(kept, handed_on);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        walls_lack("the way to new rights by programs that have them", errno);
    }
    setrlimit(RLIMIT_CORE, &none);
    tows_walls_hide();
}

void tows_walls_raise_bare(const struct tows_config *config)
{
    if (config->walls == 0) {
        return;
    }
    walls_drop(0, 0);
#if !defined(TOW_WALLS_SANITIZED)
    int error = tows_landlock_version() > 0 ? tows_landlock_enter_bare() : 0;
    if (error < 0) {
        walls_lack("all files of its user", -error);
    }
#endif
}

void tows_walls_raise(const struct tows_config *config, const char *code_cache)
{
    if (config->walls == 0) {
        return;
    }
    walls_drop(config->tenant_users.count != 0 ? tows_user_rights() : 0, 0);
#if !defined(TOW_WALLS_SANITIZED) /* its reports need programs and files */
    char compile_cache[PATH_MAX];
    tows_compile_cache_begin(config, compile_cache, sizeof compile_cache);
    int error = tows_landlock_version() > 0 ? tows_landlock_enter(config, code_cache, compile_cache)
                                            : 0; /* the listener has said so */
    if (error < 0) {
        walls_lack("all files of its user", -error);
    }
#endif
}

void tows_walls_raise_parent(void)
{
    /* Root's programs get by exec what is handed on here, once the set that bounds them is empty:
     * those that this process starts can change their user, and no more. */
    walls_drop(tows_user_parent_rights(), tows_user_rights());
}

int tows_walls_raise_listener(uint32_t user, uint32_t group)
{
    drop_bounds(); /* while it may */
    int error = tows_user_become_in(user, group);
    if (error == 0) {
        walls_drop(0, 0); /* a new user's process may be dumpable */
        error = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -EPERM;
    }
    return error;
}

/* NVIDIA's driver reaches a thread of its own by pipes that it opens through /proc/self/fd, when it
 * puts memory out. It made them as the old user, and the new one could not open them. Nobody else
 * gets there: this process is not dumpable. */
static void open_pipes(void)
{
    enum { MINE = 5 }; /* those below came from outside */
    DIR *folder = opendir("/proc/self/fd");
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        int fd = (int)strtol(entry->d_name, NULL, 10); /* "." is 0 */
        struct stat status;
        if (fd >= MINE && fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) &&
            status.st_uid == geteuid()) {
            fchmod(fd, 0666);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

int tows_walls_become(const struct tows_config *config, uint32_t user, const char *tenant)
{
    const struct tows_config_range *range = &config->tenant_users;
    if (config->walls == 0 || range->count == 0) {
        return user == 0 ? 0 : -EINVAL;
    }
    open_pipes();
    int error = user >= range->first && user - range->first < range->count ? tows_user_become(user)
                                                                           : -EINVAL;
    if (error == 0) {
        tows_walls_hide(); /* a new user's process may be dumpable */
        tows_compile_cache_take(user, tenant);
        error = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -EPERM;
    }
    return error;
}

int tows_walls_finish(const struct tows_config *config, bool accepts)
{
    int refused = -1;
#if !defined(TOW_WALLS_SANITIZED) /* they call what they like */
    int error = config->walls != 0 && tows_seccomp_known()
                    ? tows_seccomp_enter(accepts, config->scheduler == TOW_CONFIG_MPS, &refused)
                    : 0;
    if (error < 0) {
        walls_lack("all system calls", -error);
    }
#else
    (void)config;
    (void)accepts;
#endif
    return refused;
}

void tows_walls_choose_users(struct tows_config *config)
{
    char why[256] = "";
    /* A private server serves the user who has started it. */
    bool asked = config->walls != 0 && geteuid() == 0 && config->watch_pid == 0 &&
                 config->tenant_users.count != 0;
#if defined(TOW_WALLS_SANITIZED)
    asked = false; /* a leak sanitizer's process must stay dumpable */
#endif
    if (asked && tows_user_try(config, why, sizeof why) == 0) {
        tows_compile_cache_tidy(config);
        return;
    }
    config->tenant_users = (struct tows_config_range){0, 0};
    if (asked) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "tenants get no users of their own: %s (tenant-users = 0 is for a server that "
                "wants none)",
                why);
    }
}

/* Whom workers are. */
static void tell_users(const struct tows_config *config, uid_t owner)
{
    const struct tows_config_range *range = &config->tenant_users;
    if (range->count != 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "workers have a user of their tenant's, with a number from %llu to %llu",
                (unsigned long long)range->first,
                (unsigned long long)(range->first + range->count - 1));
        return;
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
            "workers have the user of this server (%u)%s: what it may do with the GPU's files and "
            "/dev/shm, every one of them may",
            (unsigned)owner, owner == 0 ? ", root, but none of its capabilities" : "");
}

void tows_walls_tell(const struct tows_config *config, uid_t owner)
{
    /* A private server serves the user who has started it. */
    enum tow_log_level level = config->watch_pid != 0 ? TOW_LOG_INFO : TOW_LOG_WARN;
    if (config->walls == 0) {
        tow_log(TOW_AREA_SERVER, level,
                "walls = 0: workers have all rights of this server; whoever finds a fault in one "
                "has them too");
        return;
    }
    tell_users(config, owner);
#if defined(TOW_WALLS_SANITIZED)
    return;
#endif
    int version = tows_landlock_version();
    if (version == 0) {
        tow_log(TOW_AREA_SERVER, level,
                "this kernel has no Landlock (Linux 5.13, and \"landlock\" in its lsm= setting): "
                "workers can open every file that their user can, and connect anywhere");
    } else if (version < 4) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "this kernel's Landlock knows no TCP (Linux 6.7 does)");
    }
    if (!tows_seccomp_known()) {
        tow_log(
            TOW_AREA_SERVER, level,
            "this kernel cannot filter system calls (seccomp, Linux 4.14): workers can make all "
            "of them");
    }
}
