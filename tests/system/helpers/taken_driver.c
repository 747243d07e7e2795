/* SPDX-License-Identifier: Apache-2.0 */
/* A driver library for `towlined --device PATH` that is a worker in a stranger's hands: when its
 * client asks for it (it synchronises, or calls cuCtxResetPersistingL2Cache), it tries what such a
 * one would, and writes to that client's stderr what came of each:
 *
 *     taken NAME yes          it could
 *     taken NAME EACCES       it could not
 *     taken NAME = WORDS      a fact
 *
 * TOWLINE_TAKEN says what to aim at: worker=PID of another's worker, listener=PID (else its own
 * parent), and likewise parent=, shaker=, own= (another of the same tenant); file=PATH of a file
 * that its user may read, likewise key=, tokens=, system=, others= (what is another tenant's);
 * folder=PATH that he may write to; tcp=PORT, unix=PATH and abstract=NAME where somebody listens;
 * cache=PATH of the server's cache of code, where "image" is. With stay= none of its threads can
 * end it any more. With aims=PATH all this is in a file.
 *
 * With TAKEN_CUDA everything else is NVIDIA's driver, which it needs as a library. Without, it can
 * do nothing but print. */
#if defined(TAKEN_CUDA)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>
#else
#define cuCtxSynchronize printing_synchronize
#include "printing_driver.c"
#undef cuCtxSynchronize
#endif

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

extern char **environ;

static char aims[4096];

/* What stands behind NAME=; false: nothing. */
static int aim(const char *name, char *ret_word, size_t size)
{
    char words[sizeof aims], *rest = words;
    size_t length = strlen(name);
    snprintf(words, sizeof words, "%s", aims);
    for (const char *word; (word = strsep(&rest, " \n")) != NULL;) {
        if (strncmp(word, name, length) == 0 && word[length] == '=') {
            snprintf(ret_word, size, "%s", word + length + 1);
            return 1;
        }
    }
    return 0;
}

static void read_aims(const char *text)
{
    char path[512];
    snprintf(aims, sizeof aims, "%s", text);
    if (aim("aims", path, sizeof path)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd >= 0 ? read(fd, aims, sizeof aims - 1) : -1;
        if (got < 0) {
            dprintf(2, "taken aims %s: %s\n", path, strerrorname_np(errno));
        }
        aims[got > 0 ? got : 0] = '\0';
        close(fd);
    }
}

static void tell(const char *name, int done)
{
    dprintf(2, "taken %s %s\n", name, done >= 0 ? "yes" : strerrorname_np(errno));
}

static void tell_of(const char *what, const char *who, int done)
{
    char name[64];
    int error = errno;
    snprintf(name, sizeof name, "%s-%s", what, who);
    errno = error;
    tell(name, done);
}

static int shut(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
    return fd;
}

static int try_open(const char *folder, int pid, const char *file, int flags)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%.*d%s%s", folder, pid != 0 ? 1 : 0, pid, pid != 0 ? "/" : "",
             file);
    return shut(open(path, flags, 0600));
}

static int try_remove(const char *folder, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return unlink(path);
}

/* Any address will do: rights are looked at first. */
static int try_memory(int call, int pid)
{
    char byte = 0;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)0x10000, 1};
    return syscall(call, pid, &here, 1, &there, 1, 0) < 0 && errno != EFAULT ? -1 : 0;
}

/* Whom it can trace it lets go again. */
static int try_trace(int pid)
{
    if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0) {
        return -1;
    }
    ptrace(PTRACE_INTERRUPT, pid, 0, 0);
    waitpid(pid, NULL, __WALL);
    ptrace(PTRACE_DETACH, pid, 0, 0);
    return 0;
}

static int try_descriptor(int pid)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process < 0) {
        return -1;
    }
    int fd = shut((int)syscall(SYS_pidfd_getfd, process, 3, 0)), error = errno;
    close(process);
    errno = error;
    return fd;
}

static int try_connect(const struct sockaddr *address, socklen_t size, int type)
{
    int fd = socket(address->sa_family, type | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    int result = connect(fd, address, size), error = errno;
    close(fd);
    errno = error;
    return result;
}

static int try_program(void)
{
    char *arguments[] = {(char *)"true", NULL};
    pid_t pid;
    int error = posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ), status;
    if (error == 0) {
        waitpid(pid, &status, 0);
    }
    errno = error;
    return error == 0 ? 0 : -1;
}

