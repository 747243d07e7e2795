/* SPDX-License-Identifier: Apache-2.0 */
/* LD_PRELOAD: one allocation or system call of a process fails. FAIL_ORDERS names a file, mapped by
 * all: an order for each role (test_failing.py writes it). A call that a process makes while `at`
 * is not 0 is counted; the one with that number fails with an error that it can really have:
 * memory, descriptors, threads or the peer are gone, or (`soft`) a signal came. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAMES = 12, CLIENT = 0, LISTENER, WORKER, SHAKER, ROLES };

struct order {
    atomic_long at;    /* 0: nothing is counted */
    atomic_long count; /* calls since the order was given */
    atomic_long soft;  /* 1: only calls that a signal may interrupt are counted, and interrupted */
    atomic_long fired; /* the process whose call failed; 0: none has */
    char call[32];     /* its name */
    uint64_t from[FRAMES]; /* who called: addresses in ... */
    char file[96];         /* ... the program or library of the first that is not the C library */
};

static struct order *order;
static __thread int inside;

__attribute__((constructor)) static void begin(int argc, char **argv)
{
    const char *path = getenv("FAIL_ORDERS");
    int fd = path != NULL ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) {
        return;
    }
    int daemon = strcmp(program_invocation_short_name, "towlined") == 0 ||
                 strcmp(program_invocation_short_name, "exe") == 0;
    int role = daemon ? LISTENER : CLIENT;
    for (int i = 1; daemon && i < argc; i++) {
        role = strcmp(argv[i], "--worker") == 0 ? WORKER : role;
        role = strcmp(argv[i], "--shaker") == 0 ? SHAKER : role;
    }
    void *frames[FRAMES];
    backtrace(frames, FRAMES); /* it loads a library the first time */
    struct order *at = (struct order *)syscall(SYS_mmap, NULL, ROLES * sizeof *order,
                                               PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    order = at != MAP_FAILED ? &at[role] : NULL;
}

/* From which file of ours, and where in it. */
static void note(const char *call)
{
    void *frames[FRAMES];
    Dl_info at;
    int count = backtrace(frames, FRAMES);
    snprintf(order->call, sizeof order->call, "%s", call);
    const char *self = dladdr((void *)note, &at) != 0 ? at.dli_fname : "";
    const char *file = NULL;
    for (int i = 0, n = 0; i < count; i++) {
        if (dladdr(frames[i], &at) == 0 || strcmp(at.dli_fname, self) == 0 ||
            strstr(at.dli_fname, "/libc.so") != NULL) {
            continue;
        }
        if (file == NULL) {
            file = at.dli_fname;
            snprintf(order->file, sizeof order->file, "%s", file);
        }
        if (strcmp(file, at.dli_fname) == 0) {
            order->from[n++] = (uint64_t)frames[i] - (uint64_t)at.dli_fbase;
        }
    }
}

static int fails(const char *call, int soft, int error)
{
    if (order == NULL || inside || error == 0 || atomic_load(&order->at) == 0 ||
        atomic_load(&order->soft) != soft ||
        atomic_fetch_add(&order->count, 1) + 1 != atomic_load(&order->at)) {
        return 0;
    }
    inside = 1;
    note(call);
    inside = 0;
    atomic_store(&order->fired, getpid());
    errno = error;
    return 1;
}

/* What reading and writing fail with: a peer that is gone, a disk; others (pipes, eventfds) do not.
 */
static int broken(int fd, int socket_error)
{
    struct stat about;
    int before = errno;
    int known = fstat(fd, &about) == 0;
    errno = before;
    return !known ? 0 : S_ISSOCK(about.st_mode) ? socket_error : S_ISREG(about.st_mode) ? EIO : 0;
}

#define REAL(name)                                                                                 \
    static __typeof__(&name) real;                                                                 \
    if (real == NULL) {                                                                            \
        inside++;                                                                                  \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                         \
        inside--;                                                                                  \
    }
