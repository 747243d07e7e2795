/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a worker's system call filter, by hand: a few tests of a number, then of an argument. */
#include "server/walls/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

enum {
    PROGRAM_MAX = 1024,
    THREAD = 0x10000,          /* CLONE_THREAD */
    SOCKET_TYPE = 0xf,         /* without SOCK_CLOEXEC and SOCK_NONBLOCK */
    NAME_MAPPING = 0x53564d41, /* PR_SET_VMA: the C library names its memory */
};

/* The kernel's: not every linux/seccomp.h has them. */
enum {
    FILTER_ALL_THREADS = 1 << 0,
    FILTER_NEW_LISTENER = 1 << 3,
    FILTER_THREAD_IS_ESRCH = 1 << 4, /* so that a descriptor is not taken for a thread */
};
#ifndef SECCOMP_RET_USER_NOTIF
#define SECCOMP_RET_USER_NOTIF 0x7fc00000U
#endif

#if defined(ARCHITECTURE)

static const int listed[] = {
#define TOW_CALL(name) SYS_##name,
#if defined(__x86_64__)
#define TOW_CALL_OLD(name) SYS_##name,
#else
#define TOW_CALL_OLD(name)
#endif
#include "server/walls/syscalls.def"
#undef TOW_CALL
#undef TOW_CALL_OLD
};

struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short count;
    uint32_t refusal; /* what becomes of a call that is not allowed */
};

static void seccomp_add(struct program *program, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
    /* A full one would be a mistake of ours: the kernel refuses it, as it has no end. */
    if (program->count < PROGRAM_MAX) {
        program->code[program->count++] = (struct sock_filter){code, yes, no, k};
    }
}

static void add_load(struct program *program, size_t offset)
{
    seccomp_add(program, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void add_return(struct program *program, uint32_t what)
{
    seccomp_add(program, BPF_RET | BPF_K, 0, 0, what);
}

static void add_refusal(struct program *program)
{
    add_return(program, program->refusal);
}

static void add_allowed(struct program *program, int number)
{
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)number);
    add_return(program, SECCOMP_RET_ALLOW);
}

/* The low half of an argument: all that are looked at here are ints. */
static size_t place_of(unsigned argument)
{
    return offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t);
}

/* A call whose argument is one of these, and no other (`allowed`), or is none of these. */
static void add_chosen(struct program *program, int number, unsigned argument, bool allowed,
                       const uint32_t *values, uint8_t count)
{
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 0, (uint8_t)(count + 3), (uint32_t)number);
    add_load(program, place_of(argument));
    for (uint8_t i = 0; i < count; i++) {
        seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(count - i), 0, values[i]);
    }
    add_return(program, allowed ? program->refusal : SECCOMP_RET_ALLOW);
    add_return(program, allowed ? SECCOMP_RET_ALLOW : program->refusal);
}

#define CHOSEN(program, number, argument, allowed, ...)                                            \
    do {                                                                                           \
        const uint32_t values_[] = {__VA_ARGS__};                                                  \
        add_chosen(program, number, argument, allowed, values_, sizeof values_ / sizeof *values_); \
    } while (0)

/* One that fails each time, by far: NVIDIA's driver tries to name its device files anew in
 * /dev/char whenever it opens them again. It goes on without, and the log is not to have it. */
static void add_expected(struct program *program, int number)
{
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)number);
    add_return(program, SECCOMP_RET_ERRNO | EPERM);
}

/* Threads can be made, processes cannot. */
static void add_clone(struct program *program)
{
    /* Its flags lie in memory. The C library takes clone where this does not exist. */
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_clone3);
    add_return(program, SECCOMP_RET_ERRNO | ENOSYS);
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_clone);
    add_load(program, place_of(0));
    seccomp_add(program, BPF_JMP | BPF_JSET | BPF_K, 0, 1, THREAD);
    add_return(program, SECCOMP_RET_ALLOW);
    add_refusal(program);
}

/* Pairs of connected sockets. Each end of a pair of datagrams could send to any path as well. */
static void add_socketpair(struct program *program)
{
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 9, SYS_socketpair);
    add_load(program, place_of(0));
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AF_UNIX);
    add_refusal(program);
    add_load(program, place_of(1));
    seccomp_add(program, BPF_ALU | BPF_AND | BPF_K, 0, 0, SOCKET_TYPE);
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, SOCK_STREAM);
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SOCK_SEQPACKET);
    add_refusal(program);
    add_return(program, SECCOMP_RET_ALLOW);
}

static void seccomp_fill(struct program *program, bool accepts, bool connects)
{
    uint32_t self = (uint32_t)getpid();
    add_load(program, offsetof(struct seccomp_data, arch));
    seccomp_add(program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCHITECTURE);
    add_return(program, SECCOMP_RET_ERRNO | EPERM); /* its numbers have other names */
    add_load(program, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
        add_allowed(program, listed[i]);
    }
    if (accepts) {
        add_allowed(program, SYS_accept4);
    }
    if (connects) {
        CHOSEN(program, SYS_socket, 0, true, AF_UNIX);
        add_allowed(program, SYS_connect);
    }
    add_clone(program);
#if defined(__x86_64__)
    add_expected(program, SYS_symlink);
#endif
    add_expected(program, SYS_symlinkat);
    /* It signals itself only: abort and thread cancellation do. */
    CHOSEN(program, SYS_kill, 0, true, self);
    CHOSEN(program, SYS_tgkill, 0, true, self);
    CHOSEN(program, SYS_prlimit64, 0, true, 0, self);
    add_socketpair(program);
    CHOSEN(program, SYS_prctl, 0, true, PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, NAME_MAPPING,
           PR_SET_TIMERSLACK); /* session/watch.c */
    /* The listener has its sockets, too, and must not wait when it closes the last descriptor. */
    CHOSEN(program, SYS_setsockopt, 2, false, SO_LINGER);
    /* No signals by way of descriptors, nothing typed into the terminal that the log goes to. */
    CHOSEN(program, SYS_fcntl, 1, false, F_SETOWN, F_SETOWN_EX, F_SETSIG);
    CHOSEN(program, SYS_ioctl, 1, false, FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX, TIOCSETD);
    add_refusal(program);
}

bool tows_seccomp_known(void)
{
    uint32_t action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

/* 0 or, with a flag that asks for one, a descriptor; -Exxx. */
static int enter_with(uint32_t refusal, unsigned flags, bool accepts, bool connects)
{
    static struct program program;
    program.count = 0;
    program.refusal = refusal;
    seccomp_fill(&program, accepts, connects);
    struct sock_fprog filter = {.len = program.count, .filter = program.code};
    long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
    return result < 0 ? -errno : (int)result;
}

int tows_seccomp_enter(bool accepts, bool connects, int *ret_refused)
{
    /* Linux 5.7; and one process can have one such filter only, be it a container's. */
    int refused = enter_with(SECCOMP_RET_USER_NOTIF,
                             FILTER_ALL_THREADS | FILTER_NEW_LISTENER | FILTER_THREAD_IS_ESRCH,
                             accepts, connects);
    if (refused >= 0) {
        *ret_refused = refused;
        return 0;
    }
    int result = enter_with(SECCOMP_RET_ERRNO | EPERM, FILTER_ALL_THREADS, accepts, connects);
    if (result == 0) {
        *ret_refused = -1;
    }
    return result > 0 ? -EBUSY : result;
}

#else

bool tows_seccomp_known(void)
{
    return false;
}

int tows_seccomp_enter(bool accepts, bool connects, int *ret_refused)
{
    (void)accepts;
    (void)connects;
    (void)ret_refused;
    return -ENOSYS;
}

#endif
