/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that a program of ours reads: which there are, and what they may be. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/guess.h"
#include "base/log.h"
#include "base/size.h"
#include "transport/lanes.h"
#include "transport/limit.h"

enum kind {
    KIND_ANY,
    KIND_WORD,
    KIND_LANES,
    KIND_SHARE,
    KIND_SIZE,
    KIND_WAIT,
    KIND_LOG,
    KIND_FILE
};

struct variable {
    const char *name;
    enum kind kind;
    const char *words; /* of KIND_WORD: what it may be, "auto unix shm" */
    const char *write; /* what to write instead */
    bool logs;         /* whoever writes the log says it, too, and goes on */
};

static const struct variable variables[] = {
    {"TOWLINE_SERVER", KIND_ANY, NULL, NULL}, /* whoever connects says what is wrong with these */
    {"TOWLINE_DEVICE", KIND_ANY, NULL, NULL},
    {"TOWLINE_TOKEN", KIND_ANY, NULL, NULL},
    {"TOWLINE_TOKEN_FILE", KIND_ANY, NULL, NULL},
    {"TOWLINE_TLS_CA", KIND_ANY, NULL, NULL},
    {"TOWLINE_TLS_CERT", KIND_ANY, NULL, NULL},
    {"TOWLINE_TLS_KEY", KIND_ANY, NULL, NULL},
    {"TOWLINE_LOG", KIND_LOG, NULL, "for example TOWLINE_LOG=info or TOWLINE_LOG=warn,client=debug",
     true},
    {"TOWLINE_LOG_FORMAT", KIND_WORD, "text json", "text or json", true},
    {"TOWLINE_LOG_FILE", KIND_FILE, NULL, NULL},
    {"TOWLINE_TRACE", KIND_FILE, NULL, NULL},
    {"TOWLINE_TRACE_ERRORS", KIND_WORD, "0 1", "1 or 0"},
    {"TOWLINE_STATS", KIND_FILE, NULL, NULL},
    {"TOWLINE_TIMELINE", KIND_FILE, NULL, NULL},
    {"TOWLINE_TRANSPORT", KIND_WORD, "auto unix shm", "auto, unix or shm"},
    {"TOWLINE_GPU_MEMORY", KIND_SIZE, NULL, "a size, for example 8G"},
    {"TOWLINE_WAIT", KIND_WAIT, NULL, "90, 10m, 2h or 1d; 0: not at all"},
    {"TOWLINE_PRIORITY", KIND_WORD, "low normal high", "low, normal or high"},
    {"TOWLINE_EXCLUSIVE", KIND_WORD, "0 1", "1 or 0"},
    {"TOWLINE_SHARE", KIND_SHARE, NULL, "a number from 1 to 1000"},
    {"TOWLINE_LANES", KIND_LANES, NULL, "a number from 1 to 16"},
    {"TOWLINE_MANAGED", KIND_WORD, "compare track touch", "compare, track or touch, or nothing"},
    {"TOWLINE_SYNC", KIND_WORD, "0 1", "1 or 0"},
};
#define VARIABLE_COUNT (sizeof variables / sizeof *variables)

static bool environment_has_word(const char *words, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = words; *at != '\0'; at += at[strcspn(at, " ")] == ' ') {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, value, length) == 0) {
            return true;
        }
        at += word;
    }
    return false;
}

static bool environment_understands(const struct variable *variable, const char *value)
{
    char *end;
    switch (variable->kind) {
    case KIND_WORD:
        return environment_has_word(variable->words, value);
    case KIND_LANES: {
        long number = strtol(value, &end, 10);
        return *end == '\0' && number >= 0 && number <= (long)TOW_LANES_MAX + 1;
    }
    case KIND_SHARE: {
        uint32_t share;
        return tow_limit_parse_share(value, &share) == 0;
    }
    case KIND_SIZE: {
        uint64_t size;
        return tow_size_parse(value, &size) == 0;
    }
    case KIND_WAIT: {
        uint32_t wait_s;
        return tow_limit_parse_wait(value, &wait_s) == 0;
    }
    case KIND_LOG:
        return tow_log_understands(value);
    default:
        return true;
    }
}

/* 0, or -errno: whether a file of that name can be written, or made; `%p` is a process's number. */
static int environment_can_write(const char *text)
{
    char folder[PATH_MAX], path[PATH_MAX];
    const char *mark = strstr(text, "%p");
    snprintf(path, sizeof path, "%.*s%s", mark != NULL ? (int)(mark - text) : (int)strlen(text),
             text, mark != NULL ? mark + 1 : "");
    if (strcmp(path, "-") == 0 || access(path, W_OK) == 0) {
        return 0;
    }
    if (errno != ENOENT) {
        return -errno;
    }
    if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder) {
        return -ENAMETOOLONG;
    }
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        slash[slash == folder] = '\0';
    }
    return access(slash != NULL ? folder : ".", W_OK | X_OK) == 0 ? 0 : -errno;
}

static int environment_check_one(const struct variable *variable, const char *value, char *why,
                                 size_t why_size)
{
    if (value == NULL || value[0] == '\0') {
        return 0;
    }
    if (variable->kind == KIND_FILE) {
        int error = environment_can_write(value);
        if (error < 0) {
            snprintf(why, why_size, "%s: %s cannot be written: %s", variable->name, value,
                     strerror(-error));
        }
        return error;
    }
    if (!environment_understands(variable, value)) {
        snprintf(why, why_size, "%s=%s is not understood; write %s", variable->name, value,
                 variable->write);
        return -EINVAL;
    }
    return 0;
}

/* Names that are none of ours may be another program's, unless one of ours is near. */
static int environment_check_name(const char *entry, char *why, size_t why_size)
{
    static const char ours[] = "TOWLINE_";
    char name[64];
    size_t length = strcspn(entry, "=");
    if (strncmp(entry, ours, sizeof ours - 1) != 0 || length >= sizeof name) {
        return 0;
    }
    snprintf(name, sizeof name, "%.*s", (int)length, entry);
    struct tow_guess guess;
    tow_guess_init(&guess, name + sizeof ours - 1);
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        if (strcmp(name, variables[i].name) == 0) {
            return 0;
        }
        tow_guess_offer(&guess, variables[i].name + sizeof ours - 1);
    }
    if (guess.best == NULL) {
        return 0;
    }
    snprintf(why, why_size, "Towline reads no variable %s; did you mean %s%s?", name, ours,
             guess.best);
    return -ENOENT;
}

int tow_environment_check(tow_environment_said *said, void *user)
{
    int wrong = 0;
    char why[TOW_WHY_MAX];
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        const struct variable *variable = &variables[i];
        if (environment_check_one(variable, getenv(variable->name), why, sizeof why) < 0) {
            said(user, variable->logs ? TOW_VARIABLE_LOGS : TOW_VARIABLE_WRONG, why);
            wrong += !variable->logs;
        }
    }
    for (char **entry = environ; *entry != NULL; entry++) {
        if (environment_check_name(*entry, why, sizeof why) < 0) {
            said(user, TOW_VARIABLE_UNKNOWN, why);
        }
    }
    return wrong;
}