#define WRAP(type, name, error, bad, declared, given)                                              \
    type name declared                                                                             \
    {                                                                                              \
        REAL(name)                                                                                 \
        return fails(#name, 0, error) ? bad : real given;                                          \
    }
/* One that a signal interrupts as well. */
#define WRAP_SLOW(type, name, error, bad, declared, given)                                         \
    type name declared                                                                             \
    {                                                                                              \
        REAL(name)                                                                                 \
        return fails(#name, 0, error) || fails(#name, 1, EINTR) ? bad : real given;                \
    }

/* ---- memory ---- */

#if defined(__SANITIZE_ADDRESS__) /* the sanitizer's */
WRAP(void *, malloc, ENOMEM, NULL, (size_t size), (size))
WRAP(void *, calloc, ENOMEM, NULL, (size_t count, size_t size), (count, size))
WRAP(void *, realloc, ENOMEM, NULL, (void *old, size_t size), (old, size))
#else /* looking for the real ones allocates */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t size)
{
    return fails("malloc", 0, ENOMEM) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails("calloc", 0, ENOMEM) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return fails("realloc", 0, ENOMEM) ? NULL : __libc_realloc(old, size);
}
#endif

WRAP(void *, aligned_alloc, ENOMEM, NULL, (size_t align, size_t size), (align, size))
WRAP(void *, mmap64, ENOMEM, MAP_FAILED,
     (void *at, size_t size, int prot, int flags, int fd, off_t offset),
     (at, size, prot, flags, fd, offset))
WRAP(int, memfd_create, EMFILE, -1, (const char *name, unsigned flags), (name, flags))
WRAP(int, ftruncate64, ENOSPC, -1, (int fd, off_t size), (fd, size))
WRAP(int, fallocate64, ENOSPC, -1, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))

/* ---- descriptors ---- */

WRAP(int, socket, EMFILE, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, socketpair, EMFILE, -1, (int domain, int type, int protocol, int pair[2]),
     (domain, type, protocol, pair))
WRAP(int, pipe2, EMFILE, -1, (int pair[2], int flags), (pair, flags))
WRAP(int, signalfd, EMFILE, -1, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
WRAP(int, dup, EMFILE, -1, (int fd), (fd))
WRAP_SLOW(int, accept4, EMFILE, -1, (int fd, struct sockaddr *at, socklen_t *size, int flags),
          (fd, at, size, flags))
WRAP(DIR *, opendir, EMFILE, NULL, (const char *path), (path))
WRAP(FILE *, fopen64, EMFILE, NULL, (const char *path, const char *mode), (path, mode))
WRAP(int, mkostemp64, EMFILE, -1, (char *path, int flags), (path, flags))

int open64(const char *path, int flags, ...)
{
    REAL(open64)
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("open", 0, EMFILE) ? -1 : real(path, flags, mode);
}

int fcntl64(int fd, int command, ...)
{
    REAL(fcntl64)
    va_list args;
    va_start(args, command);
    void *value = va_arg(args, void *);
    va_end(args);
    int new = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
    return new &&fails("fcntl", 0, EMFILE) ? -1 : real(fd, command, value);
}

/* ---- peers and files ---- */

WRAP(int, connect, ECONNREFUSED, -1, (int fd, const struct sockaddr *at, socklen_t size),
     (fd, at, size))
WRAP(int, bind, ENOMEM, -1, (int fd, const struct sockaddr *at, socklen_t size), (fd, at, size))
WRAP(int, listen, EADDRINUSE, -1, (int fd, int backlog), (fd, backlog))
WRAP(int, getsockopt, ENOBUFS, -1, (int fd, int level, int name, void *value, socklen_t *size),
     (fd, level, name, value, size))
WRAP(int, setsockopt, ENOMEM, -1, (int fd, int level, int name, const void *value, socklen_t size),
     (fd, level, name, value, size))
WRAP(int, getaddrinfo, ENOMEM, EAI_MEMORY,
     (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret),
     (node, service, hints, ret))
WRAP_SLOW(ssize_t, read, broken(fd, ECONNRESET), -1, (int fd, void *to, size_t n), (fd, to, n))
WRAP_SLOW(ssize_t, recv, ECONNRESET, -1, (int fd, void *to, size_t n, int flags),
          (fd, to, n, flags))
WRAP_SLOW(ssize_t, recvmsg, ECONNRESET, -1, (int fd, struct msghdr *message, int flags),
          (fd, message, flags))
WRAP_SLOW(ssize_t, write, broken(fd, EPIPE), -1, (int fd, const void *from, size_t n),
          (fd, from, n))
WRAP_SLOW(ssize_t, send, EPIPE, -1, (int fd, const void *from, size_t n, int flags),
          (fd, from, n, flags))
WRAP_SLOW(ssize_t, sendmsg, EPIPE, -1, (int fd, const struct msghdr *message, int flags),
          (fd, message, flags))
WRAP(ssize_t, pread64, EIO, -1, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
WRAP(ssize_t, pwrite64, ENOSPC, -1, (int fd, const void *from, size_t n, off_t at),
     (fd, from, n, at))
WRAP(int, rename, ENOSPC, -1, (const char *from, const char *to), (from, to))
WRAP(int, mkdir, ENOSPC, -1, (const char *path, mode_t mode), (path, mode))
WRAP_SLOW(int, poll, ENOMEM, -1, (struct pollfd * fds, nfds_t count, int ms), (fds, count, ms))
WRAP_SLOW(int, ppoll, ENOMEM, -1,
          (struct pollfd * fds, nfds_t count, const struct timespec *time, const sigset_t *mask),
          (fds, count, time, mask))

/* ---- threads and processes ---- */

WRAP(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
     (thread, attr, run, arg))
WRAP(pid_t, fork, EAGAIN, -1, (void), ())