static int try_fork(void)
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        _exit(0);
    }
    return pid < 0 ? -1 : waitpid(pid, &status, 0);
}

static void tell_self(void)
{
    char text[4096] = "";
    size_t used = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != dirfd(folder)) {
            char path[300], target[200] = "";
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            if (readlink(path, target, sizeof target - 1) < 0) {
                strcpy(target, "?");
            }
            used += (size_t)snprintf(text + used, sizeof text - used, " %d:%.30s", fd, target);
        }
    }
    dprintf(2, "taken descriptors =%s\n", text);
    used = 0;
    text[0] = '\0';
    for (char **at = environ; *at != NULL && used < 2000; at++) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used, " %.*s", (int)strcspn(*at, "="), *at);
    }
    dprintf(2, "taken environment =%s\n", text);
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(text, sizeof text, status) != NULL) {
        if (strncmp(text, "Cap", 3) == 0 || strncmp(text, "NoNewPrivs", 10) == 0 ||
            strncmp(text, "Seccomp:", 8) == 0 || strncmp(text, "Uid", 3) == 0 ||
            strncmp(text, "Gid", 3) == 0 || strncmp(text, "Groups", 6) == 0) {
            dprintf(2, "taken %.*s = %s", (int)strcspn(text, ":"), text,
                    text + strcspn(text, "\t") + 1);
        }
    }
    struct rlimit core = {1, 1};
    getrlimit(RLIMIT_CORE, &core);
    dprintf(2, "taken core = %lld\n", (long long)core.rlim_max);
    dprintf(2, "taken dumpable = %d\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
}

static void *do_nothing(void *arg)
{
    return arg;
}

/* More refusals than anybody answers: what came of the first and of the last. */
static void try_often(void)
{
    enum { NO_CALL = 9999, OFTEN = 200 };
    syscall(NO_CALL);
    const char *first = strerrorname_np(errno);
    for (int i = 0; i < OFTEN; i++) {
        syscall(NO_CALL);
    }
    dprintf(2, "taken often = %s %s\n", first, strerrorname_np(errno));
}

/* Whoever wants this process to end stands in _exit from now on. */
static int stay(void)
{
#if defined(__aarch64__)
    static const uint8_t jump_here[] = {0x00, 0x00, 0x00, 0x14};
#else
    static const uint8_t jump_here[] = {0xeb, 0xfe};
#endif
    uint8_t *code = (uint8_t *)(uintptr_t)_exit;
    uintptr_t page = (uintptr_t)code & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
    size_t size = (uintptr_t)code + sizeof jump_here - page;
    if (mprotect((void *)page, size, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        return -1;
    }
    memcpy(code, jump_here, sizeof jump_here);
    __builtin___clear_cache((char *)code, (char *)code + sizeof jump_here);
    return 0;
}

static void try_process(const char *who, int pid)
{
    tell_of("memory-of", who, try_open("/proc", pid, "mem", O_RDWR));
    tell_of("environment-of", who, try_open("/proc", pid, "environ", O_RDONLY));
    tell_of("read", who, try_memory(SYS_process_vm_readv, pid));
    tell_of("write", who, try_memory(SYS_process_vm_writev, pid));
    tell_of("trace", who, try_trace(pid));
    tell_of("descriptor-of", who, try_descriptor(pid));
    tell_of("limit-of", who, (int)syscall(SYS_prlimit64, pid, RLIMIT_NOFILE, NULL, NULL));
    tell_of("signal", who, kill(pid, 0));
}

static void try_processes(void)
{
    static const char *const names[] = {"worker", "listener", "parent", "shaker", "own"};
    char word[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (aim(names[i], word, sizeof word)) {
            try_process(names[i], atoi(word));
        } else if (strcmp(names[i], "listener") == 0) {
            try_process(names[i], getppid());
        }
    }
}

static void try_files(void)
{
    static const char *const names[] = {"file", "key", "tokens", "system", "others"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (aim(names[i], path, sizeof path)) {
            tell_of("open", names[i], shut(open(path, O_RDONLY | O_CLOEXEC)));
        }
    }
    if (aim("folder", path, sizeof path)) {
        tell("make-file", try_open(path, 0, "made", O_RDWR | O_CREAT));
    }
    if (aim("cache", path, sizeof path)) {
        tell("read-cache", try_open(path, 0, "image", O_RDONLY));
        tell("write-cache", try_open(path, 0, "image", O_WRONLY));
        tell("make-in-cache", try_open(path, 0, "made", O_RDWR | O_CREAT));
        tell("remove-from-cache", try_remove(path, "image"));
    }
    const char *compiled = getenv("CUDA_CACHE_PATH");
    if (compiled != NULL) {
        tell("keep-compiled", try_open(compiled, 0, "made", O_RDWR | O_CREAT));
        tell("list-compiled", try_open(compiled, 0, "..", O_RDONLY));
    }
}

/* Of datagrams each end could send to any path, without connecting. */
static int try_pair(int type)
{
    int pair[2];
    if (socketpair(AF_UNIX, type, 0, pair) != 0) {
        return -1;
    }
    close(pair[0]);
    close(pair[1]);
    return 0;
}

/* Whoever closes its last descriptor would wait until all is sent: the listener, for its client. */
static int try_option(int option)
{
    const struct linger minute = {.l_onoff = 1, .l_linger = 60};
    const int on = 1;
    int pair[2], result;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return -1;
    }
    result = setsockopt(pair[0], SOL_SOCKET, option,
                        option == SO_LINGER ? (const void *)&minute : (const void *)&on,
                        option == SO_LINGER ? sizeof minute : sizeof on);
    int error = errno;
    close(pair[0]);
    close(pair[1]);
    errno = error;
    return result;
}

