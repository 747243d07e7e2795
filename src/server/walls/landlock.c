/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a worker's Landlock rules, by system call numbers: not every C library knows them. */
#include "server/walls/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

/* The same numbers on every architecture. */
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };
enum { RULE_PATH_BENEATH = 1, CREATE_VERSION = 1 };

/* The kernel's (linux/landlock.h), by the version that brought them. */
enum {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    REMOVE_DIR = 1 << 4,
    REMOVE_FILE = 1 << 5,
    MAKE_DIR = 1 << 7,
    MAKE_REG = 1 << 8,
    ALL_1 = (1 << 13) - 1,
    REFER = 1 << 13,     /* 2 */
    TRUNCATE = 1 << 14,  /* 3 */
    IOCTL_DEV = 1 << 15, /* 5 */
    NET_BOTH = 3,        /* 4: bind and connect TCP */
    SCOPE_BOTH = 3,      /* 6: abstract unix sockets, signals */
    OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV,
};

struct ruleset_attributes {
    uint64_t files, net, scoped;
};

struct path_rule {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed));

enum {
    SEE = READ_FILE | READ_DIR,
    DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV,
    KEEP = SEE | WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE,
    TREE = KEEP | MAKE_DIR | REMOVE_DIR | REFER,
    CACHE_MAX = 8 << 20, /* of the loader's cache, that is looked at */
};

/* A name may be a pattern. One that is not there is left out. */
static const struct {
    const char *path;
    uint64_t allowed;
} rules[] = {
    /* Libraries: the driver loads its compilers late. */
    {"/usr", SEE},
    {"/lib", SEE},
    {"/lib64", SEE},
    {"/nix/store", SEE},
    {"/run/opengl-driver", SEE},
    {"/run/nvidia", SEE},
    {"/etc/ld.so.cache", SEE},
    {"/etc/localtime", SEE},
    {"/etc/machine-id", SEE}, /* the software GPU's name */
    {"/etc/nvidia", SEE},
    {"/dev/nvidia*", DEVICE},
    {"/dev/nvidia-caps", SEE},
    {"/dev/nvidia-caps/*", SEE},
    {"/dev/nvidia-caps-imex-channels", SEE | DEVICE},
    {"/dev/nvhost*", DEVICE}, /* Jetson */
    {"/dev/nvmap", DEVICE},
    {"/dev/dxg", DEVICE}, /* WSL */
    {"/dev/nvgpu", SEE | DEVICE},
    {"/dev/null", DEVICE},
    {"/dev/zero", DEVICE},
    {"/dev/random", SEE},
    {"/dev/urandom", SEE},
    {"/dev/shm", KEEP}, /* the driver's events of cuIpc */
    {"/proc/driver", SEE},
    {"/proc/devices", SEE},
    {"/proc/cpuinfo", SEE},
    {"/proc/meminfo", SEE},
    {"/proc/modules", SEE},
    {"/proc/stat", SEE},
    {"/proc/version", SEE},
    {"/proc/sys/kernel", SEE},
    {"/proc/sys/vm", SEE},
    {"/sys/bus/pci", SEE},
    {"/sys/class", SEE},
    {"/sys/devices", SEE},
    {"/sys/fs/cgroup", SEE},
    {"/sys/kernel/mm", SEE},
    {"/sys/module", SEE},
};

struct landlock {
    int ruleset;
    uint64_t handled;
};

int tows_landlock_version(void)
{
    long version = syscall(CREATE_RULESET, NULL, 0, CREATE_VERSION);
    return version > 0 ? (int)version : 0;
}

static void allow_open(const struct landlock *landlock, int fd, uint64_t allowed)
{
    struct stat status;
    if (fstat(fd, &status) == 0) {
        struct path_rule rule = {allowed & landlock->handled, fd};
        if (!S_ISDIR(status.st_mode)) {
            rule.allowed &= OF_FILES;
        }
        syscall(ADD_RULE, landlock->ruleset, RULE_PATH_BENEATH, &rule, 0);
    }
}

static void landlock_allow(const struct landlock *landlock, const char *path, uint64_t allowed)
{
    int fd = path[0] != '\0' ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (fd >= 0) {
        allow_open(landlock, fd, allowed);
        close(fd);
    }
}

static void allow_pattern(const struct landlock *landlock, const char *pattern, uint64_t allowed)
{
    glob_t found;
    if (strchr(pattern, '*') == NULL) {
        landlock_allow(landlock, pattern, allowed);
    } else if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            landlock_allow(landlock, found.gl_pathv[i], allowed);
        }
        globfree(&found);
    }
}

/* The folder of a library, and the one that it really lies in. */
static void allow_library(const struct landlock *landlock, const char *path)
{
    char real[PATH_MAX], folder[PATH_MAX];
    const char *both[] = {path, realpath(path, real)};
    for (size_t i = 0; i < 2 && both[1] != NULL; i++) {
        const char *slash = strrchr(both[i], '/');
        if (slash != NULL && slash != both[i]) {
            snprintf(folder, sizeof folder, "%.*s", (int)(slash - both[i]), both[i]);
            landlock_allow(landlock, folder, SEE);
        }
    }
}

