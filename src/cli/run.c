/* SPDX-License-Identifier: Apache-2.0 */
/* `towline run`: sets the environment and becomes the program, so that its signals, its exit code
 * and its children are exactly its own. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/size.h"
#include "cli/cli.h"
#include "cli/private.h"
#include "transport/address.h"
#include "transport/limit.h"
#include "wire/control.h"
#include "wire/limits.h"

/* Before the program starts: do all of these servers answer? A program whose first CUDA call fails
 * may go on with the CPU. The question takes no session. */
static int check_servers(const char *servers)
{
    char list[TOW_CLI_ADDRESS_MAX], why[TOW_WHY_MAX];
    snprintf(list, sizeof list, "%s", servers);
    char *rest = list;
    const char *address;
    while ((address = tow_address_next(&rest)) != NULL) {
        address = tow_transport_behind_hook(address);
        if (strncmp(address, "self:", 5) == 0) {
            continue;
        }
        struct tow_buf report;
        tow_buf_init(&report, TOW_FRAME_MAX);
        int error = tow_ask_report(address, TOW_STATUS_AT_HAND | TOW_STATUS_PRESENT, &report, why,
                                   sizeof why);
        tow_buf_fini(&report);
        if (error < 0) {
            tow_cli_say("%s (the program was not started; --no-check starts it without asking)",
                        why);
            return error;
        }
    }
    return 0;
}

/* What the command line asks for. */
struct run_order {
    const char *server, *device;
    struct tow_private_setting soft[TOW_PRIVATE_SETTINGS_MAX]; /* of the software GPU */
    unsigned soft_count;
    const char *gpu_memory, *wait, *priority, *share;
    const char *timeline;
    bool exclusive;
    bool quiet, unchecked;
    bool in_process; /* the server is inside the program */
};

static int start_private(const char *bin_dir, const struct run_order *order, char *address,
                         size_t address_size)
{
    char serves[512], why[TOW_WHY_MAX];
    const char *device = order->device;
    int error = tow_private_start(bin_dir, device, order->soft, order->soft_count, address,
                                  address_size, serves, sizeof serves, why, sizeof why);
    if (error < 0) {
        tow_cli_say("%s", why);
        return error;
    }
    if (!order->quiet && device == NULL) {
        bool soft = strncmp(serves, "soft", 4) == 0;
        tow_cli_tell("no server was named: a private one serves this program with %s",
                     soft ? "the software GPU" : "this machine's own GPU");
    }
    return 0;
}

enum { KEY_SOFT = 256 }; /* and those after it */

static const struct tow_flag run_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {"-d", "--device", "WHAT", 'd'},
    {"-q", "--quiet", NULL, 'q'},
    {NULL, "--no-check", NULL, 'n'},
    {NULL, "--gpu-memory", "SIZE", 'm'},
    {NULL, "--wait", "TIME", 'w'},
    {NULL, "--no-wait", NULL, 'W'},
    {NULL, "--priority", "low|normal|high", 'p'},
    {NULL, "--exclusive", NULL, 'x'},
    {NULL, "--share", "N", 'S'},
    {NULL, "--timeline", "FILE", 't'},
    {NULL, "--soft-devices", "N", KEY_SOFT},
    {NULL, "--soft-memory", "SIZE", KEY_SOFT + 1},
    {NULL, "--soft-capability", "X.Y", KEY_SOFT + 2},
    {NULL, "--soft-threads", "N", KEY_SOFT + 3},
    {NULL, "--soft-strict", "0|1", KEY_SOFT + 4},
    {NULL, NULL, NULL, 0},
};

static const char *run_flag_name(int key)
{
    const struct tow_flag *flag = run_flags;
    while (flag->key != key) {
        flag++;
    }
    return flag->name;
}

