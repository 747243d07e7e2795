/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a token where nobody else can, and answers a CHALLENGE with it. */
#include "transport/login.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "transport/secret_page.h"
#include "wire/handshake.h"

enum { TEXT_MAX = 1024 };

struct secret {
    struct tow_login_token token;
    char text[TEXT_MAX];
};

/* The token in a file. -ENOENT: there is no file. */
static int read_file(struct secret *secret, const char *path, char *why, size_t why_size)
{
    struct stat file;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = fd < 0 || fstat(fd, &file) != 0 ? -errno : 0;
    if (error < 0) {
        snprintf(why, why_size, "the token in %s cannot be read: %s", path, strerror(-error));
    } else if (!S_ISREG(file.st_mode)) {
        snprintf(why, why_size, "%s is not a file; write the token into one", path);
        error = -EINVAL;
    } else if ((file.st_mode & 077) != 0) {
        snprintf(why, why_size,
                 "others can read the token in %s; run chmod 600 %s, and have the token revoked if "
                 "others use this machine",
                 path, path);
        error = -EPERM;
    } else {
        ssize_t n = read(fd, secret->text, sizeof secret->text);
        error = n < 0 ? -errno : tow_login_read(secret->text, (size_t)n, &secret->token);
        if (error < 0) {
            snprintf(why, why_size,
                     "%s has no token; write into it what towlined token create printed", path);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return error;
}

static int read_own_file(struct secret *secret, char *why, size_t why_size)
{
    char path[PATH_MAX];
    return tow_file_user_config("token", path, sizeof path) < 0
               ? -ENOENT
               : read_file(secret, path, why, why_size);
}

static int secret_find(struct secret *secret, const char *address, char *why, size_t why_size)
{
    const char *named = getenv("TOWLINE_TOKEN_FILE"), *text = getenv("TOWLINE_TOKEN");
    if (named != NULL && named[0] != '\0') {
        return read_file(secret, named, why, why_size);
    }
    if (text != NULL && text[0] != '\0') {
        int error = tow_login_read(text, strlen(text), &secret->token);
        if (error < 0) {
            snprintf(why, why_size,
                     "TOWLINE_TOKEN is no token; it must be what towlined token create printed");
        }
        return error;
    }
    int error = read_own_file(secret, why, why_size);
    if (error == -ENOENT) {
        snprintf(
            why, why_size,
            "%s needs a token; ask the server's administrator for one (towlined token create), "
            "and put it into ~/.config/towline/token or into a file that TOWLINE_TOKEN_FILE "
            "names",
            address);
    }
    return error;
}

/* Waits for a whole frame. */
static int login_hear(struct tow_line *line, int64_t deadline_ns, const uint8_t **ret_at,
                      struct tow_frame *ret_frame)
{
    size_t available;
    int error = tow_line_peek(line, TOW_FRAME_HEADER, deadline_ns, ret_at, &available);
    if (error == 0) {
        error = tow_frame_read(*ret_at, ret_frame);
    }
    return error < 0 ? error
                     : tow_line_peek(line, ret_frame->length, deadline_ns, ret_at, &available);
}

static int login_say(struct tow_line *line, const void *bytes, size_t n)
{
    uint8_t *at = NULL;
    int error = tow_line_reserve(line, n, &at);
    if (error == 0) {
        memcpy(at, bytes, n);
        tow_line_commit_now(line, n);
    }
    return error;
}

/* What the server said of the proof. -ECONNREFUSED: it refuses, -EPERM: it is not the one. */
static int login_judge(struct tow_line *line, const char *address,
                       const struct tow_login_token *token, const struct tow_login_said *said,
                       int64_t deadline_ns, char *why, size_t why_size)
{
    const uint8_t *at;
    struct tow_frame frame;
    struct tow_refuse refuse;
    struct tow_proved proved;
    int error = login_hear(line, deadline_ns, &at, &frame);
    if (error < 0) {
        snprintf(why, why_size,
                 "%s asked for a token and then closed the connection, or was "
                 "silent; what does its log say?",
                 address);
        return error;
    }
    if (tow_refuse_decode(at, &frame, &refuse) == 0) {
        snprintf(why, why_size, "%s refuses: %s", address, refuse.sentence);
        return -ECONNREFUSED;
    }
    if (tow_proved_decode(at, &frame, &proved) < 0 ||
        !tow_login_trusts(token, said, proved.answer)) {
        snprintf(why, why_size,
                 "%s does not know the token that it asked for: it is not the server that made it, "
                 "and is not used; check the address",
                 address);
        return -EPERM;
    }
    tow_line_consume(line, frame.length);
    return 0;
}

/* Answers the CHALLENGE that is at the front of the line. What was said is in `ret_said` then. */
static int login_prove(struct tow_line *line, const char *address, const struct tow_preface *first,
                       const struct tow_login_token *token, int64_t deadline_ns, char *why,
                       size_t why_size, struct tow_login_said *ret_said)
{
    const uint8_t *at;
    struct tow_frame frame;
    struct tow_challenge challenge;
    struct tow_login_said said = {.id = token->id};
    struct tow_proof proof = {.id = token->id};
    _Alignas(8) uint8_t bytes[128];
    uint32_t length = 0;
    int error = login_hear(line, deadline_ns, &at, &frame);
    if (error == 0) {
        error = tow_challenge_decode(at, &frame, &challenge);
    }
    if (error == 0 &&
        getrandom(proof.nonce, sizeof proof.nonce, 0) != (ssize_t)sizeof proof.nonce) {
        error = -EIO;
    }
    if (error == 0) {
        tow_line_consume(line, frame.length);
        memcpy(said.server_nonce, challenge.nonce, sizeof challenge.nonce);
        memcpy(said.client_nonce, proof.nonce, sizeof proof.nonce);
        tow_login_first(first->bytes, first->size, line->binding, said.first);
        tow_login_prove(token, &said, proof.proof);
        error = tow_proof_encode(&proof, bytes, sizeof bytes, &length);
    }
    if (error == 0) {
        error = login_say(line, bytes, length);
    }
    if (error < 0) {
        snprintf(why, why_size, "logging in at %s: %s", address, strerror(-error));
        return error;
    }
    *ret_said = said;
    return login_judge(line, address, token, &said, deadline_ns, why, why_size);
}

int tow_login_do(struct tow_line *line, const char *address, const struct tow_preface *first,
                 int64_t deadline_ns, char *why, size_t why_size, uint8_t *ret_left)
{
    struct tow_login_said said;
    struct tow_login_keys keys;
    struct secret *secret = tow_secret_page_make(sizeof *secret);
    if (secret == NULL) {
        snprintf(why, why_size, "memory is used up");
        return -ENOMEM;
    }
    int error = secret_find(secret, address, why, why_size);
    /* A missing file and the like is nothing to try again. */
    error = error < 0 ? -EPERM : 0;
    if (error == 0) {
        error =
            login_prove(line, address, first, &secret->token, deadline_ns, why, why_size, &said);
    }
    if (error == 0 && ret_left != NULL) {
        tow_login_keep(&secret->token, &keys);
        tow_login_leave(&keys, &said, ret_left);
        explicit_bzero(&keys, sizeof keys);
    }
    tow_secret_page_forget(secret, sizeof *secret);
    if (error == 0 && (error = login_say(line, first->bytes, first->size)) < 0) {
        snprintf(why, why_size, "%s closed the connection after the login", address);
    }
    return error;
}

/* A server that has no room now may have some soon. */
static int resume_refused(const struct tow_refuse *refuse, char *why, size_t why_size)
{
    snprintf(why, why_size, "%s", refuse->sentence);
    return refuse->code == TOW_REFUSE_BUSY ? -EUSERS : -ESTALE;
}

int tow_login_resume(struct tow_line *line, const char *address, const struct tow_resume *resume,
                     const struct tow_login_token *secret, int64_t deadline_ns, char *why,
                     size_t why_size)
{
    _Alignas(8) uint8_t bytes[64];
    uint32_t length = 0;
    const uint8_t *at;
    struct tow_frame frame;
    struct tow_refuse refuse;
    struct tow_login_said said;
    snprintf(why, why_size, "the connection was closed at once");
    int error = tow_resume_encode(resume, bytes, sizeof bytes, &length);
    if (error == 0) {
        error = login_say(line, bytes, length);
    }
    if (error == 0) {
        error = login_hear(line, deadline_ns, &at, &frame);
    }
    if (error == 0 && tow_refuse_decode(at, &frame, &refuse) == 0) {
        return resume_refused(&refuse, why, why_size);
    }
    if (error == 0) {
        const struct tow_preface first = {bytes, length};
        error = login_prove(line, address, &first, secret, deadline_ns, why, why_size, &said);
    }
    if (error == -EPERM) {
        snprintf(why, why_size, "another server answers there, which does not know the session");
    }
    return error == -EPERM || error == -ECONNREFUSED ? -ESTALE : error;
}

int tow_login_go_on(struct tow_line *line, const struct tow_resume *resume, int64_t deadline_ns)
{
    _Alignas(8) uint8_t bytes[64];
    uint32_t length = 0;
    const uint8_t *at;
    struct tow_frame frame;
    struct tow_resume answer;
    int error = tow_resume_encode(resume, bytes, sizeof bytes, &length);
    if (error == 0) {
        error = login_say(line, bytes, length);
    }
    if (error == 0) {
        error = login_hear(line, deadline_ns, &at, &frame);
    }
    if (error == 0) {
        error = tow_resume_decode(at, &frame, &answer);
    }
    if (error == 0) {
        tow_line_consume(line, frame.length);
    }
    return error;
}
