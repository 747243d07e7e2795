/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a peer's user or address from its socket. */
#include "server/login/who.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

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
        return (struct tows_who){.kind = TOW_WHO_USER, .user = cred.uid};
    }
    return tows_who_at((const struct sockaddr *)&address);
}

bool tows_who_same(const struct tows_who *one, const struct tows_who *other)
{
    return one->kind == other->kind && one->user == other->user &&
           memcmp(one->address, other->address, sizeof one->address) == 0;
}

bool tows_who_rules(const struct tows_who *who, uid_t owner)
{
    return who->kind == TOW_WHO_USER && (who->user == 0 || who->user == owner);
}

bool tows_who_may_end(const struct tows_who *who, const struct tows_who *whose, uid_t owner)
{
    return tows_who_rules(who, owner) || (who->kind != TOW_WHO_NOBODY && tows_who_same(who, whose));
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
    case TOW_WHO_IPV4:
        inet_ntop(AF_INET, address, text, sizeof text);
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "%s", text);
        break;
    case TOW_WHO_IPV6:
        inet_ntop(AF_INET6, address, text, sizeof text);
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "%s/64", text);
        break;
    default:
        snprintf(ret_text, TOW_WHO_TEXT_MAX, "a peer without an address");
    }
    return ret_text;
}
