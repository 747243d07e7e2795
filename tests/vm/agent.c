/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's end of `tests/vm/guest run`: one process for each virtio port called towline.N, which
 * runs a shell command at a time and sends back what it writes and how it ends. In a plain guest it
 * is the first process as well.
 *
 * A frame is a byte that says what it is, four bytes of length (little-endian), and so many bytes.
 * From the host: p  answer with the same; whatever ran is killed        r  run this shell command
 *   t  the same on a terminal (rows, columns: two bytes each, before the command)
 *   i  these bytes are its input    c  that was all its input    k  kill it
 * To the host:
 *   p  as above    o  standard output    e  standard error    x  it has ended: a byte, as a shell's
 * $? */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PORTS = 4,
    FRAME_MAX = 1 << 20,
    OUTPUT_MAX = 32 << 10,
    IDLE_SECONDS = 900,    /* a guest that nobody asks for so long turns itself off */
    BUSY_TICK_MS = 60000,  /* so often a command that says nothing counts as use */
    ABSENT_NAP_US = 10000, /* a port without a host end is always "readable" */
};

/* A command that runs. */
struct job {
    pid_t pid; /* and its process group; 0: none runs */
    int pidfd;
    int input;  /* -1: closed */
    int output; /* of both kinds for a terminal; -1: at its end */
    int error;
    uint8_t *queue; /* owned: input that it has not taken yet */
    size_t queued;
    bool close_when_empty;
};

/* Shared by all processes of the agent: when a port was last used. */
static _Atomic time_t *last_used;

static time_t now(void)
{
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    return clock.tv_sec;
}

static void write_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t done = write(fd, at, size);
        if (done < 0 && errno != EINTR && errno != EAGAIN) {
            return; /* the host is gone: the next read says so */
        }
        at += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
}

static void send_frame(int port, char kind, const void *data, uint32_t size)
{
    uint8_t head[5] = {(uint8_t)kind, (uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16),
                       (uint8_t)(size >> 24)};
    write_all(port, head, sizeof(head));
    write_all(port, data, size);
}

