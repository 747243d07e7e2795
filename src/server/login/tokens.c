/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the file of tokens: a line for each, words with one space between them. */
#include "server/login/tokens.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "server/config/config.h"

#define HEAD "towline tokens 1\n"
#define NO_FILE "%s is not a file; token-file names another"

int tows_tokens_path(const struct tows_config *config, char *ret_path, size_t size, char *why,
                     size_t why_size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (config->token_file[0] != '\0') {
        length = snprintf(ret_path, size, "%s", config->token_file);
    } else if (geteuid() == 0) {
        length = snprintf(ret_path, size, "/var/lib/towline/tokens");
    } else if (state != NULL && state[0] == '/') {
        length = snprintf(ret_path, size, "%s/towline/tokens", state);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(ret_path, size, "%s/.local/state/towline/tokens", home);
    }
    if (config->token_file[0] != '\0' && ret_path[0] != '/') {
        snprintf(why, why_size, "token-file = %.512s does not begin with /; write the whole path",
                 ret_path);
        return -EINVAL;
    }
    if (length < 0 || (size_t)length >= size || ret_path[0] != '/') {
        snprintf(why, why_size,
                 "no place for tokens is known; name a file with token-file = /PATH");
        return -EINVAL;
    }
    return 0;
}

bool tows_tokens_name_is_right(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c > 127 || (!isalnum(c) && strchr("._@-", c) == NULL)) {
            return false;
        }
    }
    return length >= 1 && length <= TOW_WHO_NAME_MAX && name[0] != '-';
}

/* ---- reading ---- */

static bool read_number(const char *text, int base, uint64_t *ret_number)
{
    char *end;
    errno = 0;
    *ret_number = strtoull(text, &end, base);
    return isxdigit((unsigned char)*text) && *end == '\0' && errno == 0;
}

/* One line without its end; false: it is none of ours. */
static bool read_token(char *line, struct tows_token *ret_token)
{
    enum { ID, STORED, SERVER, USER, CLASS, CREATED, EXPIRES, WORDS };
    char *words[WORDS];
    struct tows_token token = {0};
    uint64_t created, expires;
    for (int i = 0; i < WORDS; i++) {
        words[i] = strsep(&line, " ");
        if (words[i] == NULL) {
            return false;
        }
    }
    bool classed = strcmp(words[CLASS], "-") != 0;
    if (line != NULL || !read_number(words[ID], 16, &token.id) || token.id == 0 ||
        !tow_login_read_key(words[STORED], token.keys.stored) ||
        !tow_login_read_key(words[SERVER], token.keys.server) ||
        !tows_tokens_name_is_right(words[USER]) ||
        (classed && !tows_tokens_name_is_right(words[CLASS])) ||
        !read_number(words[CREATED], 10, &created) || !read_number(words[EXPIRES], 10, &expires) ||
        created > INT64_MAX || expires > INT64_MAX) {
        return false;
    }
    snprintf(token.user, sizeof token.user, "%s", words[USER]);
    snprintf(token.class, sizeof token.class, "%s", classed ? words[CLASS] : "");
    token.created_s = (int64_t)created;
    token.expires_s = (int64_t)expires;
    *ret_token = token;
    return true;
}

static int read_tokens(char *text, const char *path, struct tows_tokens *tokens, char *why,
                       size_t why_size)
{
    char *line;
    unsigned number = 1;
    if (strncmp(text, HEAD, strlen(HEAD)) != 0) {
        snprintf(why, why_size, "%s is not a file of tokens; token-file names another, or move it",
                 path);
        return -EINVAL;
    }
    text += strlen(HEAD);
    while ((line = strsep(&text, "\n")) != NULL) {
        struct tows_token token;
        number++;
        if (*line == '\0' && text == NULL) {
            break;
        }
        if (!read_token(line, &token) || tows_tokens_find(tokens, token.id) != NULL) {
            snprintf(why, why_size, "%s:%u cannot be understood; remove the line", path, number);
            return -EINVAL;
        }
        int error = tows_tokens_add(tokens, &token);
        if (error < 0) {
            snprintf(why, why_size, "%s: %s", path, strerror(-error));
            return error;
        }
    }
    return 0;
}

/* Whose file it is, and who can read it. */
static int check_file(int fd, const char *path, uid_t owner, char *why, size_t why_size)
{
    struct stat file;
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
        snprintf(why, why_size, NO_FILE, path);
        return -EINVAL;
    }
    if (file.st_uid != owner && file.st_uid != 0) {
        snprintf(why, why_size,
                 "%s belongs to user %u, who could let anybody in; chown it to user %u", path,
                 (unsigned)file.st_uid, (unsigned)owner);
        return -EPERM;
    }
    if ((file.st_mode & 077) != 0) {
        snprintf(why, why_size, "others may use %s; run chmod 600 %s", path, path);
        return -EPERM;
    }
    return 0;
}

static int read_all(int fd, struct tow_buf *text)
{
    for (;;) {
        uint8_t *at;
        int error = tow_buf_extend(text, 4096, &at);
        if (error < 0) {
            return error;
        }
        ssize_t n = read(fd, at, 4096);
        text->size -= 4096 - (size_t)(n > 0 ? n : 0);
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n == 0) {
            return tow_buf_append(text, "", 1);
        }
    }
}

int tows_tokens_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int tows_tokens_open_checked(const char *path)
{
    struct stat file;
    int fd = tows_tokens_open(path);
    if (fd < 0) {
        return fd;
    }
    int error = fstat(fd, &file) != 0                          ? -errno
                : !S_ISREG(file.st_mode)                       ? -EINVAL
                : file.st_uid != geteuid() && file.st_uid != 0 ? -EACCES
                                                               : 0;
    if (error < 0) {
        close(fd);
        return error;
    }
    return fd;
}

