/* SPDX-License-Identifier: Apache-2.0 */
/* A driver library for `towlined --device PATH` that is a worker in a stranger's hands: when its
 * client synchronises, it tries what such a one would, and writes to that client's stderr what came
 * of each:
 *
 *     taken NAME yes          it could
 *     taken NAME EACCES       it could not
 *     taken NAME = WORDS      a fact
 *
 * TOWLINE_TAKEN says what to aim at: worker=PID of another server's worker, file=PATH of a file
 * that its user may read, folder=PATH that he may write to, tcp=PORT and unix=PATH where somebody
 * listens, cache=PATH of the server's cache of code, where "image" is. With stay= none of its
 * threads can end it any more. */
#define cuCtxSynchronize printing_synchronize
#include "printing_driver.c"
#undef cuCtxSynchronize

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
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

static char aims[8][256]; /* worker, file, folder, tcp, unix, cache */
static const char *const names[] = {"worker", "file", "folder", "tcp", "unix", "cache"};
enum { WORKER, A_FILE, FOLDER, TCP, UNIX, CACHE };

static void tell(const char *name, int done)
{
    dprintf(2, "taken %s %s\n", name, done >= 0 ? "yes" : strerrorname_np(errno));
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

static int try_read(int pid)
{
    /* Any address will do: rights are looked at first. */
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)0x10000, 1};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno != EFAULT ? -1 : 0;
}

static int try_trace(int pid)
{
    return (int)ptrace(PTRACE_SEIZE, pid, 0, 0);
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

static int try_connect(const struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
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

static void try_all(void)
{
    int worker = atoi(aims[WORKER]), listener = getppid();
    struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(aims[TCP]))};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(local.sun_path, sizeof local.sun_path, "%.100s", aims[UNIX]);
    pthread_t thread;
    tell_self();
    tell("memory-of-worker", try_open("/proc", worker, "mem", O_RDWR));
    tell("memory-of-listener", try_open("/proc", listener, "mem", O_RDWR));
    tell("environment-of-worker", try_open("/proc", worker, "environ", O_RDONLY));
    tell("environment-of-listener", try_open("/proc", listener, "environ", O_RDONLY));
    tell("read-worker", try_read(worker));
    tell("read-listener", try_read(listener));
    tell("trace-worker", try_trace(worker));
    tell("descriptor-of-worker", try_descriptor(worker));
    tell("descriptor-of-listener", try_descriptor(listener));
    tell("limit-of-worker", (int)syscall(SYS_prlimit64, worker, RLIMIT_NOFILE, NULL, NULL));
    tell("signal-worker", kill(worker, 0));
    tell("signal-listener", kill(listener, 0));
    tell("own-signal", kill(getpid(), 0));
    tell("own-slack", prctl(PR_SET_TIMERSLACK, 50000UL));
    tell("open-file", try_open("", 0, aims[A_FILE] + 1, O_RDONLY));
    tell("make-file", try_open(aims[FOLDER], 0, "made", O_RDWR | O_CREAT));
    tell("read-cache", try_open(aims[CACHE], 0, "image", O_RDONLY));
    tell("write-cache", try_open(aims[CACHE], 0, "image", O_WRONLY));
    tell("make-in-cache", try_open(aims[CACHE], 0, "made", O_RDWR | O_CREAT));
    tell("remove-from-cache", try_remove(aims[CACHE], "image"));
    if (getenv("CUDA_CACHE_PATH") != NULL) {
        tell("keep-compiled", try_open(getenv("CUDA_CACHE_PATH"), 0, "made", O_RDWR | O_CREAT));
        tell("list-compiled", try_open(getenv("CUDA_CACHE_PATH"), 0, "..", O_RDONLY));
    }
    tell("connect-tcp", try_connect((struct sockaddr *)&tcp, sizeof tcp));
    tell("connect-unix", try_connect((struct sockaddr *)&local, sizeof local));
    tell("start-program", try_program());
    tell("fork", try_fork());
    tell("show-itself", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
    tell("new-namespace", (int)syscall(SYS_unshare, 0));
    tell("own-thread", pthread_create(&thread, NULL, do_nothing, NULL) == 0 ? 0 : -1);
    tell("become-root", (int)syscall(SYS_setresuid, -1, 0, -1));
    tell("become-another", setresuid(12345, 12345, 12345)); /* late: without walls it does */
    if (strstr(getenv("TOWLINE_TAKEN"), "stay=") != NULL) {
        tell("stays", stay());
    }
    try_often();
    dprintf(2, "taken all = done\n");
}

CUresult cuCtxSynchronize(void)
{
    static int begun;
    const char *text = getenv("TOWLINE_TAKEN");
    for (size_t i = 0; text != NULL && i < sizeof names / sizeof *names; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s=", names[i]);
        const char *at = strstr(text, word);
        if (at != NULL) {
            at += strlen(word);
            snprintf(aims[i], sizeof aims[i], "%.*s", (int)strcspn(at, " "), at);
        }
    }
    if (begun++ == 0 && text != NULL) {
        try_all();
    }
    return CUDA_SUCCESS;
}