/* Wherever the loader finds the driver: the cache has each library's path as a string. */
static void allow_cached(const struct landlock *landlock)
{
    static const char name[] = "/libcuda.so.1";
    struct tow_buf cache;
    tow_buf_init(&cache, CACHE_MAX);
    if (tow_file_read("/etc/ld.so.cache", &cache) == 0) {
        const char *begin = (const char *)cache.data, *end = begin + cache.size, *at = begin;
        /* With its zero, so that what is found is a string. */
        while ((at = memmem(at, (size_t)(end - at), name, sizeof name)) != NULL) {
            const char *first = at;
            while (first > begin && first[-1] != '\0') {
                first--;
            }
            allow_library(landlock, first);
            at += sizeof name;
        }
    }
    tow_buf_fini(&cache);
}

/* Folders of LD_LIBRARY_PATH, and what lies in them elsewhere. */
static void allow_listed(const struct landlock *landlock)
{
    const char *list = getenv("LD_LIBRARY_PATH");
    while (list != NULL && *list != '\0') {
        char path[PATH_MAX];
        size_t length = strcspn(list, ":;");
        snprintf(path, sizeof path, "%.*s/libcuda.so.1", (int)length, list);
        if (length > 0 && access(path, F_OK) == 0) {
            allow_library(landlock, path);
        }
        snprintf(path, sizeof path, "%.*s", (int)length, list);
        landlock_allow(landlock, path, SEE);
        list += length + (list[length] != '\0');
    }
}

static void allow_all(const struct landlock *landlock, const struct tows_config *config,
                      const char *code_cache, const char *compile_cache)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        allow_pattern(landlock, rules[i].path, rules[i].allowed);
    }
    /* NVIDIA's driver does not start where it cannot name its threads (task/TID/comm); all that can
     * be written there is this process's own. It stays open: were the folder's entry forgotten, a
     * new one would not be allowed. */
    int own = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (own >= 0) {
        allow_open(landlock, own, SEE | WRITE_FILE | TRUNCATE);
    }
    if (strchr(config->device, '/') != NULL) {
        allow_library(landlock, config->device);
        allow_listed(landlock);
    } else if (!tows_config_wants_soft(config)) {
        allow_library(landlock, "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
        allow_library(landlock, "/usr/lib/aarch64-linux-gnu/libcuda.so.1");
        allow_library(landlock, "/usr/lib64/libcuda.so.1");
        allow_cached(landlock);
        allow_listed(landlock);
    }
    const char *mps = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (config->scheduler == TOW_CONFIG_MPS && mps != NULL) {
        landlock_allow(landlock, mps, KEEP); /* its sockets and pipes */
    }
    if (strchr(config->cupti, '/') != NULL) {
        allow_library(landlock, config->cupti);
    }
    landlock_allow(landlock, code_cache, SEE); /* the listener writes it */
    landlock_allow(landlock, compile_cache, TREE);
}

/* All that this kernel knows is forbidden: a ruleset without rules, or an error. */
static int landlock_make(struct landlock *ret_landlock)
{
    int version = tows_landlock_version();
    struct ruleset_attributes attributes = {
        .files = ALL_1 | (version >= 2 ? REFER : 0) | (version >= 3 ? TRUNCATE : 0) |
                 (version >= 5 ? IOCTL_DEV : 0),
        .net = version >= 4 ? NET_BOTH : 0,
        .scoped = version >= 6 ? SCOPE_BOTH : 0,
    };
    size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    ret_landlock->handled = attributes.files;
    ret_landlock->ruleset =
        version > 0 ? (int)syscall(CREATE_RULESET, &attributes, size, 0) : (errno = ENOSYS, -1);
    return ret_landlock->ruleset < 0 ? -errno : 0;
}

static int landlock_restrict(const struct landlock *landlock)
{
    int error = syscall(RESTRICT_SELF, landlock->ruleset, 0) != 0 ? -errno : 0;
    close(landlock->ruleset);
    return error;
}

int tows_landlock_enter(const struct tows_config *config, const char *code_cache,
                        const char *compile_cache)
{
    struct landlock landlock;
    int error = landlock_make(&landlock);
    if (error < 0) {
        return error;
    }
    allow_all(&landlock, config, code_cache, compile_cache);
    return landlock_restrict(&landlock);
}

int tows_landlock_enter_bare(void)
{
    struct landlock landlock;
    int error = landlock_make(&landlock);
    return error < 0 ? error : landlock_restrict(&landlock);
}

int tows_landlock_shows(const struct tows_config *config, const char *cache, const char *path)
{
    int status = 0;
    if (tows_landlock_version() == 0) {
        return -ENOSYS;
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            tows_landlock_enter(config, cache, "") < 0) {
            _exit(2);
        }
        _exit(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) >= 0 ? 1 : 0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) < 2 ? WEXITSTATUS(status) : -EIO;
}
