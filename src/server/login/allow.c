/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the lists of users and groups, and compares a peer's credentials with them. */
#include "server/login/allow.h"

#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/config/config.h"

/* As many as Linux gives a process (NGROUPS_MAX): more memory than the stack of a thread of ours
 * should hold, so it is the listener's alone. */
enum { PEER_GROUPS_MAX = 65536 };

/* A number that stands for itself. The largest is what the kernel calls "none". */
static bool read_number(const char *word, uint32_t *ret_number)
{
    if (word[strspn(word, "0123456789")] != '\0' || strlen(word) > 10) {
        return false;
    }
    unsigned long long number = strtoull(word, NULL, 10);
    *ret_number = (uint32_t)number;
    return number < UINT32_MAX;
}

static bool find_user(const char *name, uint32_t *ret_number)
{
    const struct passwd *user = getpwnam(name);
    if (user != NULL) {
        *ret_number = user->pw_uid;
    }
    return user != NULL;
}

static bool find_group(const char *name, uint32_t *ret_number)
{
    const struct group *group = getgrnam(name);
    if (group != NULL) {
        *ret_number = group->gr_gid;
    }
    return group != NULL;
}

/* Words between commas and spaces into numbers. */
int tows_allow_read_list(const char *text, const char *setting, bool of_groups,
                         uint32_t ret_numbers[TOW_ALLOW_MAX], unsigned *ret_count, char *why,
                         size_t why_size)
{
    const char *what = of_groups ? "group" : "user";
    bool (*find)(const char *name, uint32_t *ret_number) = of_groups ? find_group : find_user;
    char words[TOW_CONFIG_WORDS_MAX];
    char *rest = words, *word;
    unsigned count = 0;
    snprintf(words, sizeof words, "%s", text);
    while ((word = strsep(&rest, ", \t")) != NULL) {
        if (*word == '\0') {
            continue;
        }
        if (count == TOW_ALLOW_MAX) {
            snprintf(why, why_size, "%s: at most %d can be named; name a group", setting,
                     TOW_ALLOW_MAX);
            return -EINVAL;
        }
        if (!read_number(word, &ret_numbers[count]) && !find(word, &ret_numbers[count])) {
            snprintf(why, why_size,
                     "%s: this machine has no %s \"%.64s\"; write names or numbers of %ss, with "
                     "commas between them",
                     setting, what, word, what);
            return -EINVAL;
        }
        count++;
    }
    if (count == 0 && *text != '\0') {
        /* A list of nothing would be no list: everybody. */
        snprintf(why, why_size, "%s: no %s is named; write one, or remove the setting", setting,
                 what);
        return -EINVAL;
    }
    *ret_count = count;
    return 0;
}

int tows_allow_read(const struct tows_config *config, struct tows_allow *ret_allow, char *why,
                    size_t why_size)
{
    struct tows_allow allow = {.anyone = config->allow_anyone != 0};
    if (config->private_dir[0] != '\0') {
        *ret_allow = allow; /* nobody else can open its folder */
        return 0;
    }
    int error = tows_allow_read_list(config->allow_users, "allow-users", false, allow.users,
                                     &allow.user_count, why, why_size);
    if (error == 0) {
        error = tows_allow_read_list(config->allow_groups, "allow-groups", true, allow.groups,
                                     &allow.group_count, why, why_size);
    }
    if (error == 0) {
        error = tows_allow_read_list(config->admin_users, "admin-users", false, allow.admins,
                                     &allow.admin_count, why, why_size);
    }
    if (error == 0) {
        *ret_allow = allow;
    }
    return error;
}

static bool list_has(const uint32_t *numbers, unsigned count, uint32_t number)
{
    for (unsigned i = 0; i < count; i++) {
        if (numbers[i] == number) {
            return true;
        }
    }
    return false;
}

bool tows_allow_rules(const struct tows_allow *allow, const struct tows_who *who, uid_t owner)
{
    return tows_who_rules(who, owner) ||
           (who->kind == TOW_WHO_USER && list_has(allow->admins, allow->admin_count, who->user));
}

bool tows_allow_in_groups(int fd, const uint32_t *named, unsigned count)
{
    static gid_t groups[PEER_GROUPS_MAX];
    struct ucred cred;
    socklen_t size = sizeof cred;
    if (count == 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0) {
        return false;
    }
    if (list_has(named, count, cred.gid)) {
        return true;
    }
    size = sizeof groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0) {
        return false;
    }
    for (size_t i = 0; i < size / sizeof *groups; i++) {
        if (list_has(named, count, groups[i])) {
            return true;
        }
    }
    return false;
}

bool tows_allow_lets_in(const struct tows_allow *allow, int fd, const struct tows_who *who,
                        uid_t owner)
{
    if (allow->user_count == 0 && allow->group_count == 0) {
        return true;
    }
    /* A token's user has logged in, where that is not needed any more. */
    if (tows_who_is_address(who) || who->kind == TOW_WHO_TOKEN) {
        return allow->anyone;
    }
    /* Numbers of other users and of their groups are not this machine's. */
    return who->kind == TOW_WHO_USER &&
           (tows_allow_rules(allow, who, owner) ||
            list_has(allow->users, allow->user_count, who->user) ||
            tows_allow_in_groups(fd, allow->groups, allow->group_count));
}

void tows_allow_explain(const struct tows_who *who, char *ret_sentence, size_t size)
{
    char text[TOW_WHO_TEXT_MAX];
    bool network = tows_who_is_address(who);
    snprintf(ret_sentence, size, "%s may not use this server%s; its administrator decides: %s",
             tows_who_text(who, text),
             network ? ", which knows users on its unix socket and nobody else" : "",
             network ? "require-token or allow-anyone in towlined.conf"
                     : "allow-users and allow-groups in towlined.conf");
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    return address->ss_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
            (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127));
}

bool tows_allow_is_open(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    memset(&address, 0, sizeof address);
    /* What cannot be told is taken for open. */
    return tows_who_is_by_network(fd) &&
           (getsockname(fd, (struct sockaddr *)&address, &length) != 0 || !is_loopback(&address));
}

int tows_allow_listen(const struct tows_config *config, int fd, const char *address, bool encrypted,
                      char *why, size_t why_size)
{
    if (config->allow_anyone != 0 || config->require_token != 0 || !tows_allow_is_open(fd) ||
        (encrypted && config->tls_client_ca[0] != '\0')) {
        return 0;
    }
    snprintf(why, why_size,
             "whoever reaches %s could use the GPU and run code on it: have people need a token "
             "(--require-token, or require-token = 1 in the config file)%s, or say that this is "
             "meant (--allow-anyone, or allow-anyone = 1), or listen on 127.0.0.1 only and let "
             "people come by ssh (-s ssh://HOST)",
             address, encrypted ? " or a certificate (--tls-client-ca=FILE)" : "");
    return -EPERM;
}
