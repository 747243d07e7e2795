/* SPDX-License-Identifier: Apache-2.0 */
/* Answers refused system calls with EPERM, and has their names. */
#include "server/walls/refused.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

/* The kernel's (linux/seccomp.h, Linux 5.0), which not every C library has. */
struct notice {
    uint64_t id;
    uint32_t pid, flags;
    struct seccomp_data data;
};

struct verdict {
    uint64_t id;
    int64_t value;
    int32_t error;
    uint32_t flags;
};

#define TAKE_NOTICE _IOWR('!', 0, struct notice)
#define SEND_VERDICT _IOWR('!', 1, struct verdict)

static const struct {
    int number;
    const char *name;
} known[] = {
#define TOW_CALL(name) {SYS_##name, #name},
#define TOW_CALL_NEW(name, number) {number, #name},
#if defined(__x86_64__)
#define TOW_CALL_OLD(name) {SYS_##name, #name},
#else
#define TOW_CALL_OLD(name)
#endif
#include "server/walls/refused.def"
#undef TOW_CALL
#undef TOW_CALL_NEW
#undef TOW_CALL_OLD
};

const char *tows_refused_name(int number)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].number == number) {
            return known[i].name;
        }
    }
    return NULL;
}

int tows_refused_take(int fd, int *ret_number)
{
    /* Taking waits where there is nothing, so this asks first. A call that is interrupted between
     * the two is not waited for: the kernel then says ENOENT. */
    struct pollfd look = {.fd = fd, .events = POLLIN};
    if (poll(&look, 1, 0) <= 0) {
        return 0;
    }
    if ((look.revents & POLLIN) == 0) {
        return -EPIPE; /* no thread is left under the filter */
    }
    struct notice notice = {0}; /* the kernel wants zeros */
    if (ioctl(fd, TAKE_NOTICE, &notice) != 0) {
        return errno == ENOENT || errno == EINTR ? 0 : -EPIPE;
    }
    struct verdict verdict = {.id = notice.id, .error = -EPERM};
    ioctl(fd, SEND_VERDICT, &verdict); /* fails if the caller is gone */
    *ret_number = notice.data.nr;
    return 1;
}
