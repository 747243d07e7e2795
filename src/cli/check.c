/* SPDX-License-Identifier: Apache-2.0 */
/* `towline check`: runs a program on a private software GPU that checks what its kernels do. The
 * software GPU tells findings on a pipe with a name; they are printed as they come. */
#include "cli/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/private.h"

/* How long sessions may take to end when the program has ended. */
#define END_NS (20 * TOW_TIME_S)
#define TOOL "memcheck" /* if nobody names one */

enum { KEY_SOFT = 256, EXIT_CODE_MAX = 255, SIGNAL_CODE = 128 };

struct check_order {
    const char *tool, *json;
    struct tow_private_setting soft[TOW_PRIVATE_SETTINGS_MAX];
    unsigned soft_count;
    int error_code; /* -1: the program's, or 1 */
};

/* The running check. */
struct check_run {
    struct tow_check check;
    char folder[TOW_CLI_FOLDER_MAX], pipe[TOW_CLI_FOLDER_MAX + 16];
    int fd, signals;
    sigset_t before;
    pid_t program;
    int code;         /* of the program, once it has ended */
    char line[65536]; /* what has come of the next line */
    size_t used;
};

static const struct tow_flag check_flags[] = {
    {NULL, "--tool", "TOOL", 't'},
    {NULL, "--leak-check", NULL, 'l'},
    {NULL, "--error-exitcode", "N", 'e'},
    {NULL, "--json", "FILE", 'j'},
    {NULL, "--suppress", "PATTERN", 'x'},
    {NULL, "--soft-devices", "N", KEY_SOFT},
    {NULL, "--soft-memory", "SIZE", KEY_SOFT + 1},
    {NULL, "--soft-capability", "X.Y", KEY_SOFT + 2},
    {NULL, "--soft-threads", "N", KEY_SOFT + 3},
    {NULL, NULL, NULL, 0},
};

static const char *check_flag_name(int key)
{
    const struct tow_flag *flag = check_flags;
    while (flag->key != key) {
        flag++;
    }
    return flag->name;
}

/* ---- the command line ---- */

static int take_flag(struct check_order *order, struct tow_check *check, int key, const char *value)
{
    char *end;
    long number;
    switch (key) {
    case 't':
        order->tool = value;
        break;
    case 'l':
        check->leaks = true;
        break;
    case 'j':
        order->json = value;
        break;
    case 'e':
        number = strtol(value, &end, 10);
        if (end == value || *end != '\0' || number < 0 || number > EXIT_CODE_MAX) {
            tow_cli_say("--error-exitcode=%s is no exit code; write a number from 0 to 255", value);
            return -EINVAL;
        }
        order->error_code = (int)number;
        break;
    case 'x':
        if (check->suppress_count == TOW_CHECK_SUPPRESS_MAX) {
            tow_cli_say("--suppress may be written %d times; a * in a pattern stands for anything",
                        TOW_CHECK_SUPPRESS_MAX);
            return -EINVAL;
        }
        check->suppress[check->suppress_count++] = value;
        break;
    default:
        if (order->soft_count < TOW_PRIVATE_SETTINGS_MAX - 2) {
            order->soft[order->soft_count++] =
                (struct tow_private_setting){check_flag_name(key), value};
        }
    }
    return 0;
}