static void try_network(void)
{
    char word[512];
    tell("socket-lingers", try_option(SO_LINGER));
    tell("own-option", try_option(SO_KEEPALIVE));
    tell("own-pair", try_pair(SOCK_SEQPACKET | SOCK_CLOEXEC));
    tell("pair-of-datagrams", try_pair(SOCK_DGRAM | SOCK_CLOEXEC));
    tell("pair-of-raw", try_pair(SOCK_RAW));
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    if (aim("tcp", word, sizeof word)) {
        struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(word))};
        tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        tell("connect-tcp", try_connect((struct sockaddr *)&tcp, sizeof tcp, SOCK_STREAM));
        tell("connect-udp", try_connect((struct sockaddr *)&tcp, sizeof tcp, SOCK_DGRAM));
    }
    if (aim("unix", word, sizeof word)) {
        snprintf(local.sun_path, sizeof local.sun_path, "%.100s", word);
        tell("connect-unix", try_connect((struct sockaddr *)&local, sizeof local, SOCK_STREAM));
    }
    if (aim("abstract", word, sizeof word)) {
        local.sun_path[0] = '\0';
        int length = snprintf(local.sun_path + 1, sizeof local.sun_path - 1, "%.100s", word);
        socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
        tell("connect-abstract", try_connect((struct sockaddr *)&local, size, SOCK_STREAM));
    }
}

static void try_all(void)
{
    char word[8];
    pthread_t thread;
    tell_self();
    try_processes();
    tell("own-signal", kill(getpid(), 0));
    tell("own-slack", prctl(PR_SET_TIMERSLACK, 50000UL));
    try_files();
    try_network();
    tell("start-program", try_program());
    tell("fork", try_fork());
    tell("show-itself", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
    tell("new-namespace", (int)syscall(SYS_unshare, 0));
    tell("own-thread", pthread_create(&thread, NULL, do_nothing, NULL) == 0 ? 0 : -1);
    tell("become-root", (int)syscall(SYS_setresuid, -1, 0, -1));
    tell("become-another", setresuid(12345, 12345, 12345)); /* late: without walls it does */
    if (aim("stay", word, sizeof word)) {
        tell("stays", stay());
    }
    try_often();
    dprintf(2, "taken all = done\n");
}

static void begin(void)
{
    static int begun;
    const char *text = getenv("TOWLINE_TAKEN");
    if (text != NULL && begun++ == 0) {
        read_aims(text);
        try_all();
    }
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    begin();
    return CUDA_SUCCESS;
}

#if !defined(TAKEN_CUDA)
CUresult cuCtxSynchronize(void)
{
    begin();
    return CUDA_SUCCESS;
}
#endif
