/* SPDX-License-Identifier: Apache-2.0 */
/* What the subcommands of `towline` share. */
#ifndef TOW_CLI_CLI_H
#define TOW_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "transport/choose.h"

/* Exit codes of towline itself; `towline run` becomes the program and ends as it does. */
enum {
    TOW_EXIT_FAILED = 1,
    TOW_EXIT_USAGE = 2,
    TOW_EXIT_NOT_EXECUTABLE = 126,
    TOW_EXIT_NOT_FOUND = 127,
};

struct tow_command {
    const char *name;
    const char *summary;               /* one line for `towline --help` */
    const char *help;                  /* the whole of `towline NAME --help` */
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; the exit code */
};

extern const struct tow_command tow_command_run;
extern const struct tow_command tow_command_devices;
extern const struct tow_command tow_command_status;
extern const struct tow_command tow_command_end;
extern const struct tow_command tow_command_trust;
extern const struct tow_command tow_command_bench;
extern const struct tow_command tow_command_version;

/* "towline: " and a sentence on stderr. */
void tow_cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The folder of this program, and the folder of the libraries that belong to it; both have PATH_MAX
 * bytes. -ENOENT. */
int tow_cli_find_folders(char *ret_bin_dir, char *ret_lib_dir);

/* Makes a folder that is this user's alone, for sockets: in XDG_RUNTIME_DIR, TMPDIR or /tmp. */
enum { TOW_CLI_FOLDER_MAX = 80 }; /* "/sock" behind it must fit sockaddr_un's 108 bytes */
int tow_cli_make_folder(char ret_folder[TOW_CLI_FOLDER_MAX]);

/* Walks flags: the next of `argv`, "-s"/"--server" style. */
struct tow_flags {
    int argc;
    char **argv;
    int at; /* next word to look at */
};
/* True if the next word is this flag; then *ret_value is its value (NULL ret_value: it has none)
 * and the walk has moved on. A missing value: *ret_value is NULL. */
bool tow_flags_take(struct tow_flags *flags, const char *letter, const char *name,
                    const char **ret_value);

/* Chooses in the order of the manual: `flag` (may be NULL), TOWLINE_SERVER, the config files, the
 * default socket if it answers. Where a server is reached through ssh, that is started (tunnel.h).
 * `ret_address` has TOW_CLI_ADDRESS_MAX bytes. */
enum { TOW_CLI_ADDRESS_MAX = TOW_SERVERS_TEXT_MAX };
int tow_choose_server(const char *flag, char *ret_address, char *why, size_t why_size);

/* The whole of a subcommand that asks servers: takes -s and --json, gets each server's report
 * within 5 s, prints it or has it shown. The exit code. */
struct tow_json_doc;
typedef void tow_ask_show(const char *address, const struct tow_json_doc *report);
int tow_ask_main(int argc, char **argv, tow_ask_show *show);

/* "1.5 GiB", "12 KiB", "17 B". */
const char *tow_cli_bytes(double bytes, char text[16]);
/* "3 s", "12 min", "5 h", "3 d". */
const char *tow_cli_age(double seconds, char text[16]);

#endif