static bool is_tool(const char *name, size_t length)
{
    static const char *const tools[] = {"memcheck", "synccheck", "initcheck", "racecheck"};
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
        if (strlen(tools[i]) == length && memcmp(tools[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* 0 and where the program begins, or -EINVAL (or, of help, -ECANCELED) and the exit code. */
static int take_order(int argc, char **argv, struct check_order *order, struct tow_check *check,
                      int *ret_at)
{
    struct tow_flags flags = {.command = &tow_command_check, .argc = argc, .argv = argv, .at = 1};
    const char *value;
    int key, error = 0;
    while (error == 0 && (key = tow_flags_next(&flags, &value)) > 0) {
        error = take_flag(order, check, key, value);
    }
    *ret_at = TOW_EXIT_USAGE;
    if (error < 0) {
        return error;
    }
    if (key == TOW_FLAG_STOP) {
        *ret_at = flags.code;
        return -ECANCELED;
    }
    for (const char *tool = order->tool; tool != NULL; tool = strchr(tool, ',')) {
        tool += *tool == ',';
        int length = (int)strcspn(tool, ",");
        if (!is_tool(tool, (size_t)length)) {
            tow_cli_say(
                "there is no tool %.*s; there are memcheck, synccheck, initcheck and racecheck",
                length, tool);
            return -EINVAL;
        }
    }
    if (flags.at >= argc) {
        tow_cli_say("say which program: towline check -- PROGRAM ARGUMENTS");
        return -EINVAL;
    }
    *ret_at = flags.at;
    return 0;
}

/* ---- the pipe ---- */

static int make_pipe(struct check_run *run)
{
    int error = tow_cli_make_folder(run->folder);
    if (error < 0) {
        run->folder[0] = '\0';
        return error;
    }
    snprintf(run->pipe, sizeof run->pipe, "%s/findings", run->folder);
    if (mkfifo(run->pipe, 0600) != 0) {
        return -errno;
    }
    /* Opened before anybody writes, so that writers need not wait. */
    run->fd = open(run->pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return run->fd < 0 ? -errno : 0;
}

static void drop_pipe(struct check_run *run)
{
    if (run->fd >= 0) {
        close(run->fd);
    }
    if (run->folder[0] != '\0') {
        unlink(run->pipe);
        rmdir(run->folder);
    }
}

/* Takes what there is; false when nobody has it open for writing. */
static bool read_pipe(struct check_run *run)
{
    for (;;) {
        ssize_t n = read(run->fd, run->line + run->used, sizeof run->line - run->used);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0;
        }
        run->used += (size_t)n;
        char *begin = run->line, *end;
        while ((end = memchr(begin, '\n', run->used - (size_t)(begin - run->line))) != NULL) {
            tow_check_take(&run->check, begin, (size_t)(end - begin));
            begin = end + 1;
        }
        run->used -= (size_t)(begin - run->line);
        memmove(run->line, begin, run->used);
        if (run->used == sizeof run->line) { /* no line of ours is so long */
            run->used = 0;
        }
    }
}

/* ---- the program ---- */

static int start_program(struct check_run *run, char **program)
{
    sigset_t mine;
    sigemptyset(&mine);
    sigaddset(&mine, SIGCHLD);
    sigaddset(&mine, SIGTERM);
    sigaddset(&mine, SIGHUP);
    sigaddset(&mine, SIGINT);
    sigaddset(&mine, SIGQUIT);
    sigprocmask(SIG_BLOCK, &mine, &run->before);
    run->signals = signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK);
    run->program = run->signals < 0 ? -1 : fork();
    if (run->program < 0) {
        tow_cli_say("%s cannot be started: %s", program[0], strerror(errno));
        return -EAGAIN;
    }
    if (run->program == 0) {
        sigprocmask(SIG_SETMASK, &run->before, NULL);
        execvp(program[0], program);
        int error = errno;
        tow_cli_say("%s cannot be run: %s", program[0], strerror(error));
        _exit(error == ENOENT ? TOW_EXIT_NOT_FOUND : TOW_EXIT_NOT_EXECUTABLE);
    }
    return 0;
}

/* Whether the program has ended. The terminal's signals it gets by itself; others are handed on. */
static bool take_signals(struct check_run *run)
{
    struct signalfd_siginfo info;
    while (read(run->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP) {
            kill(run->program, (int)info.ssi_signo);
        }
    }
    int status;
    if (waitpid(run->program, &status, WNOHANG) != run->program) {
        return false;
    }
    run->code = WIFSIGNALED(status) ? SIGNAL_CODE + WTERMSIG(status) : WEXITSTATUS(status);
    return true;
}

/* Until the program and its sessions have ended. */
static void check_attend(struct check_run *run)
{
    bool ended = false;
    int64_t deadline = TOW_TIME_FOREVER;
    for (;;) {
        bool open = read_pipe(run);
        if (ended && (!open || run->check.sessions == 0)) {
            return;
        }
        if (ended && tow_time_passed(deadline)) {
            tow_cli_tell("a process that the program has left behind still has a session; what it "
                         "does is not in the sum");
            return;
        }
        struct pollfd polls[2] = {{.fd = run->signals, .events = POLLIN},
                                  {.fd = open ? run->fd : -1, .events = POLLIN}};
        /* While nobody writes the pipe is no use to wait for: a session opens it some time. */
        poll(polls, 2, open && !ended ? -1 : 50);
        if (!ended && take_signals(run)) {
            ended = true;
            deadline = tow_time_deadline(END_NS);
        }
    }
}

/* ---- the command ---- */

static void say_mistake(void *user, enum tow_variable_mistake mistake, const char *why)
{
    (void)user;
    if (mistake == TOW_VARIABLE_WRONG) {
        tow_cli_say("%s (the program was not started)", why);
    } else if (mistake == TOW_VARIABLE_UNKNOWN) {
        tow_cli_tell("%s", why);
    }
}

static int start_all(struct check_run *run, struct check_order *order, char **program)
{
    char bin_dir[PATH_MAX], lib_dir[PATH_MAX], address[TOW_CLI_ADDRESS_MAX], serves[512];
    char why[TOW_WHY_MAX], setting[sizeof run->pipe + 32], path[PATH_MAX];
    int code = tow_cli_find_program(program[0], path, why, sizeof why);
    if (code != 0) {
        tow_cli_say("%s", why);
        return code;
    }
    if (tow_cli_find_folders(bin_dir, lib_dir) < 0) {
        tow_cli_say("Towline's libcuda.so.1 is not beside this program; build it with make, or "
                    "install it again");
        return TOW_EXIT_FAILED;
    }
    int error = make_pipe(run);
    if (error < 0) {
        tow_cli_say("no pipe for findings can be made in /tmp: %s", strerror(-error));
        return TOW_EXIT_FAILED;
    }
    snprintf(setting, sizeof setting, "%s:%s", order->tool, run->pipe);
    order->soft[order->soft_count++] = (struct tow_private_setting){"--soft-check", setting};
    /* Whoever is killed has no session that waits for him. */
    order->soft[order->soft_count++] = (struct tow_private_setting){"--reconnect", "0"};
    if (tow_private_start(bin_dir, "soft", order->soft, order->soft_count, address, sizeof address,
                          serves, sizeof serves, why, sizeof why) < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    if (tow_cli_set_environment(lib_dir, address) != 0) {
        tow_cli_say("the environment cannot be set: out of memory");
        return TOW_EXIT_FAILED;
    }
    return start_program(run, program) < 0 ? TOW_EXIT_FAILED : 0;
}

static int check_main(int argc, char **argv)
{
    static struct check_run run = {.fd = -1, .signals = -1};
    struct check_order order = {.tool = TOOL, .error_code = -1};
    int at = 0;
    tow_check_init(&run.check);
    if (take_order(argc, argv, &order, &run.check, &at) < 0) {
        return at;
    }
    if (tow_environment_check(say_mistake, NULL) > 0) {
        return TOW_EXIT_USAGE;
    }
    int code = start_all(&run, &order, argv + at);
    if (code == 0) {
        check_attend(&run);
        code = run.code;
        tow_check_sum_up(&run.check);
        if (run.check.found > 0) {
            code = order.error_code >= 0 ? order.error_code : code != 0 ? code : TOW_EXIT_FAILED;
        }
        int error = order.json == NULL ? 0
                                       : tow_check_write_json(&run.check, order.json, order.tool,
                                                              argv + at, run.code);
        if (error < 0) {
            tow_cli_say("%s cannot be written: %s", order.json, strerror(-error));
            code = code != 0 ? code : TOW_EXIT_FAILED;
        }
    }
    drop_pipe(&run);
    tow_check_fini(&run.check);
    return code;
}

const struct tow_command tow_command_check = {
    .name = "check",
    .summary = "run a program on a software GPU that finds its mistakes",
    .help =
        "towline check [--tool TOOL] [--leak-check] [--error-exitcode N] [--json FILE] [--suppress "
        "PATTERN]\n"
        "              [--] PROGRAM [ARGUMENTS]\n"
        "\n"
        "Runs a CUDA program, unmodified, on the software GPU, and tells what its kernels do "
        "wrong. It needs\n"
        "no GPU. The program must bring its kernels as PTX (docs/guide/programs.md).\n"
        "\n"
        "  towline check -- ./app\n"
        "  towline check --leak-check --json report.json -- python3 train.py\n"
        "  towline check --suppress 'memcheck:*:vendor_*' -- ./app\n"
        "\n"
        "  --tool TOOL            memcheck (the default): accesses out of bounds, of freed memory, "
        "misaligned\n"
        "                         or of the wrong kind of memory; memory that is freed twice\n"
        "                         synccheck: barriers to which a warp does not come together, and "
        "wrong masks\n"
        "                         initcheck: reads of global and shared memory that nobody wrote\n"
        "                         racecheck: threads of a block that use the same shared memory at "
        "a "
        "time\n"
        "                         Several, with commas between them\n"
        "  --leak-check           also tell what was never freed\n"
        "  --error-exitcode N     end with N if a mistake was found (the program's exit code, or "
        "1 where\n"
        "                         that is 0)\n"
        "  --json FILE            write the findings there\n"
        "  --suppress PATTERN     leave out what is so called: TOOL:KIND:KERNEL:FILE:LINE, where * "
        "stands for\n"
        "                         anything; may be written several times\n"
        "  --soft-devices N       how many software GPUs\n"
        "  --soft-memory SIZE     memory of each, for example 4G\n"
        "  --soft-capability X.Y  compute capability that they report\n"
        "  --soft-threads N       threads that run their kernels\n"
        "\n"
        "Each mistake is told once, on stderr, with its kernel, the line, the first block and "
        "thread, the\n"
        "address and the nearest allocation. A thread ends at its mistake, the others go on; "
        "behind the kernel\n"
        "the program gets error 719. Compile with nvcc -lineinfo for lines of the source.\n",
    .flags = check_flags,
    .leads = true,
    .run = check_main,
};
