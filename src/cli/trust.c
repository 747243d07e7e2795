/* SPDX-License-Identifier: Apache-2.0 */
/* `towline trust`: remembers the key of a server, as ssh remembers its hosts'. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/address.h"
#include "transport/known_servers.h"
#include "transport/tls_dial.h"

/* What is asked for. */
struct trust_order {
    char address[TOW_ADDRESS_MAX];
    struct tow_tls_print named; /* the key that it must be */
    bool names, replaces;
};

/* What is there. */
struct trust_found {
    char name[TOW_ADDRESS_MAX], path[PATH_MAX];
    char text[TOW_TLS_PRINT_TEXT + 1]; /* of the server's key */
    struct tow_tls_print print;
    bool known, same; /* a key of this address is known: this one */
};

static int trust_look(const struct trust_order *order, struct trust_found *ret_found, char *why,
                      size_t why_size)
{
    struct tow_tls_print known;
    int64_t deadline_ns = tow_time_deadline(TOW_CONNECT_TIMEOUT_NS);
    int error = tow_known_servers_path(ret_found->path, why, why_size);
    if (error == 0) {
        error = tow_tls_ask_print(order->address, deadline_ns, why, why_size, ret_found->name,
                                  &ret_found->print);
    }
    if (error < 0) {
        return error;
    }
    tow_tls_print_write(&ret_found->print, ret_found->text);
    error = tow_known_servers_find(ret_found->path, ret_found->name, &known, why, why_size);
    ret_found->known = error == 0;
    ret_found->same = error == 0 && tow_hash_equal(known.bytes, ret_found->print.bytes);
    return error == -ENOENT ? 0 : error;
}

/* Asks as ssh does: yes, no, or the key itself. Nothing else, and no end of the input, is a yes. */
static bool trust_ask(const struct trust_order *order, const struct trust_found *found)
{
    char line[256];
    struct tow_tls_print print;
    /* On stderr: what is printed may go elsewhere. */
    fprintf(stderr,
            "%s has the key %s%s\nIs it the one that the server's log names (\"its key for TLS is "
            "...\")? [yes/no/sha256:...] ",
            order->address, found->text,
            found->known ? ", and not the one that is known here" : "");
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, " \r\n")] = '\0';
        if (strcmp(line, "yes") == 0) {
            return true;
        }
        if (tow_tls_print_read(line, &print) == 0) {
            return tow_hash_equal(print.bytes, found->print.bytes);
        }
        if (strcmp(line, "no") == 0) {
            return false;
        }
        fprintf(stderr, "Write yes, no, or the key as the log has it: ");
    }
    return false;
}

/* Whether the key may be remembered; else it was said why not. */
static bool trust_decide(const struct trust_order *order, const struct trust_found *found)
{
    bool terminal = isatty(STDIN_FILENO) && (isatty(STDOUT_FILENO) || isatty(STDERR_FILENO));
    if (order->names && !tow_hash_equal(order->named.bytes, found->print.bytes)) {
        tow_cli_say("%s has the key %s, and not the one that you named: it is not trusted; compare "
                    "both with the server's log (\"its key for TLS is ...\")",
                    order->address, found->text);
        return false;
    }
    if (found->known && !(order->replaces && (order->names || terminal))) {
        tow_cli_say("%s has the key %s, and not the one that is known here; if its administrator "
                    "says that this is right, run towline trust --replace %s %s",
                    order->address, found->text, order->address, found->text);
        return false;
    }
    if (!order->names && terminal && !trust_ask(order, found)) {
        tow_cli_say("%s is not trusted", order->address);
        return false;
    }
    return true;
}

static int trust_one(const struct trust_order *order)
{
    char why[TOW_WHY_MAX] = "";
    struct trust_found found = {.known = false};
    int error = trust_look(order, &found, why, sizeof why);
    if (error == 0 && found.same &&
        (!order->names || tow_hash_equal(order->named.bytes, found.print.bytes))) {
        printf("%s has the key %s, which is known already\n", order->address, found.text);
        return 0;
    }
    if (error == 0 && !trust_decide(order, &found)) {
        return TOW_EXIT_FAILED;
    }
    if (error < 0 ||
        tow_known_servers_put(found.path, found.name, &found.print, why, sizeof why) < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    printf("%s has the key %s\nIt is trusted from now on (%s).%s\n", order->address, found.text,
           found.path,
           order->names ? ""
                        : " Compare it with what the server's log says: \"its key for TLS is "
                          "...\"");
    return 0;
}

static const struct tow_flag trust_flags[] = {
    {NULL, "--replace", NULL, 'r'},
    {NULL, NULL, NULL, 0},
};

static int trust_main(int argc, char **argv)
{
    struct tow_flags flags = {.command = &tow_command_trust, .argc = argc, .argv = argv, .at = 1};
    const char *value;
    int key;
    struct trust_order order = {.names = false};
    char why[TOW_WHY_MAX];
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        order.replaces = true;
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (flags.words < 1 || flags.words > 2) {
        tow_cli_say("name one address: towline trust tls://HOST:PORT; see towline trust --help");
        return TOW_EXIT_USAGE;
    }
    if (tow_address_read(argv[1], order.address, why, sizeof why) < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_USAGE;
    }
    order.names = flags.words == 2;
    if (order.names && tow_tls_print_read(argv[2], &order.named) < 0) {
        tow_cli_say("%s is no key; write it as the server's log does: sha256: and 64 digits",
                    argv[2]);
        return TOW_EXIT_USAGE;
    }
    return trust_one(&order);
}

const struct tow_command tow_command_trust = {
    .name = "trust",
    .summary = "remember the key of a server for tls:// addresses",
    .help = "towline trust [--replace] ADDRESS [sha256:KEY]: trusts the key of a server from now "
            "on.\n"
            "\n"
            "  towline trust tls://gpuhost:4838 sha256:6b1f...\n"
            "  towline run -s tls://gpuhost:4838 -- python3 train.py\n"
            "\n"
            "The server's log names its key when it starts, and the whole command. With the key, "
            "no other\n"
            "one is trusted. Without it: on a terminal it is shown, and you are asked; in a script "
            "the\n"
            "first key of an address is trusted as it is, and shown for you to compare. Keys are "
            "kept in\n"
            "~/.config/towline/known_servers; an administrator may put those that everybody trusts "
            "into\n"
            "/etc/towline/known_servers. A server whose key has changed is not used, and not "
            "trusted\n"
            "again without --replace and, in a script, the key. Where TOWLINE_TLS_CA names a file "
            "of\n"
            "authorities, their certificates decide instead.\n",
    .flags = trust_flags,
    .run = trust_main,
};
