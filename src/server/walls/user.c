/* SPDX-License-Identifier: Apache-2.0 */
/* Changes the user of a process, and looks whether it is done. */
#include "server/walls/user.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit codes of who tried; else an errno. */
enum { TRY_DEVICES = 200, TRY_DRIVER = 201, TRY_PROCESSES = 202, TRY_PROGRAM = 203 };

#define BIT(capability) (UINT64_C(1) << (capability))

uint64_t tows_user_rights(void)
{
    return BIT(CAP_SETUID) | BIT(CAP_SETGID);
}

/* Of a thread of this process; 0: its own. */
static int read_capabilities(int thread, uint64_t *ret_effective, uint64_t *ret_permitted)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = thread};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &head, data) != 0) {
        return -errno;
    }
    *ret_effective = data[0].effective | (uint64_t)data[1].effective << 32;
    *ret_permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
    return 0;
}

static int take_user(uint32_t user, uint32_t group)
{
    return setgroups(0, NULL) != 0 || setresgid(group, group, group) != 0 ||
                   setresuid(user, user, user) != 0
               ? -errno
               : 0;
}

/* ---- the listener ---- */

/* The driver opens them again for each context. */
static bool devices_are_open(const struct tows_config *config)
{
    static const char *const names[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia[0-9]*"};
    bool open = true;
    for (size_t i = 0; i < sizeof names / sizeof *names && !tows_config_wants_soft(config); i++) {
        glob_t found;
        if (glob(names[i], 0, NULL, &found) == 0) {
            for (size_t j = 0; j < found.gl_pathc; j++) {
                open = open && access(found.gl_pathv[j], R_OK | W_OK) == 0;
            }
            globfree(&found);
        }
    }
    return open;
}

/* The driver's library, where it is not the system's: "" if it is. It loads its compilers late,
 * from the same folder. */
static void find_driver(const struct tows_config *config, char *ret_path, size_t size)
{
    const char *list = getenv("LD_LIBRARY_PATH");
    snprintf(ret_path, size, "%s", strchr(config->device, '/') != NULL ? config->device : "");
    if (ret_path[0] != '\0' || tows_config_wants_soft(config)) {
        return;
    }
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ":;");
        snprintf(ret_path, size, "%.*s/libcuda.so.1", (int)length, list);
        if (length > 0 && access(ret_path, R_OK) == 0) {
            return;
        }
        list += length + (list[length] != '\0');
    }
    ret_path[0] = '\0';
}

/* Both ends of the range: a user namespace may have a part of it. */
static int try_range(const struct tows_config *config)
{
    uint32_t first = (uint32_t)config->tenant_users.first;
    uint32_t last = (uint32_t)(first + config->tenant_users.count - 1);
    if (setresgid((gid_t)-1, last, (gid_t)-1) != 0 || setresuid((uid_t)-1, last, (uid_t)-1) != 0 ||
        setresuid((uid_t)-1, 0, (uid_t)-1) != 0) {
        return errno;
    }
    char driver[PATH_MAX];
    find_driver(config, driver, sizeof driver);
    int error = take_user(first, first);
    if (error < 0) {
        return -error;
    }
    /* One that is not there is nobody's: the worker that opens it says so. */
    if (driver[0] != '\0' && access(driver, R_OK) != 0 && errno != ENOENT) {
        return TRY_DRIVER;
    }
    return devices_are_open(config) ? 0 : TRY_DEVICES;
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return errno;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

/* What both need. */
static int try_rights(char *why, size_t size)
{
    uint64_t effective = 0, permitted, wanted = tows_user_rights() | BIT(CAP_KILL);
    int error = read_capabilities(0, &effective, &permitted);
    if (error < 0 || (effective & wanted) != wanted) {
        snprintf(why, size, "it lacks CAP_SETUID, CAP_SETGID or CAP_KILL");
        return -EPERM;
    }
    /* Where capabilities do not go with root, they would stay. */
    if (prctl(PR_GET_SECUREBITS, 0, 0, 0, 0) != 0) {
        snprintf(why, size, "its securebits are not 0 (capabilities(7))");
        return -EPERM;
    }
    return 0;
}

/* As what a child has found. */
static int try_result(int code, uint32_t user, char *why, size_t size)
{
    if (code == TRY_DEVICES) {
        snprintf(why, size,
                 "the GPU's device files (/dev/nvidia*) are not for all users; the driver's "
                 "NVreg_DeviceFileMode=0666 makes them so");
        return -EACCES;
    }
    if (code == TRY_DRIVER) {
        snprintf(why, size,
                 "other users cannot read the driver's library (--device, LD_LIBRARY_PATH); put it "
                 "into a folder that is for all");
        return -EACCES;
    }
    if (code == TRY_PROGRAM) {
        snprintf(why, size,
                 "root cannot run this program's file without its capabilities; chmod 755 it, or "
                 "chown it to root");
        return -EACCES;
    }
    if (code == TRY_PROCESSES) {
        snprintf(why, size,
                 "other users cannot see processes here (/proc is mounted with hidepid)");
        return -EACCES;
    }
    if (code != 0) {
        snprintf(why, size, "a process cannot become user %u: %s", user, strerror(code));
    }
    return -code;
}

int tows_user_try(const struct tows_config *config, char *why, size_t size)
{
    int error = try_rights(why, size);
    pid_t pid = error < 0 ? 0 : fork();
    if (error < 0) {
        return error;
    }
    if (pid == 0) {
        _exit(try_range(config));
    }
    return try_result(pid < 0 ? errno : wait_for(pid), (uint32_t)config->tenant_users.first, why,
                      size);
}

/* ---- the listener's own ---- */

enum { USER_NONE = 0x6fffffff, USERS_BESIDE = 16 };

uint32_t tows_user_ours(const struct tows_config *config, enum tows_user_ours which)
{
    const struct tows_config_range *range = &config->tenant_users;
    uint32_t last = USER_NONE;
    bool taken = range->count != 0 && range->first <= USER_NONE &&
                 range->first + range->count > USER_NONE - USERS_BESIDE;
    if (taken && range->first > USERS_BESIDE) {
        last = (uint32_t)range->first - 1;
    } else if (taken) {
        uint64_t beyond = range->first + range->count + USERS_BESIDE;
        if (beyond >= UINT32_MAX) {
            return 0;
        }
        last = (uint32_t)beyond;
    }
    return last - (uint32_t)which;
}

uint64_t tows_user_has(void)
{
    uint64_t effective = 0, permitted = 0;
    read_capabilities(0, &effective, &permitted);
    return permitted;
}

uint64_t tows_user_parent_rights(void)
{
    return tows_user_has() & (tows_user_rights() | BIT(CAP_KILL) | BIT(CAP_SYS_NICE));
}

static int keep_capabilities(uint64_t kept)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    memset(sets, 0, sizeof sets);
    for (int i = 0; i < 2; i++) {
        sets[i].effective = sets[i].permitted = (uint32_t)(kept >> 32 * i);
    }
    return syscall(SYS_capset, &head, sets) == 0 ? 0 : -errno;
}

