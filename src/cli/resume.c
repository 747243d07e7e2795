/* SPDX-License-Identifier: Apache-2.0 */
/* `towline resume`: a session's GPU memory is taken in again. */
#include "cli/cli.h"

#include "base/clock.h"

/* How long its memory may take on its way; the server gives up at the same time. */
#define MOVE_NS (600 * TOW_TIME_S)

static const struct tow_flag resume_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {NULL, NULL, NULL, 0},
};

static int resume_main(int argc, char **argv)
{
    struct tow_order order = {.command = &tow_command_resume,
                              .topic = TOW_STATUS_RESUME,
                              .limit_ns = MOVE_NS,
                              .done = "has resumed"};
    return tow_order_main(&order, argc, argv);
}

const struct tow_command tow_command_resume = {
    .name = "resume",
    .summary = "let a suspended session go on",
    .help = "towline resume [-s ADDRESS] SESSION...: takes the GPU memory of suspended sessions in "
            "again.\n"
            "\n"
            "  towline resume 17\n"
            "\n"
            "Its program goes on where it waits. If the GPU's memory was promised to others "
            "meanwhile (overcommit =\n"
            "no, exclusive), it is refused, and the session stays suspended: try again later, or "
            "suspend another.\n"
            "Who may is who may end it: see towline end --help.\n"
            "Without -s: TOWLINE_SERVER, then the config file, then this machine's own socket.\n",
    .flags = resume_flags,
    .run = resume_main,
};
