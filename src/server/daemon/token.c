/* SPDX-License-Identifier: Apache-2.0 */
/* Changes the file of tokens; the server notices by itself. */
#include "server/daemon/token.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/login/tokens.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, WORDS_MAX = 64 };

static const char help[] =
    "towlined token create --user NAME [--class CLASS] [--expires 30d]\n"
    "towlined token list\n"
    "towlined token revoke ID\n"
    "\n"
    "A token lets its owner use the server over TCP (see --require-token). `create` shows it this\n"
    "once: its owner keeps it in ~/.config/towline/token, or in a file that TOWLINE_TOKEN_FILE "
    "names,\n"
    "which only he can read. Names have letters, digits and ._@-, at most 32. A time is a number "
    "and\n"
    "m, h, d or w (minutes to weeks); without it the token does not expire. `revoke` ends programs "
    "of\n"
    "the token that run, too.\n"
    "\n"
    "With --config or --token-file as the server has them.\n";

/* What was asked for. */
struct order {
    const char *user, *class, *expires; /* borrowed from argv; NULL: not given */
    const char *id;
    struct tows_token token; /* to be added; or the id to be removed */
};

static int add_token(void *user, struct tows_tokens *tokens, char *why, size_t why_size)
{
    const struct order *order = user;
    int error = tows_tokens_find(tokens, order->token.id) != NULL
                    ? -EEXIST
                    : tows_tokens_add(tokens, &order->token);
    if (error == -ENOSPC) {
        snprintf(why, why_size, "there are %d tokens already; revoke some", TOW_TOKENS_MAX);
    } else if (error < 0) {
        snprintf(why, why_size, "the token cannot be added: %s", strerror(-error));
    }
    return error;
}

static int remove_token(void *user, struct tows_tokens *tokens, char *why, size_t why_size)
{
    const struct order *order = user;
    int error = tows_tokens_remove(tokens, order->token.id);
    if (error < 0) {
        snprintf(why, why_size, "there is no token %s; towlined token list shows them", order->id);
    }
    return error;
}

/* "30d" into seconds from now. */
static int read_expiry(const char *text, int64_t now_s, int64_t *ret_moment_s)
{
    static const char units[] = "mhdw";
    static const int64_t seconds[] = {60, 3600, 86400, 7 * 86400};
    char *end;
    errno = 0;
    long count = strtol(text, &end, 10);
    const char *unit = *end == '\0' ? NULL : strchr(units, *end);
    if (errno != 0 || text[0] < '1' || text[0] > '9' || unit == NULL || end[1] != '\0' ||
        count > 100000) {
        return -EINVAL;
    }
    *ret_moment_s = now_s + count * seconds[unit - units];
    return 0;
}

static int token_create(const char *path, struct order *order, char *why, size_t why_size)
{
    struct tows_token *token = &order->token;
    struct tow_login_token secret;
    char text[TOW_LOGIN_TEXT_SIZE + 1];
    token->created_s = time(NULL);
    if (order->user == NULL || !tows_tokens_name_is_right(order->user) ||
        (order->class != NULL && !tows_tokens_name_is_right(order->class))) {
        snprintf(why, why_size, "--user%s needs a name: letters, digits and ._@-, at most %d",
                 order->user == NULL || order->class == NULL ? "" : " or --class",
                 TOW_WHO_NAME_MAX);
        return -EINVAL;
    }
    if (order->expires != NULL &&
        read_expiry(order->expires, token->created_s, &token->expires_s) < 0) {
        snprintf(why, why_size,
                 "--expires needs a time: a number and m, h, d or w, for example 30d");
        return -EINVAL;
    }
    snprintf(token->user, sizeof token->user, "%s", order->user);
    snprintf(token->class, sizeof token->class, "%s", order->class == NULL ? "" : order->class);
    if (getrandom(&secret, sizeof secret, 0) != (ssize_t)sizeof secret || secret.id == 0) {
        snprintf(why, why_size, "this machine gives no random numbers: %s", strerror(errno));
        return -EIO;
    }
    token->id = secret.id;
    tow_login_keep(&secret, &token->keys);
    int error = tows_tokens_change(path, add_token, order, why, why_size);
    if (error == 0) {
        tow_login_write(&secret, text);
        printf("%s\n", text);
        explicit_bzero(text, sizeof text);
        if (fflush(stdout) != 0) {
            /* Nobody has it. */
            snprintf(why, why_size, "the token cannot be shown: %s; it was removed",
                     strerror(errno));
            char ignored[512];
            tows_tokens_change(path, remove_token, order, ignored, sizeof ignored);
            explicit_bzero(&secret, sizeof secret);
            return -EIO;
        }
        fprintf(stderr,
                "towlined: token %016" PRIx64 " of %s is in %s. What is printed is not kept: give "
                "it to its owner.\n",
                token->id, token->user, path);
    }
    explicit_bzero(&secret, sizeof secret);
    return error;
}

static void day_text(int64_t moment_s, char *ret_text, size_t size)
{
    time_t moment = (time_t)moment_s;
    struct tm day;
    if (moment_s == 0 || gmtime_r(&moment, &day) == NULL ||
        strftime(ret_text, size, "%Y-%m-%dT%H:%MZ", &day) == 0) {
        snprintf(ret_text, size, "never");
    }
}

