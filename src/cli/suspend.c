/* SPDX-License-Identifier: Apache-2.0 */
/* `towline suspend`: a session's GPU memory is put out. */
#include "cli/cli.h"

#include "base/clock.h"

/* How long what runs may take to end, where nobody says. */
#define LIMIT_S 30
/* How long its memory may take on its way; the server gives up at the same time. */
#define MOVE_NS (600 * TOW_TIME_S)

static const struct tow_flag suspend_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {NULL, "--limit", "SECONDS", 'l'},
    {NULL, NULL, NULL, 0},
};

static int suspend_main(int argc, char **argv)
{
    struct tow_order order = {.command = &tow_command_suspend,
                              .topic = TOW_STATUS_SUSPEND,
                              .seconds = LIMIT_S,
                              .limit_ns = MOVE_NS,
                              .done = "has suspended"};
    return tow_order_main(&order, argc, argv);
}

const struct tow_command tow_command_suspend = {
    .name = "suspend",
    .summary = "put a session's GPU memory out; its program waits",
    .help = "towline suspend [-s ADDRESS] [--limit SECONDS] SESSION...: frees the GPU memory of "
            "sessions.\n"
            "\n"
            "  towline status\n"
            "  towline suspend 17\n"
            "  towline resume 17\n"
            "\n"
            "What the session has on the GPU is kept in the server's host memory, and the GPU's is "
            "free for others.\n"
            "The program waits at its next call that needs the GPU, and is told so on stderr. "
            "towline resume lets\n"
            "it go on, with every address and handle as before. towline end ends it as any other.\n"
            "Kernels, copies and host functions that run end first. --limit says how long they may "
            "take (30 s). If\n"
            "that is too short the session goes on, and a sentence says what kept it.\n"
            "It is refused for a session that shares GPU memory with other programs, and on "
            "NVIDIA's driver (570 or\n"
            "newer) for one with managed memory.\n"
            "Who may is who may end it: see towline end --help.\n"
            "Without -s: TOWLINE_SERVER, then the config file, then this machine's own socket.\n",
    .flags = suspend_flags,
    .run = suspend_main,
};