int tows_tokens_load(const char *path, struct tows_tokens *ret_tokens, char *why, size_t why_size)
{
    return tows_tokens_take(tows_tokens_open(path), path, geteuid(), ret_tokens, why, why_size);
}

int tows_tokens_take(int fd, const char *path, uid_t owner, struct tows_tokens *ret_tokens,
                     char *why, size_t why_size)
{
    struct tows_tokens tokens = {0};
    struct tow_buf text;
    if (fd == -ENOENT) {
        *ret_tokens = tokens;
        return 0;
    }
    if (fd == -EINVAL) {
        snprintf(why, why_size, NO_FILE, path);
        return fd;
    }
    if (fd == -EACCES) {
        snprintf(why, why_size, "%s cannot be read: %s; it is to belong to user %u", path,
                 strerror(EACCES), (unsigned)owner);
        return fd;
    }
    if (fd < 0) {
        snprintf(why, why_size, "%s cannot be read: %s", path, strerror(-fd));
        return fd;
    }
    tow_buf_init(&text, TOW_TOKEN_FILE_MAX);
    int error = check_file(fd, path, owner, why, why_size);
    if (error == 0) {
        error = read_all(fd, &text);
        if (error < 0) {
            snprintf(why, why_size, "%s cannot be read: %s", path, strerror(-error));
        } else if (strlen((const char *)text.data) + 1 != text.size) {
            snprintf(why, why_size, "%s is not a text", path);
            error = -EINVAL;
        } else {
            error = read_tokens((char *)text.data, path, &tokens, why, why_size);
        }
    }
    close(fd);
    tow_buf_fini(&text);
    if (error < 0) {
        tows_tokens_fini(&tokens);
        return error;
    }
    *ret_tokens = tokens;
    return 0;
}

void tows_tokens_fini(struct tows_tokens *tokens)
{
    free(tokens->list);
    *tokens = (struct tows_tokens){0};
}

/* ---- the list ---- */

const struct tows_token *tows_tokens_find(const struct tows_tokens *tokens, uint64_t id)
{
    for (unsigned i = 0; i < tokens->count; i++) {
        if (tokens->list[i].id == id) {
            return &tokens->list[i];
        }
    }
    return NULL;
}

int tows_tokens_add(struct tows_tokens *tokens, const struct tows_token *token)
{
    if (tokens->count == TOW_TOKENS_MAX) {
        return -ENOSPC;
    }
    struct tows_token *list = realloc(tokens->list, (tokens->count + 1) * sizeof *list);
    if (list == NULL) {
        return -ENOMEM;
    }
    tokens->list = list;
    list[tokens->count++] = *token;
    return 0;
}

int tows_tokens_remove(struct tows_tokens *tokens, uint64_t id)
{
    for (unsigned i = 0; i < tokens->count; i++) {
        if (tokens->list[i].id == id) {
            memmove(&tokens->list[i], &tokens->list[i + 1],
                    (tokens->count - i - 1) * sizeof *tokens->list);
            tokens->count--;
            return 0;
        }
    }
    return -ENOENT;
}

/* ---- changing the file ---- */

static void sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

static int tokens_save(const char *path, const struct tows_tokens *tokens)
{
    struct tow_buf text;
    tow_buf_init(&text, TOW_TOKEN_FILE_MAX);
    int error = tow_buf_append(&text, HEAD, strlen(HEAD));
    for (unsigned i = 0; i < tokens->count && error == 0; i++) {
        const struct tows_token *token = &tokens->list[i];
        char line[512], stored[2 * TOW_LOGIN_SIZE + 1], server[2 * TOW_LOGIN_SIZE + 1];
        tow_sha256_hex(token->keys.stored, stored);
        tow_sha256_hex(token->keys.server, server);
        int length = snprintf(
            line, sizeof line, "%016" PRIx64 " %s %s %s %s %" PRIi64 " %" PRIi64 "\n", token->id,
            stored, server, token->user, token->class[0] == '\0' ? "-" : token->class,
            token->created_s, token->expires_s);
        error = tow_buf_append(&text, line, (size_t)length);
    }
    if (error == 0) {
        error = tow_file_write_atomic(path, text.data, text.size, 0600);
    }
    tow_buf_fini(&text);
    if (error == 0) {
        /* A revoked token must not come back with the power. */
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%s", path);
        sync_path(folder);
        *strrchr(folder, '/') = '\0';
        sync_path(folder[0] == '\0' ? "/" : folder);
    }
    return error;
}

int tows_tokens_change(const char *path,
                       int (*change)(void *user, struct tows_tokens *tokens, char *why,
                                     size_t why_size),
                       void *user, char *why, size_t why_size)
{
    struct tows_tokens tokens = {0};
    int lock = tow_file_lock(path);
    if (lock < 0) {
        snprintf(why, why_size, "%s.lock: %s", path, strerror(-lock));
        return lock;
    }
    int error = tows_tokens_load(path, &tokens, why, why_size);
    if (error == 0) {
        error = change(user, &tokens, why, why_size);
        if (error == 0 && (error = tokens_save(path, &tokens)) < 0) {
            snprintf(why, why_size, "%s cannot be written: %s; it is as it was", path,
                     strerror(-error));
        }
    }
    tows_tokens_fini(&tokens);
    close(lock);
    return error;
}
