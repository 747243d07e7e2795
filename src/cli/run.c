/* SPDX-License-Identifier: Apache-2.0 */
/* `towline run`: sets the environment and becomes the program, so that its signals, its exit code
 * and its children are exactly its own. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/private.h"
#include "transport/address.h"
#include "wire/control.h"
#include "wire/limits.h"

int tow_cli_find_folders(char *bin_dir, char *lib_dir)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        return -ENOENT;
    }
    self[length] = '\0';
    char *slash = strrchr(self, '/');
    if (slash == NULL) {
        return -ENOENT;
    }
    *slash = '\0';
    memcpy(bin_dir, self, (size_t)(slash - self) + 1);
    /* build/bin beside build/lib; PREFIX/bin beside PREFIX/lib/towline. */
    static const char *const places[] = {"../lib/towline", "../lib"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char folder[PATH_MAX + 32], library[PATH_MAX + 64];
        snprintf(folder, sizeof folder, "%s/%s", bin_dir, places[i]);
        snprintf(library, sizeof library, "%s/libcuda.so.1", folder);
        if (access(library, R_OK) == 0 && realpath(folder, lib_dir) != NULL) {
            return 0;
        }
    }
    return -ENOENT;
}

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Before a server is started for it: is there such a program? 0, or the exit code. */
static int check_program(const char *name)
{
    if (strchr(name, '/') != NULL) {
        if (is_program(name)) {
            return 0;
        }
        bool there = access(name, F_OK) == 0;
        tow_cli_say(there ? "%s cannot be run: it is not an executable file"
                          : "%s cannot be run: there is no such file",
                    name);
        return there ? TOW_EXIT_NOT_EXECUTABLE : TOW_EXIT_NOT_FOUND;
    }
    const char *path = getenv("PATH");
    for (const char *at = path == NULL ? "/usr/bin:/bin" : path; at != NULL;) {
        size_t length = strcspn(at, ":");
        char file[PATH_MAX];
        snprintf(file, sizeof file, "%.*s/%s", length == 0 ? 1 : (int)length,
                 length == 0 ? "." : at, name);
        if (is_program(file)) {
            return 0;
        }
        at = at[length] == ':' ? at + length + 1 : NULL;
    }
    tow_cli_say("%s cannot be run: it is in none of the folders of PATH", name);
    return TOW_EXIT_NOT_FOUND;
}

static int set_environment(const char *lib_dir, const char *server)
{
    const char *before = getenv("LD_LIBRARY_PATH");
    size_t size = strlen(lib_dir) + (before == NULL ? 0 : strlen(before)) + 2;
    char *path = malloc(size);
    if (path == NULL) {
        return -ENOMEM;
    }
    snprintf(path, size, before == NULL || before[0] == '\0' ? "%s" : "%s:%s", lib_dir, before);
    int error = setenv("LD_LIBRARY_PATH", path, 1);
    free(path);
    /* Triton looks for the driver by itself. */
    if (error == 0) {
        error = setenv("TRITON_LIBCUDA_PATH", lib_dir, 1);
    }
    if (error == 0) {
        error = setenv("TOWLINE_SERVER", server, 1);
    }
    return error;
}

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

static int start_private(const char *bin_dir, const char *device, bool quiet, char *address,
                         size_t address_size)
{
    char serves[512], why[TOW_WHY_MAX];
    int error = tow_private_start(bin_dir, device, address, address_size, serves, sizeof serves,
                                  why, sizeof why);
    if (error < 0) {
        tow_cli_say("%s", why);
        return error;
    }
    if (!quiet) {
        bool soft = strncmp(serves, "soft", 4) == 0;
        bool dry = device != NULL && strcmp(device, "dry") == 0;
        tow_cli_say("no server was named: a private one serves this program with %s",
                    dry    ? "a GPU whose kernels do nothing: its results are wrong"
                    : soft ? "the software GPU"
                           : "this machine's own GPU");
    }
    return 0;
}