/* 1: read; 0: the host has gone away. */
static int read_all(int fd, void *data, size_t size)
{
    char *at = data;
    while (size > 0) {
        ssize_t done = read(fd, at, size);
        if (done == 0 || (done < 0 && errno != EINTR)) {
            return 0;
        }
        at += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
    return 1;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void job_clear(struct job *job)
{
    close_fd(&job->pidfd);
    close_fd(&job->input);
    close_fd(&job->output);
    close_fd(&job->error);
    free(job->queue);
    *job = (struct job){.pidfd = -1, .input = -1, .output = -1, .error = -1};
}

static void job_kill(struct job *job)
{
    if (job->pid > 0) {
        kill(-job->pid, SIGKILL);
        waitpid(job->pid, NULL, 0);
    }
    job_clear(job);
}

static void run_shell(const char *command)
{
    signal(SIGPIPE, SIG_DFL);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static void job_start(struct job *job, const char *command)
{
    int in[2], out[2], err[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
        abort();
    }
    job->pid = fork();
    if (job->pid == 0) {
        setsid();
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        run_shell(command);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    job->input = in[1];
    job->output = out[0];
    job->error = err[0];
}

static void job_start_terminal(struct job *job, const uint8_t *size, const char *command)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64];
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0 ||
        ptsname_r(master, name, sizeof(name)) != 0) {
        abort();
    }
    struct winsize window = {.ws_row = (unsigned short)(size[0] | size[1] << 8),
                             .ws_col = (unsigned short)(size[2] | size[3] << 8)};
    ioctl(master, TIOCSWINSZ, &window);
    job->pid = fork();
    if (job->pid == 0) {
        setsid();
        int terminal = open(name, O_RDWR); /* becomes the controlling one */
        dup2(terminal, STDIN_FILENO);
        dup2(terminal, STDOUT_FILENO);
        dup2(terminal, STDERR_FILENO);
        close(terminal);
        run_shell(command);
    }
    job->output = master;
    job->input = fcntl(master, F_DUPFD_CLOEXEC, 0);
}

/* Sends what there is; what is not there yet is not waited for. */
static void pass_output(int port, char kind, int *fd)
{
    static uint8_t buffer[OUTPUT_MAX];
    ssize_t got = read(*fd, buffer, sizeof(buffer));
    if (got > 0) {
        send_frame(port, kind, buffer, (uint32_t)got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_fd(fd); /* a terminal without programs says EIO */
    }
}

static void job_feed(struct job *job)
{
    ssize_t done = job->queued > 0 ? write(job->input, job->queue, job->queued) : 0;
    if (done < 0 && errno != EAGAIN && errno != EINTR) {
        job->queued = 0; /* it does not want more */
    } else if (done > 0) {
        job->queued -= (size_t)done;
        memmove(job->queue, job->queue + done, job->queued);
    }
    if (job->queued == 0 && job->close_when_empty) {
        close_fd(&job->input);
    }
}

static void job_end(int port, struct job *job)
{
    int status = 0;
    waitpid(job->pid, &status, 0);
    /* What it has written. Processes that it left behind may keep the pipes open: they are not
     * waited for. */
    struct pollfd left;
    while (left = (struct pollfd){.fd = job->output, .events = POLLIN},
           job->output >= 0 && poll(&left, 1, 0) > 0) {
        pass_output(port, 'o', &job->output);
    }
    while (left = (struct pollfd){.fd = job->error, .events = POLLIN},
           job->error >= 0 && poll(&left, 1, 0) > 0) {
        pass_output(port, 'e', &job->error);
    }
    uint8_t code = (uint8_t)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    job->pid = 0;
    job_clear(job);
    send_frame(port, 'x', &code, 1);
}

static void set_nonblocking(int fd)
{
    if (fd >= 0) {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
}

/* Does what one frame asks; 0: there was none, and there is no host. */
static int take_frame(int port, struct job *job)
{
    uint8_t head[5];
    if (!read_all(port, head, sizeof(head))) {
        return 0;
    }
    uint32_t size = head[1] | head[2] << 8 | head[3] << 16 | (uint32_t)head[4] << 24;
    uint8_t *data = size <= FRAME_MAX ? malloc(size + 1) : NULL;
    if (data == NULL || !read_all(port, data, size)) {
        free(data);
        return 0;
    }
    data[size] = 0;
    char kind = (char)head[0];
    if (kind == 'p') {
        job_kill(job);
        send_frame(port, 'p', data, size);
    } else if ((kind == 'r' || (kind == 't' && size >= 4)) && job->pid == 0) {
        if (kind == 'r') {
            job_start(job, (char *)data);
        } else {
            job_start_terminal(job, data, (char *)data + 4);
        }
        job->pidfd = (int)syscall(SYS_pidfd_open, job->pid, 0);
        set_nonblocking(job->input);
        set_nonblocking(job->output);
        set_nonblocking(job->error);
    } else if (kind == 'i' && job->input >= 0) {
        /* No more is read from the port before this is taken, so there is nothing in the queue. */
        free(job->queue);
        job->queue = data;
        job->queued = size;
        return 1;
    } else if (kind == 'c') {
        job->close_when_empty = true;
    } else if (kind == 'k' && job->pid > 0) {
        kill(-job->pid, SIGKILL);
    }
    free(data);
    return 1;
}

static void serve_port(const char *path, int number)
{
    int port = open(path, O_RDWR | O_CLOEXEC);
    if (port < 0) {
        perror(path);
        _exit(1);
    }
    signal(SIGPIPE, SIG_IGN);
    struct job job = {.pidfd = -1, .input = -1, .output = -1, .error = -1};
    for (;;) {
        bool feeding = job.input >= 0 && (job.queued > 0 || job.close_when_empty);
        struct pollfd polled[] = {
            {.fd = job.queued > 0 ? -1 : port, .events = POLLIN},
            {.fd = job.output, .events = POLLIN},
            {.fd = job.error, .events = POLLIN},
            {.fd = job.pid > 0 ? job.pidfd : -1, .events = POLLIN},
            {.fd = feeding ? job.input : -1, .events = POLLOUT},
        };
        poll(polled, sizeof(polled) / sizeof(polled[0]), BUSY_TICK_MS);
        if (polled[1].revents) {
            pass_output(port, 'o', &job.output);
        }
        if (polled[2].revents) {
            pass_output(port, 'e', &job.error);
        }
        if (polled[4].revents) {
            job_feed(&job);
        }
        if (polled[3].revents) {
            job_end(port, &job);
        }
        if (polled[0].revents & POLLIN) {
            atomic_store(&last_used[number], now());
            if (take_frame(port, &job)) {
                continue;
            }
        }
        if (polled[0].revents & (POLLIN | POLLHUP)) {
            job_kill(&job);
            usleep(ABSENT_NAP_US);
        } else if (job.pid > 0) {
            atomic_store(&last_used[number], now());
        }
    }
}

/* The device of a port with this name: 0 when there is one. */
static int find_port(const char *wanted, char *ret_path, size_t size)
{
    DIR *folder = opendir("/sys/class/virtio-ports");
    int result = -ENOENT;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char path[512], name[64] = "";
        snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            if (fgets(name, sizeof(name), file) != NULL && strcspn(name, "\n") == strlen(wanted) &&
                strncmp(name, wanted, strlen(wanted)) == 0) {
                snprintf(ret_path, size, "/dev/%s", entry->d_name);
                result = access(ret_path, F_OK);
            }
            fclose(file);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return result;
}

static pid_t start_port(int number)
{
    char name[32], path[300];
    snprintf(name, sizeof(name), "towline.%d", number);
    while (find_port(name, path, sizeof(path)) != 0) {
        usleep(ABSENT_NAP_US); /* the driver finds its ports one after the other */
    }
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        serve_port(path, number);
    }
    return pid;
}

int main(void)
{
    last_used = mmap(NULL, sizeof(*last_used) * PORTS, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (last_used == MAP_FAILED) {
        return 1;
    }
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, NULL);
    pid_t ports[PORTS];
    for (int i = 0; i < PORTS; i++) {
        ports[i] = start_port(i);
    }
    for (;;) {
        struct timespec second = {.tv_sec = 1};
        sigtimedwait(&ended, NULL, &second);
        for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;) {
            for (int i = 0; i < PORTS; i++) {
                if (ports[i] == pid) {
                    ports[i] = start_port(i);
                }
            }
        }
        time_t latest = 0;
        for (int i = 0; i < PORTS; i++) {
            time_t used = atomic_load(&last_used[i]);
            latest = used > latest ? used : latest;
        }
        if (now() - latest > IDLE_SECONDS) {
            reboot(RB_POWER_OFF);
        }
    }
}