/* Do these flags go together? */
static int check_order(struct run_order *order)
{
    order->in_process = order->server != NULL && strncmp(order->server, "self:", 5) == 0;
    const char *setting = order->soft_count > 0 ? order->soft[0].flag : NULL;
    if (order->server != NULL && order->device != NULL && !order->in_process) {
        tow_cli_say("the server that -s names decides on its device; use either -s or --device");
        return -EINVAL;
    }
    if (setting != NULL && order->server != NULL) {
        tow_cli_say(order->in_process
                        ? "write settings into the address, as -s self:%s=VALUE"
                        : "the server that -s names has its own %s; use either -s or --%s",
                    setting + 2, setting + 2);
        return -EINVAL;
    }
    if (setting != NULL && order->device == NULL) {
        order->device = "soft";
    }
    if (setting != NULL && strcmp(order->device, "soft") != 0 &&
        strcmp(order->device, "dry") != 0) {
        tow_cli_say("%s is a setting of the software GPU; write --device soft with it", setting);
        return -EINVAL;
    }
    return 0;
}

/* 0 and where the program begins, or -EINVAL (or, of help, -ECANCELED) and the exit code. */
static int take_order(int argc, char **argv, struct run_order *order, int *ret_at)
{
    struct tow_flags flags = {.command = &tow_command_run, .argc = argc, .argv = argv, .at = 1};
    const char *value;
    int key;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        order->server = key == 's' ? value : order->server;
        order->device = key == 'd' ? value : order->device;
        order->gpu_memory = key == 'm' ? value : order->gpu_memory;
        order->wait = key == 'w' ? value : key == 'W' ? "0" : order->wait;
        order->priority = key == 'p' ? value : order->priority;
        order->share = key == 'S' ? value : order->share;
        order->timeline = key == 't' ? value : order->timeline;
        order->exclusive |= key == 'x';
        order->quiet |= key == 'q';
        order->unchecked |= key == 'n';
        if (key >= KEY_SOFT && order->soft_count < TOW_PRIVATE_SETTINGS_MAX) {
            order->soft[order->soft_count++] =
                (struct tow_private_setting){run_flag_name(key), value};
        }
    }
    *ret_at = key == TOW_FLAG_STOP ? flags.code : TOW_EXIT_USAGE;
    if (key == TOW_FLAG_STOP) {
        return -ECANCELED;
    }
    if (flags.at >= argc) {
        tow_cli_say("say which program: towline run -- PROGRAM ARGUMENTS");
        return -EINVAL;
    }
    int error = check_order(order);
    *ret_at = error == 0 ? flags.at : *ret_at;
    return error;
}

static void say_mistake(void *user, enum tow_variable_mistake mistake, const char *why)
{
    (void)user;
    if (mistake == TOW_VARIABLE_WRONG) {
        tow_cli_say("%s (the program was not started)", why);
    } else if (mistake == TOW_VARIABLE_UNKNOWN) {
        tow_cli_tell("%s", why);
    }
}

/* The server of this program: it answers, or was started. 0, or it was said what is wrong. */
static int find_server(const char *bin_dir, const struct run_order *order, char *ret_address)
{
    char why[TOW_WHY_MAX];
    /* A device asks for a server of one's own. */
    int choice = order->device != NULL && !order->in_process
                     ? TOW_CHOICE_NONE
                     : tow_choose_server(order->server, ret_address, why, sizeof why);
    if (choice < 0) {
        tow_cli_say("%s", why);
        return choice;
    }
    if (order->in_process && order->device != NULL) {
        setenv("TOWLINE_DEVICE", order->device, 1);
    }
    if (choice == TOW_CHOICE_NONE) {
        return start_private(bin_dir, order, ret_address, TOW_CLI_ADDRESS_MAX);
    }
    return order->unchecked ? 0 : check_servers(ret_address);
}

