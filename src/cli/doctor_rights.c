/* SPDX-License-Identifier: Apache-2.0 */
/* `towline doctor`: what this system permits a program, and what frameworks look for before they
 * look for a driver. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { USER_MODE_ONLY = 1 };
/* Frameworks pass batches from process to process there; containers have 64 MiB. */
#define SHM_WANTED ((uint64_t)1 << 30)

/* 0, or -errno: whether a program may watch its memory; with flags only while it runs itself, not
 * while the kernel reads its memory for it. */
static int rights_watch(int flags)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | flags);
    int error = fd < 0 ? -errno : 0;
    if (fd >= 0) {
        close(fd);
    }
    return error;
}

static bool rights_has_device(void)
{
    int fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

/* Whether Linux tells a program which of its pages were written. */
static bool rights_tracks(void)
{
    struct utsname system;
    unsigned major = 0, minor = 0;
    return uname(&system) == 0 && sscanf(system.release, "%u.%u", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 7));
}

static void rights_judge_managed(struct tow_doctor *doctor)
{
    if (rights_watch(0) == 0 || rights_has_device()) {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "userfaultfd",
                       "managed memory travels when it is touched: userfaultfd is permitted");
        return;
    }
    int error = rights_watch(USER_MODE_ONLY);
    bool tracks = error == 0 && rights_tracks();
    if (tracks) {
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "userfaultfd",
                       "managed memory travels at launches, as far as it was written: userfaultfd "
                       "is permitted in user mode alone");
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "userfaultfd",
                       "managed memory (cudaMallocManaged) is compared at every launch, which is "
                       "slow: userfaultfd is not permitted (%s)",
                       error < 0 ? strerror(-error)
                                 : "user mode alone, and Linux is older than 6.7");
    }
    if (error < 0) {
        tow_doctor_mend(doctor, "in a container: docker run --security-opt seccomp=unconfined, or "
                                "with a profile that has userfaultfd");
    } else {
        tow_doctor_mend(doctor, "sudo sysctl vm.unprivileged_userfaultfd=1");
    }
}

static void rights_judge_shm(struct tow_doctor *doctor)
{
    struct statvfs files;
    char text[16];
    if (statvfs("/dev/shm", &files) != 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "shm", "/dev/shm cannot be used: %s",
                       strerror(errno));
        tow_doctor_mend(doctor, "sudo mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    uint64_t size = (uint64_t)files.f_blocks * files.f_frsize;
    tow_cli_bytes((double)size, text);
    if (size < SHM_WANTED) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "shm",
                       "/dev/shm has %s: PyTorch's DataLoader and NCCL may run out of it", text);
        tow_doctor_mend(doctor,
                        "sudo mount -o remount,size=8G /dev/shm; in a container: docker run "
                        "--shm-size=8g");
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "shm", "/dev/shm has %s", text);
    }
}

static void rights_judge_limits(struct tow_doctor *doctor)
{
    struct rlimit limit;
    char text[16];
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        tow_cli_bytes((double)limit.rlim_cur, text);
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "addresses",
                       "a program may use %s of addresses; it wants more than the GPUs have memory",
                       text);
        tow_doctor_mend(doctor, "ulimit -v unlimited");
    }
}

static void rights_judge_jax(struct tow_doctor *doctor)
{
    static const char *const nodes[] = {"/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        if (access(nodes[i], F_OK) == 0) {
            tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "jax", "JAX looks for GPUs here: %s exists",
                           nodes[i]);
            return;
        }
    }
    tow_doctor_say(doctor, TOW_DOCTOR_HINT, "jax",
                   "JAX looks for no GPU here and takes the CPU: there is no /dev/nvidiactl");
    tow_doctor_mend(doctor, "sudo touch /dev/nvidiactl; in a container: docker run -v "
                            "/dev/null:/dev/nvidiactl");
}

void tow_doctor_rights(struct tow_doctor *doctor)
{
    tow_doctor_group(doctor, "This system");
    rights_judge_managed(doctor);
    rights_judge_shm(doctor);
    rights_judge_limits(doctor);
    rights_judge_jax(doctor);
}
