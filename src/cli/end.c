/* SPDX-License-Identifier: Apache-2.0 */
/* `towline end`: ends a session of a server. */
#include "cli/cli.h"

int tow_end_session(const char *address, uint64_t session, char *why, size_t why_size)
{
    const struct tow_status order = {.topics = TOW_STATUS_END, .session = session};
    return tow_order_session(address, "end", &order, TOW_CONNECT_TIMEOUT_NS, why, why_size);
}

static const struct tow_flag end_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {NULL, NULL, NULL, 0},
};

static int end_main(int argc, char **argv)
{
    struct tow_order order = {.command = &tow_command_end,
                              .topic = TOW_STATUS_END,
                              .limit_ns = TOW_CONNECT_TIMEOUT_NS,
                              .done = "ends"};
    return tow_order_main(&order, argc, argv);
}

const struct tow_command tow_command_end = {
    .name = "end",
    .summary = "end a session of a server",
    .help = "towline end [-s ADDRESS] SESSION...: ends sessions of a server.\n"
            "\n"
            "  towline status\n"
            "  towline end 17\n"
            "  towline end -s /run/user/1000/gpu.sock 17\n"
            "\n"
            "The program is told why, its CUDA calls fail with CUDA_ERROR_DEVICE_UNAVAILABLE, and "
            "what it had on\n"
            "the GPU is free. It goes on itself: end it there, if it does not.\n"
            "You may end your own sessions: on the server's machine, through its unix socket; with "
            "-s ssh://HOST;\n"
            "or over a network, with the token or certificate that they came with. Root, the user "
            "who runs the\n"
            "server and its admin-users may end all, through the unix socket.\n"
            "Without -s: TOWLINE_SERVER, then the config file, then this machine's own socket.\n",
    .flags = end_flags,
    .run = end_main,
};