/* What the program is to ask the server for, into its environment. */
static int ask_for_it(const struct run_order *order)
{
    uint64_t size;
    uint32_t number;
    if (order->gpu_memory != NULL && (tow_size_parse(order->gpu_memory, &size) < 0 || size == 0)) {
        tow_cli_say("--gpu-memory=%s is no size; write for example --gpu-memory 8G",
                    order->gpu_memory);
        return -EINVAL;
    }
    if (order->wait != NULL && tow_limit_parse_wait(order->wait, &number) < 0) {
        tow_cli_say("--wait=%s is no time; write for example --wait 10m", order->wait);
        return -EINVAL;
    }
    if (order->priority != NULL && tow_limit_parse_priority(order->priority, &number) < 0) {
        tow_cli_say("--priority=%s is none; write low, normal or high", order->priority);
        return -EINVAL;
    }
    if (order->share != NULL && tow_limit_parse_share(order->share, &number) < 0) {
        tow_cli_say("--share=%s cannot be; write a number from 1 to 1000", order->share);
        return -EINVAL;
    }
    const struct {
        const char *name, *value;
    } variables[] = {
        {"TOWLINE_GPU_MEMORY", order->gpu_memory},
        {"TOWLINE_WAIT", order->wait},
        {"TOWLINE_PRIORITY", order->priority},
        {"TOWLINE_SHARE", order->share},
        {"TOWLINE_EXCLUSIVE", order->exclusive ? "1" : NULL},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        if (variables[i].value != NULL) {
            setenv(variables[i].name, variables[i].value, 1);
        }
    }
    return 0;
}

/* The file of a timeline begins empty: the library writes into no other. The program may change its
 * folder. */
static int begin_timeline(const char *name)
{
    char path[PATH_MAX], whole[PATH_MAX], folder[PATH_MAX];
    int error = tow_file_of_process(name, path);
    int fd = -1;
    if (error == 0 && strcmp(name, "-") == 0) {
        tow_cli_say("--timeline=- is no file; name one, for example --timeline timeline.json");
        return -EINVAL;
    }
    if (error == 0) {
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        error = fd < 0 ? -errno : 0;
    }
    if (error == 0) {
        close(fd);
        if (strstr(name, "%p") != NULL) {
            unlink(path); /* the program may be another one's parent only */
        }
        if (name[0] != '/') {
            error = getcwd(folder, sizeof folder) == NULL ? -errno : 0;
        }
    }
    if (error == 0 && name[0] != '/') {
        int length = snprintf(whole, sizeof whole, "%s/%s", folder, name);
        error = length >= (int)sizeof whole ? -ENAMETOOLONG : 0;
        name = whole;
    }
    if (error == 0 && setenv("TOWLINE_TIMELINE", name, 1) != 0) {
        error = -ENOMEM;
    }
    if (error < 0) {
        tow_cli_say("the timeline %s cannot be written: %s (the program was not started)", name,
                    strerror(-error));
    }
    return error;
}

static int run_main(int argc, char **argv)
{
    struct run_order order = {.quiet = false};
    int at = 0;
    if (take_order(argc, argv, &order, &at) < 0) {
        return at;
    }
    if (ask_for_it(&order) < 0) {
        return TOW_EXIT_USAGE;
    }
    if (tow_environment_check(say_mistake, NULL) > 0) {
        return TOW_EXIT_USAGE;
    }
    char **program = argv + at;
    char why[TOW_WHY_MAX], path[PATH_MAX];
    int code = tow_cli_find_program(program[0], path, why, sizeof why);
    if (code != 0) {
        tow_cli_say("%s", why);
        return code;
    }
    if (order.timeline != NULL && begin_timeline(order.timeline) < 0) {
        return TOW_EXIT_FAILED;
    }
    char bin_dir[PATH_MAX], lib_dir[PATH_MAX], address[TOW_CLI_ADDRESS_MAX];
    if (tow_cli_find_folders(bin_dir, lib_dir) < 0) {
        tow_cli_say("Towline's libcuda.so.1 is not beside this program; build it with make, or "
                    "install it again");
        return TOW_EXIT_FAILED;
    }
    if (find_server(bin_dir, &order, address) < 0) {
        return TOW_EXIT_FAILED;
    }
    if (tow_cli_set_environment(lib_dir, address) != 0) {
        tow_cli_say("the environment cannot be set: out of memory");
        return TOW_EXIT_FAILED;
    }
    execvp(program[0], program);
    int error = errno;
    tow_cli_say("%s cannot be run: %s", program[0], strerror(error));
    return error == ENOENT ? TOW_EXIT_NOT_FOUND : TOW_EXIT_NOT_EXECUTABLE;
}

