/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a peer's user or address from its socket. */
#include "server/login/who.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tows_who tows_who_at(const struct sockaddr *address)
{
    struct tows_who who = {.kind = TOW_WHO_NOBODY};
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        who.kind = TOW_WHO_IPV4;
        memcpy(who.address, &in->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
        /* A socket for both families shows IPv4 like this. */
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in->sin6_addr);
        who.kind = mapped ? TOW_WHO_IPV4 : TOW_WHO_IPV6;
        memcpy(who.address, in->sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 8);
    }
    return who;
}

/* The lines of a file of /proc that begin with that word; false: it cannot be read. */
static bool read_lines(const char *path, const char *word, char *ret_text, size_t size)
{
    char line[256];
    size_t used = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    ret_text[0] = '\0';
    while (fgets(line, sizeof line, file) != NULL && used < size) {
        if (strncmp(line, word, strlen(word)) == 0) {
            used += (size_t)snprintf(ret_text + used, size - used, "%s", line);
        }
    }
    bool whole = !ferror(file) && used > 0 && used < size;
    fclose(file);
    return whole;
}

/* Whether /proc shows a process in one pid namespace only, which is then that of /proc itself. */
static bool is_flat(const char *process)
{
    char path[64], numbers[128];
    unsigned inner, more;
    snprintf(path, sizeof path, "/proc/%s/status", process);
    return read_lines(path, "NSpid:", numbers, sizeof numbers) &&
           sscanf(numbers, "NSpid: %u %u", &inner, &more) == 1;
}

/* Whether a process has this one's pid namespace, and its users are the same. The links in
 * /proc/PID/ns would say it, too, but only to who may trace that process. */
static bool is_beside_us(pid_t pid)
{
    char process[16], path[64], users[4096], ours[4096];
    snprintf(process, sizeof process, "%d", (int)pid);
    snprintf(path, sizeof path, "/proc/%s/uid_map", process);
    return pid > 0 && is_flat("self") && is_flat(process) &&
           read_lines(path, "", users, sizeof users) &&
           read_lines("/proc/self/uid_map", "", ours, sizeof ours) && strcmp(users, ours) == 0;
}

/* Whom the kernel shows instead of users that this user namespace does not have. */
static uid_t overflow_user(void)
{
    char text[32];
    return read_lines("/proc/sys/kernel/overflowuid", "", text, sizeof text)
               ? (uid_t)strtoul(text, NULL, 10)
               : 65534;
}

static struct tows_who who_is_user(const struct ucred *cred)
{
    struct tows_who who = {.kind = TOW_WHO_USER, .user = cred->uid};
    if (cred->uid == 0 && !is_beside_us(cred->pid)) {
        who.kind = TOW_WHO_OTHER_ROOT;
    } else if (cred->uid == overflow_user() &&
               (cred->uid != geteuid() || !is_beside_us(cred->pid))) {
        who = (struct tows_who){.kind = TOW_WHO_NOBODY};
    }
    return who;
}

struct tows_who tows_who_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    memset(&address, 0, sizeof address);
    if (getpeername(fd, (struct sockaddr *)&address, &length) != 0) {
        return (struct tows_who){.kind = TOW_WHO_NOBODY};
    }
    struct ucred cred;
    socklen_t size = sizeof cred;
    if (address.ss_family == AF_UNIX &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) == 0) {
        return who_is_user(&cred);
    }
    return tows_who_at((const struct sockaddr *)&address);
}

bool tows_who_is_by_network(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &length) != 0 ||
           address.ss_family != AF_UNIX;
}

bool tows_who_is_address(const struct tows_who *who)
{
    return who->kind == TOW_WHO_IPV4 || who->kind == TOW_WHO_IPV6;
}

bool tows_who_same(const struct tows_who *one, const struct tows_who *other)
{
    return one->kind == other->kind && one->user == other->user &&
           memcmp(one->address, other->address, sizeof one->address) == 0 &&
           strcmp(one->name, other->name) == 0;
}

bool tows_who_is_user(const struct tows_who *who)
{
    return who->kind == TOW_WHO_USER || who->kind == TOW_WHO_OTHER_ROOT ||
           who->kind == TOW_WHO_TOKEN;
}

bool tows_who_rules(const struct tows_who *who, uid_t owner)
{
    return who->kind == TOW_WHO_USER && (who->user == 0 || who->user == owner);
}

bool tows_who_may_end(const struct tows_who *who, const struct tows_who *whose, uid_t owner)
{
    return tows_who_rules(who, owner) || (tows_who_is_user(who) && tows_who_same(who, whose));
}

const char *tows_who_text(const struct tows_who *who, char ret_text[TOW_WHO_TEXT_MAX])
{
    uint8_t address[16] = {0};
    char text[INET6_ADDRSTRLEN] = "?";
    memcpy(address, who->address, sizeof who->address);
    switch (who->kind) {
    case TOW_WHO_USER:
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "user %u", who->user);
        break;
    case TOW_WHO_OTHER_ROOT:
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "root of a container");
        break;
    case TOW_WHO_WEB:
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "anyone (http)");
        break;
    case TOW_WHO_TOKEN:
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "%s (%s)", who->name,
                 who->certificate ? "certificate" : "token");
        break;
    case TOW_WHO_IPV4:
        inet_ntop(AF_INET, address, text, sizeof text);
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "%s", text);
        break;
    case TOW_WHO_IPV6:
        inet_ntop(AF_INET6, address, text, sizeof text);
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "%s/64", text);
        break;
    default:
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "a peer who is not known");
    }
    return ret_text;
}

const char *tows_who_name(const struct tows_who *who, char ret_name[TOW_WHO_TEXT_MAX])
{
    struct passwd entry, *found = NULL;
    char line[1024];
    snprintf(ret_name, TOW_WHO_TEXT_MAX, "%s", who->kind == TOW_WHO_TOKEN ? who->name : "");
    FILE *file = who->kind == TOW_WHO_USER ? fopen("/etc/passwd", "re") : NULL;
    if (file == NULL) {
        return ret_name;
    }
    while (fgetpwent_r(file, &entry, line, sizeof line, &found) == 0) {
        if (entry.pw_uid == who->user) {
            snprintf(ret_name, TOW_WHO_TEXT_MAX, "%s", entry.pw_name);
            break;
        }
    }
    fclose(file);
    return ret_name;
}