/* What its parent is to do: run this program for workers. Then what it does itself: it looks at
 * processes of others, of who connects and of workers. */
static int try_listener(const struct tows_config *config, uint32_t user, uint32_t group)
{
    int error = keep_capabilities(tows_user_parent_rights());
    if (error == 0 && access("/proc/self/exe", X_OK) != 0) {
        return TRY_PROGRAM;
    }
    error = error < 0 ? error : take_user(user, group);
    if (error < 0) {
        return -error;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", (int)getppid());
    return access(path, R_OK) != 0 ? TRY_PROCESSES : devices_are_open(config) ? 0 : TRY_DEVICES;
}

int tows_user_try_listener(const struct tows_config *config, uint32_t user, uint32_t group,
                           char *why, size_t size)
{
    int error = try_rights(why, size);
    pid_t pid = error < 0 ? 0 : fork();
    if (error < 0) {
        return error;
    }
    if (pid == 0) {
        _exit(try_listener(config, user, group));
    }
    return try_result(pid < 0 ? errno : wait_for(pid), user, why, size);
}

/* ---- the worker ---- */

/* A thread that was made meanwhile has what its maker has. */
static int check_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int error = folder == NULL ? -errno : 0;
    for (struct dirent *entry; error == 0 && (entry = readdir(folder)) != NULL;) {
        uint64_t effective = 0, permitted = 0;
        int thread = (int)strtol(entry->d_name, NULL, 10);
        error = thread > 0 ? read_capabilities(thread, &effective, &permitted) : 0;
        error = error == -ESRCH ? 0 : error;
        if (effective != 0 || permitted != 0) {
            error = -EPERM;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return error;
}

static bool is_all(const unsigned numbers[3], uint32_t user)
{
    return numbers[0] == user && numbers[1] == user && numbers[2] == user;
}

static int check_user(uint32_t user, uint32_t group)
{
    uid_t users[3] = {0, 0, 0};
    gid_t groups[3] = {0, 0, 0};
    if (getresuid(&users[0], &users[1], &users[2]) != 0 ||
        getresgid(&groups[0], &groups[1], &groups[2]) != 0) {
        return -errno;
    }
    bool done = is_all(users, user) && is_all(groups, group) && getgroups(0, NULL) == 0 &&
                setresuid((uid_t)-1, 0, (uid_t)-1) != 0;
    return done ? check_threads() : -EPERM;
}

int tows_user_become(uint32_t user)
{
    return tows_user_become_in(user, user);
}

int tows_user_become_in(uint32_t user, uint32_t group)
{
    pid_t parent = getppid();
    /* The C library does it in all threads, or ends the process. */
    int error = user == 0 || group == 0 ? -EINVAL : take_user(user, group);
    error = error < 0 ? error : check_user(user, group);
    /* The kernel has forgotten it with the old user. */
    if (error == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        error = -errno;
    }
    return error < 0 ? error : getppid() != parent ? -ESRCH : 0;
}