static int token_list(const char *path, char *why, size_t why_size)
{
    struct tows_tokens tokens;
    int error = tows_tokens_load(path, &tokens, why, why_size);
    if (error < 0) {
        return error;
    }
    printf("%-16s  %-17s  %-17s  %-12s  %s\n", "ID", "CREATED", "EXPIRES", "CLASS", "USER");
    for (unsigned i = 0; i < tokens.count; i++) {
        const struct tows_token *token = &tokens.list[i];
        char created[32], expires[32];
        day_text(token->created_s, created, sizeof created);
        day_text(token->expires_s, expires, sizeof expires);
        printf("%016" PRIx64 "  %-17s  %-17s  %-12s  %s\n", token->id, created, expires,
               token->class[0] == '\0' ? "-" : token->class, token->user);
    }
    tows_tokens_fini(&tokens);
    return 0;
}

static int token_revoke(const char *path, struct order *order, char *why, size_t why_size)
{
    char *end = NULL;
    errno = 0;
    order->token.id = order->id == NULL ? 0 : strtoull(order->id, &end, 16);
    if (order->token.id == 0 || errno != 0 || *end != '\0') {
        snprintf(why, why_size, "write towlined token revoke ID; towlined token list shows them");
        return -EINVAL;
    }
    int error = tows_tokens_change(path, remove_token, order, why, why_size);
    if (error == 0) {
        printf("Token %s is revoked; the server ends what runs with it.\n", order->id);
    }
    return error;
}

/* Takes the words that are not the server's settings out of argv. */
static int take_words(int *argc, char **argv, struct order *order)
{
    static const char *const names[] = {"--user", "--class", "--expires"};
    const char **values[] = {&order->user, &order->class, &order->expires};
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        size_t which = 0, length = 0;
        for (; which < 3; which++) {
            length = strlen(names[which]);
            if (strncmp(argv[i], names[which], length) == 0 &&
                (argv[i][length] == '\0' || argv[i][length] == '=')) {
                break;
            }
        }
        if (which == 3) {
            bool word = argv[i][0] != '-' && order->id == NULL &&
                        (i == 1 || argv[i - 1][0] != '-' || strchr(argv[i - 1], '=') != NULL);
            if (word) {
                order->id = argv[i];
            } else {
                argv[kept++] = argv[i];
            }
        } else if (argv[i][length] == '=') {
            *values[which] = argv[i] + length + 1;
        } else if (i + 1 < *argc) {
            *values[which] = argv[++i];
        } else {
            return -EINVAL;
        }
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}

/* Root makes tokens for the server of another user, who could not read root's file: it acts as the
 * user whose folder it is, and can be led to nothing there that this user could not reach. A file
 * that is root's already stays so. */
static int token_become_owner(const char *path, char *why, size_t why_size)
{
    char folder[PATH_MAX];
    struct stat found;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    if (geteuid() != 0 || (lstat(path, &found) == 0 && found.st_uid == 0) ||
        stat(folder, &found) != 0 || found.st_uid == 0) {
        return 0;
    }
    if (setgroups(0, NULL) != 0 || setresgid(found.st_gid, found.st_gid, found.st_gid) != 0 ||
        setresuid(found.st_uid, found.st_uid, found.st_uid) != 0) {
        snprintf(why, why_size, "%s is a folder of user %u, and root cannot act as he: %s", folder,
                 (unsigned)found.st_uid, strerror(errno));
        return -EPERM;
    }
    return 0;
}

int tows_token_main(int argc, char **argv)
{
    static struct tows_config config;
    static struct order order;
    char why[512] = "", path[PATH_MAX];
    const char *verb = argc > 1 ? argv[1] : "";
    char *words[WORDS_MAX];
    if (argc > WORDS_MAX || argc < 2 || strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        fputs(help, argc < 2 ? stderr : stdout);
        return argc < 2 ? EXIT_USAGE : 0;
    }
    memcpy(words, argv + 1, (size_t)argc * sizeof *words); /* with the NULL at its end */
    argc--;
    int error = take_words(&argc, words, &order);
    int outcome = error < 0 ? error : tows_config_load(argc, words, &config, why, sizeof why);
    if (outcome == TOW_CONFIG_HELP) {
        fputs(help, stdout);
        return 0;
    }
    error = outcome < 0 ? outcome : tows_tokens_path(&config, path, sizeof path, why, sizeof why);
    error = error < 0 ? error : token_become_owner(path, why, sizeof why);
    if (error == 0 && strcmp(verb, "create") == 0 && order.id == NULL) {
        error = token_create(path, &order, why, sizeof why);
    } else if (error == 0 && strcmp(verb, "list") == 0 && order.id == NULL) {
        error = token_list(path, why, sizeof why);
    } else if (error == 0 && strcmp(verb, "revoke") == 0) {
        error = token_revoke(path, &order, why, sizeof why);
    } else if (why[0] == '\0') {
        snprintf(why, sizeof why, "this cannot be understood; see towlined token --help");
        error = -EINVAL;
    }
    if (error < 0) {
        fprintf(stderr, "towlined: %s.\n", why);
    }
    return error == 0 ? 0 : error == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
}
