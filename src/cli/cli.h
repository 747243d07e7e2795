/* SPDX-License-Identifier: Apache-2.0 */
/* What the subcommands of `towline` share. */
#ifndef TOW_CLI_CLI_H
#define TOW_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "transport/choose.h"

/* Exit codes of towline itself; `towline run` becomes the program and ends as it does. */
enum {
    TOW_EXIT_FAILED = 1,
    TOW_EXIT_USAGE = 2,
    TOW_EXIT_NOT_EXECUTABLE = 126,
    TOW_EXIT_NOT_FOUND = 127,
};

/* A flag of a subcommand. Its table ends with an entry that has no name. */
struct tow_flag {
    const char *letter; /* "-s"; NULL: none */
    const char *name;   /* "--server" */
    const char *value;  /* help's word for its value, "ADDRESS"; NULL: it takes none */
    int key;            /* what tow_flags_next() returns, above 0 */
};

struct tow_command {
    const char *name;
    const char *summary;               /* one line for `towline --help` */
    const char *help;                  /* the whole of `towline NAME --help` */
    const struct tow_flag *flags;      /* beside --help; NULL: none */
    bool leads;                        /* its first word begins another program's command line */
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; the exit code */
};

extern const struct tow_command tow_command_run;
extern const struct tow_command tow_command_check;
extern const struct tow_command tow_command_devices;
extern const struct tow_command tow_command_status;
extern const struct tow_command tow_command_top;
extern const struct tow_command tow_command_end;
extern const struct tow_command tow_command_suspend;
extern const struct tow_command tow_command_resume;
extern const struct tow_command tow_command_usage;
extern const struct tow_command tow_command_trust;
extern const struct tow_command tow_command_cdi;
extern const struct tow_command tow_command_bench;
extern const struct tow_command tow_command_doctor;
extern const struct tow_command tow_command_stats;
extern const struct tow_command tow_command_timeline;
extern const struct tow_command tow_command_version;

/* "towline: " and a sentence on stderr: something is wrong; or (tell) something is to be known. */
void tow_cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tow_cli_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What a terminal is told before a text in that colour, and TOW_PLAIN behind it. Empty where the
 * stream is no terminal, where NO_COLOR is set, and where TERM is dumb. */
enum tow_colour { TOW_PLAIN, TOW_BOLD, TOW_RED, TOW_GREEN, TOW_YELLOW };
const char *tow_cli_colour(FILE *out, enum tow_colour colour);

/* Prints the help of a subcommand. */
void tow_cli_help(const struct tow_command *command);

/* The folder of this program, and the folder of the libraries that belong to it; both have PATH_MAX
 * bytes. -ENOENT. */
int tow_cli_find_folders(char *ret_bin_dir, char *ret_lib_dir);

/* The file of a program that is named as on a command line: 0, or the exit code of one that cannot
 * be run, with a sentence. `ret_path` has PATH_MAX bytes. */
int tow_cli_find_program(const char *name, char *ret_path, char *why, size_t why_size);
/* What `towline run` sets for a program. `server` may be NULL: that stays. -ENOMEM. */
int tow_cli_set_environment(const char *lib_dir, const char *server);

/* Makes a folder that is this user's alone, for sockets: in XDG_RUNTIME_DIR, TMPDIR or /tmp. */
enum { TOW_CLI_FOLDER_MAX = 80 }; /* "/sock" behind it must fit sockaddr_un's 108 bytes */
int tow_cli_make_folder(char ret_folder[TOW_CLI_FOLDER_MAX]);

/* Walks the flags of `argv`. */
struct tow_flags {
    const struct tow_command *command;
    int argc;
    char **argv;
    int at;          /* next word to look at; begins with 1 */
    int words;       /* so many words that are no flags were found: argv[1] and on */
    int code;        /* at TOW_FLAG_STOP: the exit code */
    bool words_only; /* "--" was seen */
};
enum { TOW_FLAG_END = -1, TOW_FLAG_STOP = -2 };
/* The key of the next flag, with its value, or NULL if it takes none. TOW_FLAG_END: there is none;
 * where the command leads a program's command line, that begins at argv[at]. TOW_FLAG_STOP: help
 * was wanted, or a flag is wrong; it was said. */
int tow_flags_next(struct tow_flags *flags, const char **ret_value);
/* False, and it is said, if there were words. */
bool tow_flags_no_words(const struct tow_flags *flags);
/* The flag that `word` names ("-s", "-sVALUE", "--server", "--server=VALUE"), or NULL. */
const struct tow_flag *tow_flags_find(const struct tow_flag *known, const char *word);
/* Whether the next word is not the value of this one. */
bool tow_flags_stands_alone(const struct tow_flag *flag, const char *word);

/* Looks at all variables of the environment that Towline reads, and says each mistake. The number
 * of TOW_VARIABLE_WRONG. */
enum tow_variable_mistake {
    TOW_VARIABLE_WRONG,   /* its value is not understood, or cannot be written */
    TOW_VARIABLE_LOGS,    /* the same, and the log of every program says it */
    TOW_VARIABLE_UNKNOWN, /* there is none of that name, but a similar one */
};
typedef void tow_environment_said(void *user, enum tow_variable_mistake mistake, const char *why);
int tow_environment_check(tow_environment_said *said, void *user);

/* Chooses in the order of the manual: `flag` (may be NULL), TOWLINE_SERVER, the config files, the
 * default socket if it answers. Where a server is reached through ssh, that is started (tunnel.h).
 * `ret_address` has TOW_CLI_ADDRESS_MAX bytes. */
enum { TOW_CLI_ADDRESS_MAX = TOW_SERVERS_TEXT_MAX };
int tow_choose_server(const char *flag, char *ret_address, char *why, size_t why_size);

/* The same for a subcommand that asks servers; where there is none it is said, and false. */
bool tow_choose_to_ask(const struct tow_command *command, const char *flag,
                       char ret_address[TOW_CLI_ADDRESS_MAX]);

/* Orders a server to end a session; -Exxx with a sentence. */
int tow_end_session(const char *address, uint64_t session, char *why, size_t why_size);

/* The same for any order that names a session; `name` is the order's, as the report has it. */
int tow_order_session(const char *address, const char *name, const struct tow_status *order,
                      int64_t limit_ns, char *why, size_t why_size);

/* The whole of a subcommand that gives such an order. */
enum { TOW_ORDER_SECONDS_MAX = 3600 };
struct tow_order {
    const struct tow_command *command; /* its name is the order's, too */
    uint32_t topic;                    /* TOW_STATUS_END ... */
    uint64_t seconds;                  /* of --limit, where it has that and nobody says */
    int64_t limit_ns;                  /* how long the answer may take beside these */
    const char *done;                  /* "ends": what it says of the server */
};
int tow_order_main(struct tow_order *order, int argc, char **argv);

/* The whole of a subcommand that asks servers: takes -s, --json and --watch (tow_ask_flags), gets
 * each server's report within 5 s, prints it or has it shown. The exit code. */
struct tow_json_doc;
/* `first_gpu`: the number of the server's first GPU in a program that names all these servers. */
typedef void tow_ask_show(const char *address, const struct tow_json_doc *report,
                          unsigned first_gpu);
extern const struct tow_flag tow_ask_flags[];
int tow_ask_main(const struct tow_command *command, int argc, char **argv, tow_ask_show *show);

/* "1.5 GiB", "12 KiB", "17 B". */
const char *tow_cli_bytes(double bytes, char text[16]);
/* "3 s", "12 min", "5 h", "3 d". */
const char *tow_cli_age(double seconds, char text[16]);

#endif