const struct tow_command tow_command_run = {
    .name = "run",
    .summary = "run a program on a GPU that is elsewhere",
    .help =
        "towline run [-s ADDRESS] [--no-check] [--gpu-memory SIZE] [--wait TIME | --no-wait] "
        "[--priority WHICH]\n"
        "            [--exclusive] [--share N] [--device WHAT] [--timeline FILE] [-q] [--] PROGRAM "
        "[ARGUMENTS]\n"
        "\n"
        "Runs a CUDA program, unmodified, on the GPUs of a Towline server.\n"
        "\n"
        "  towline run -s gpuhost -- python3 train.py      the GPU of another machine\n"
        "  towline run -s ssh://gpuhost -- ./app           the same, by your own ssh\n"
        "  towline run -s /run/towline.sock -- ./app       of a server on this machine\n"
        "  towline run -- ./app                            whatever there is, see below\n"
        "  towline run --device soft -- ./app              the software GPU\n"
        "  towline run --soft-memory 1G -- ./app           the same, with 1 GiB of memory\n"
        "\n"
        "  -s, --server ADDRESS   HOST, HOST:PORT (tcp://HOST:PORT), /PATH of a socket "
        "(unix:///PATH, by shared\n"
        "                         memory where that works), ssh://[USER@]HOST[:PORT][/PATH] (such "
        "a socket of\n"
        "                         another machine, by your own ssh), or self: (the server inside "
        "the program,\n"
        "                         for tests).\n"
        "                         tls://HOST is encrypted (towline trust). The port is 4837 if "
        "none "
        "is named, of\n"
        "                         tls:// 4838. Several, separated by commas: their GPUs are "
        "devices "
        "0, 1, 2 ...\n"
        "                         one after another.\n"
        "  --no-check             do not ask the server whether it is there before the program "
        "starts\n"
        "  --gpu-memory SIZE      what the program may have of each GPU, for example 8G: it sees "
        "GPUs "
        "of that\n"
        "                         size. Never more than the server gives it\n"
        "  --wait TIME            how long to wait in line where there is no room for it: 90, 10m, "
        "2h, 1d (as\n"
        "                         long as the server lets it wait)\n"
        "  --no-wait              fail at once where there is none\n"
        "  --priority WHICH       low, normal or high in that line, if the server gives it that "
        "much\n"
        "  --exclusive            the GPUs for itself alone; it waits until nobody else has them\n"
        "  --share N              its weight among programs that compute on the same GPU, from 1 "
        "on. Never\n"
        "                         more than the server gives it (100, unless it says so)\n"
        "  --timeline FILE        write what the program and the GPU did when, for Perfetto, "
        "chrome://tracing\n"
        "                         (https://ui.perfetto.dev). %p in the name is the process's "
        "number\n"
        "  -d, --device WHAT      a private server for this program: cuda, soft, dry (kernels do "
        "nothing), or\n"
        "                         a driver library's path\n"
        "  --soft-devices N       how many software GPUs; this and the next imply --device soft\n"
        "  --soft-memory SIZE     memory of each, for example 4G\n"
        "  --soft-capability X.Y  compute capability that they report\n"
        "  --soft-threads N       threads that run their kernels\n"
        "  --soft-strict 0|1      1: calls wait wherever NVIDIA's driver may, for tests\n"
        "  -q, --quiet            do not say that a private server was started\n"
        "\n"
        "Which server: -s, then the variable TOWLINE_SERVER, then `server = ADDRESS` in\n"
        "~/.config/towline/towline.conf or /etc/towline/towline.conf, then this machine's own "
        "socket if a\n"
        "server listens there. Else a private server is started for the program's life, on this "
        "machine's\n"
        "GPU if it has one, or on the software GPU.\n"
        "\n"
        "towline becomes the program: signals, exit code and process id are the program's own. "
        "What it sets:\n"
        "LD_LIBRARY_PATH (Towline's libcuda.so.1 first), TOWLINE_SERVER, TRITON_LIBCUDA_PATH. To "
        "look inside:\n"
        "--timeline FILE, TOWLINE_LOG=info, TOWLINE_TRACE=FILE (every call), TOWLINE_STATS=FILE "
        "(counts, at "
        "exit).\n",
    .flags = run_flags,
    .leads = true,
    .run = run_main,
};