static int run_main(int argc, char **argv)
{
    struct tow_flags flags = {argc, argv, 1};
    const char *server = NULL, *device = NULL;
    bool quiet = false, check = true;
    while (flags.at < argc && argv[flags.at][0] == '-' && strcmp(argv[flags.at], "--") != 0) {
        if (tow_flags_take(&flags, "-s", "--server", &server) && server != NULL) {
            continue;
        }
        if (tow_flags_take(&flags, "-d", "--device", &device) && device != NULL) {
            continue;
        }
        if (tow_flags_take(&flags, "-q", "--quiet", NULL)) {
            quiet = true;
            continue;
        }
        if (tow_flags_take(&flags, NULL, "--no-check", NULL)) {
            check = false;
            continue;
        }
        tow_cli_say("its flags are not understood; see towline run --help");
        return TOW_EXIT_USAGE;
    }
    if (flags.at < argc && strcmp(argv[flags.at], "--") == 0) {
        flags.at++;
    }
    if (flags.at >= argc) {
        tow_cli_say("say which program: towline run -- PROGRAM ARGUMENTS");
        return TOW_EXIT_USAGE;
    }
    char **program = argv + flags.at;
    bool in_process = server != NULL && strncmp(server, "self:", 5) == 0;
    if (server != NULL && device != NULL && !in_process) {
        tow_cli_say("the server that -s names decides on its device; use either -s or --device");
        return TOW_EXIT_USAGE;
    }
    int code = check_program(program[0]);
    if (code != 0) {
        return code;
    }
    char bin_dir[PATH_MAX], lib_dir[PATH_MAX];
    if (tow_cli_find_folders(bin_dir, lib_dir) < 0) {
        tow_cli_say("Towline's libcuda.so.1 is not beside this program; build it with make, or "
                    "install it again");
        return TOW_EXIT_FAILED;
    }
    char address[TOW_CLI_ADDRESS_MAX], why[TOW_WHY_MAX];
    /* A device asks for a server of one's own. */
    int choice = device != NULL && !in_process
                     ? TOW_CHOICE_NONE
                     : tow_choose_server(server, address, why, sizeof why);
    if (choice < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    if (in_process && device != NULL) {
        setenv("TOWLINE_DEVICE", device, 1);
    }
    if (choice == TOW_CHOICE_NONE &&
        start_private(bin_dir, device, quiet || device != NULL, address, sizeof address) < 0) {
        return TOW_EXIT_FAILED;
    }
    if (choice != TOW_CHOICE_NONE && check && check_servers(address) < 0) {
        return TOW_EXIT_FAILED;
    }
    if (set_environment(lib_dir, address) != 0) {
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
        "towline run [-s ADDRESS] [--no-check] [--device WHAT] [-q] [--] PROGRAM [ARGUMENTS]\n"
        "\n"
        "Runs a CUDA program, unmodified, on the GPUs of a Towline server.\n"
        "\n"
        "  towline run -s gpuhost -- python3 train.py      the GPU of another machine\n"
        "  towline run -s ssh://gpuhost -- ./app           the same, by your own ssh\n"
        "  towline run -s /run/towline.sock -- ./app       of a server on this machine\n"
        "  towline run -- ./app                            whatever there is, see below\n"
        "  towline run --device soft -- ./app              the software GPU\n"
        "\n"
        "  -s, --server ADDRESS   HOST, HOST:PORT (tcp://HOST:PORT), /PATH of a socket "
        "(unix:///PATH, by shared\n"
        "                         memory where that works), ssh://[USER@]HOST[:PORT][/PATH] (such "
        "a socket of\n"
        "                         another machine, by your own ssh), or self: (the server inside "
        "the program,\n"
        "                         for tests).\n"
        "                         The port is 4837 if none is named. Several, separated by commas: "
        "their GPUs are\n"
        "                         devices 0, 1, 2 ... one after another.\n"
        "  --no-check             do not ask the server whether it is there before the program "
        "starts\n"
        "  -d, --device WHAT      a private server for this program: cuda, soft, dry (kernels do "
        "nothing), or\n"
        "                         a driver library's path\n"
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
        "TOWLINE_LOG=info, TOWLINE_TRACE=FILE (every call), TOWLINE_STATS=FILE (counts, at "
        "exit).\n",
    .run = run_main,
};
