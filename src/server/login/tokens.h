/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a server knows: a file that only its user can read, with what checks a token and
 * nothing that would log anybody in. */
#ifndef TOW_SERVER_TOKENS_H
#define TOW_SERVER_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "server/login/who.h"
#include "wire/login.h"

struct tows_config;

enum {
    TOW_TOKENS_MAX = 4096,
    TOW_TOKEN_FILE_MAX = 2 << 20,
};

struct tows_token {
    uint64_t id;
    struct tow_login_keys keys;
    char user[TOW_WHO_NAME_MAX + 1];
    char class[TOW_WHO_NAME_MAX + 1]; /* "": none */
    int64_t created_s;                /* seconds since 1970 */
    int64_t expires_s;                /* 0: never */
};

struct tows_tokens {
    struct tows_token *list; /* owned */
    unsigned count;
};

/* Where they are: `token-file`, or /var/lib/towline/tokens as root, $XDG_STATE_HOME/towline/tokens
 * or ~/.local/state/towline/tokens otherwise. */
int tows_tokens_path(const struct tows_config *config, char *ret_path, size_t size, char *why,
                     size_t why_size);

/* Reads the file; one that is not there has no tokens. An error with one sentence in `why`: it
 * cannot be read or understood, or somebody else could write or read it. */
int tows_tokens_load(const char *path, struct tows_tokens *ret_tokens, char *why, size_t why_size);
/* The same in two steps: a descriptor or -Exxx; and what was opened, which is closed. The file must
 * be root's or `owner`'s. */
int tows_tokens_open(const char *path);
/* For who hands it on: nothing but a file (-EINVAL) of root's or this process's user (-EACCES). */
int tows_tokens_open_checked(const char *path);
int tows_tokens_take(int fd, const char *path, uid_t owner, struct tows_tokens *ret_tokens,
                     char *why, size_t why_size);
void tows_tokens_fini(struct tows_tokens *tokens);

/* Changes the file as `change` changes the list: others who do the same wait, and readers see the
 * old or the new. Its error is given back, and nothing is written then. Makes the folder. */
int tows_tokens_change(const char *path,
                       int (*change)(void *user, struct tows_tokens *tokens, char *why,
                                     size_t why_size),
                       void *user, char *why, size_t why_size);

/* Adds one: -ENOSPC if there are too many. */
int tows_tokens_add(struct tows_tokens *tokens, const struct tows_token *token);
/* -ENOENT if there is none. */
int tows_tokens_remove(struct tows_tokens *tokens, uint64_t id);
const struct tows_token *tows_tokens_find(const struct tows_tokens *tokens, uint64_t id);

/* A name of a user or a class: 1 to 32 letters, digits and ._@-, the first no dash. */
bool tows_tokens_name_is_right(const char *name);

#endif
