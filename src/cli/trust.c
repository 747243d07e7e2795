/* SPDX-License-Identifier: Apache-2.0 */
/* `towline trust`: remembers the key of a server, as ssh remembers its hosts'. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/known_servers.h"
#include "transport/tls_dial.h"

static int trust_one(const char *address, bool replace)
{
    char name[TOW_ADDRESS_MAX], path[PATH_MAX], why[TOW_WHY_MAX] = "";
    char text[TOW_TLS_PRINT_TEXT + 1];
    struct tow_tls_print print, known;
    int64_t deadline_ns = tow_time_deadline(TOW_CONNECT_TIMEOUT_NS);
    int error = tow_known_servers_path(path, why, sizeof why);
    if (error == 0) {
        error = tow_tls_ask_print(address, deadline_ns, why, sizeof why, name, &print);
    }
    if (error < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    tow_tls_print_write(&print, text);
    error = tow_known_servers_find(path, name, &known, why, sizeof why);
    if (error == 0 && tow_hash_equal(known.bytes, print.bytes)) {
        printf("%s has the key %s, which is known already\n", address, text);
        return 0;
    }
    if (error == 0 && !replace) {
        tow_cli_say("%s has the key %s, and not the one that is known here; if its administrator "
                    "says that this is right, run towline trust --replace %s",
                    address, text, address);
        return TOW_EXIT_FAILED;
    }
    if (tow_known_servers_put(path, name, &print, why, sizeof why) < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    printf("%s has the key %s\nIt is trusted from now on (%s). Compare it with what the server's "
           "log says: \"its key for TLS is ...\"\n",
           address, text, path);
    return 0;
}

static int trust_main(int argc, char **argv)
{
    struct tow_flags flags = {argc, argv, 1};
    char address[TOW_ADDRESS_MAX], why[TOW_WHY_MAX];
    bool replace = false;
    while (tow_flags_take(&flags, NULL, "--replace", NULL)) {
        replace = true;
    }
    if (flags.at + 1 != argc || argv[flags.at][0] == '-') {
        tow_cli_say("name one address: towline trust tls://HOST:PORT; see towline trust --help");
        return TOW_EXIT_USAGE;
    }
    if (tow_address_read(argv[flags.at], address, why, sizeof why) < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_USAGE;
    }
    return trust_one(address, replace);
}

const struct tow_command tow_command_trust = {
    .name = "trust",
    .summary = "remember the key of a server for tls:// addresses",
    .help = "towline trust [--replace] ADDRESS: shows the key of a server and trusts it from now "
            "on.\n"
            "\n"
            "  towline trust tls://gpuhost:4838\n"
            "  towline run -s tls://gpuhost:4838 -- python3 train.py\n"
            "\n"
            "Compare the key with the one that the server's log names when it starts. Keys are "
            "kept in\n"
            "~/.config/towline/known_servers. A server whose key has changed is not used, and not "
            "trusted\n"
            "again without --replace. Where TOWLINE_TLS_CA names a file of authorities, their "
            "certificates\n"
            "decide instead.\n",
    .run = trust_main,
};
