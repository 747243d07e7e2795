/* SPDX-License-Identifier: Apache-2.0 */
/* `towline doctor`: the servers that a program would use: where they are named, whether they
 * answer, what they are and whom they take us for, and whether there is a faster way to them. */
#include "cli/doctor.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_read.h"
#include "cli/private.h"
#include "transport/address.h"
#include "wire/control.h"
#include "wire/limits.h"

static bool server_begins(const char *address, const char *scheme)
{
    return strncmp(address, scheme, strlen(scheme)) == 0;
}

/* The host of SCHEME://HOST:PORT, without brackets. */
static void server_host(const char *address, char ret_host[256], char ret_port[16])
{
    const char *at = strstr(address, "://");
    at = at != NULL ? at + 3 : address;
    bool brackets = *at == '[';
    at += brackets;
    size_t length = strcspn(at, brackets ? "]" : ":");
    snprintf(ret_host, 256, "%.*s", (int)length, at);
    const char *port = strrchr(at + length, ':');
    snprintf(ret_port, 16, "%.15s",
             port != NULL                     ? port + 1
             : server_begins(address, "tls:") ? "4838"
                                              : "4837");
}

/* ---- what mends an address that does not answer ---- */

static void server_mend(struct tow_doctor *doctor, const char *address, int error, const char *why)
{
    char host[256], port[16], scheme[8];
    server_host(address, host, port);
    snprintf(scheme, sizeof scheme, "%.*s", (int)strcspn(address, ":"), address);
    const char *path = strstr(address, "://");
    path = path != NULL ? path + 3 : address;
    bool network = server_begins(address, "tcp:") || server_begins(address, "tls:");
    if (strstr(why, "needs a token") != NULL) {
        tow_doctor_mend(
            doctor, "towlined token create --user NAME on the server; write what it prints into "
                    "~/.config/towline/token, mode 0600");
    } else if (strstr(why, "chmod 600") != NULL) {
        const char *command = strstr(why, "chmod 600");
        tow_doctor_mend(doctor, "%.*s", (int)strcspn(command, ","), command);
    } else if (strstr(why, "towline trust") != NULL) {
        const char *command = strstr(why, "towline trust");
        tow_doctor_mend(doctor, "%.*s", (int)strcspn(command, ","), command);
    } else if (strstr(why, "libssl") != NULL) {
        tow_doctor_mend(doctor, "apt install libssl3");
    } else if (strstr(why, " refuses: ") != NULL || error == -EPERM) {
        tow_doctor_mend(doctor,
                        network ? "ask who runs the server: its log says what it refused"
                                : "towline status -s %s",
                        path);
    } else if (network && error == -ECONNREFUSED) {
        tow_doctor_mend(doctor, "towlined -l %s://0.0.0.0:%s --require-token on %s", scheme, port,
                        host);
    } else if (network && error == -EPROTO) {
        tow_doctor_mend(doctor, "ss -ltnp on %s shows the ports, and which of them is towlined's",
                        host);
    } else if (network && error == -ETIMEDOUT) {
        tow_doctor_mend(doctor, "ping %s; then look for a firewall before its port %s", host, port);
    } else if (network) {
        tow_doctor_mend(doctor, "ping %s", host);
    } else if (error == -EACCES) {
        tow_doctor_mend(doctor, "ls -l %s; whoever owns it can give you access", path);
    } else if (server_begins(address, "ssh:")) {
        tow_doctor_mend(doctor, "ssh %s ls -l /run/towline.sock", host);
    } else {
        tow_doctor_mend(doctor, "towlined -l unix://%s", path);
    }
}

/* ---- what a server that answers says ---- */

static void server_judge_version(struct tow_doctor *doctor, const char *shown, const char *version)
{
    if (strcmp(version, TOWLINE_VERSION) == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "version",
                       "%s answers: towlined %s, the same version as here", shown, version);
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "version",
                       "%s answers: towlined %s, and here is %s; a function that one side lacks "
                       "answers CUDA_ERROR_NOT_SUPPORTED",
                       shown, version, TOWLINE_VERSION);
        tow_doctor_mend(doctor, "install the same version on both sides, if a program needs it");
    }
}

/* Whether it would take one more program. */
static bool server_judge_room(struct tow_doctor *doctor, const char *shown,
                              const struct tow_json_doc *doc)
{
    const struct tow_json_value *root = doc->values;
    const struct tow_json_value *limits = tow_json_member(doc, root, "limits");
    const struct tow_json_value *own = tow_json_member(doc, limits, "sessions-per-peer");
    double busy = tow_json_number(doc, tow_json_member(doc, root, "workers"), "busy");
    double most = tow_json_number(doc, root, "max_sessions");
    if (tow_json_number(doc, root, "draining") != 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "room",
                       "%s is being drained: it serves no new programs", shown);
        tow_doctor_mend(doctor, "start another towlined there, or name another server with -s");
    } else if (most > 0 && busy >= most) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "room",
                       "%s serves %.0f programs, as many as it may; another one waits 20 s, and "
                       "then fails",
                       shown, busy);
        tow_doctor_mend(doctor, "towline end SESSION, or --max-sessions at the server");
    } else if (own != NULL && tow_json_number(doc, own, "limit") > 0 &&
               tow_json_number(doc, own, "used") >= tow_json_number(doc, own, "limit")) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "room",
                       "%s serves %.0f programs of yours, as many as one peer may have", shown,
                       tow_json_number(doc, own, "used"));
        tow_doctor_mend(doctor, "towline end SESSION, or --sessions-per-peer at the server");
    } else {
        return true;
    }
    return false;
}

static void server_judge_gpus(struct tow_doctor *doctor, const char *shown,
                              const struct tow_json_doc *doc)
{
    const struct tow_json_value *root = doc->values;
    const struct tow_json_value *devices = tow_json_member(doc, root, "devices"), *device = NULL;
    const char *failure = tow_json_text(doc, root, "failure");
    const char *backend = tow_json_text(doc, root, "backend");
    unsigned count = 0;
    char first[128] = "";
    while ((device = tow_json_next(doc, devices, device)) != NULL) {
        if (count++ == 0) {
            snprintf(first, sizeof first, "%s", tow_json_text(doc, device, "name"));
        }
    }
    if (failure[0] != '\0') {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "gpus", "%s has workers that do not start: %s",
                       shown, failure);
        tow_doctor_mend(doctor, "nvidia-smi on the server, or towlined --device soft");
        return;
    }
    if (count == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "gpus",
                       "%s does not say yet which GPUs it has: its first worker is starting",
                       shown);
        return;
    }
    tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "gpus", "%s has %u GPU%s: %s%s", shown, count,
                   count == 1 ? "" : "s", first, count == 1 ? "" : ", ...");
    if (strcmp(backend, "soft") == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "soft",
                       "that is the software GPU: right, but slow; PyTorch and NVIDIA's libraries "
                       "need a real GPU at the server");
    } else if (strcmp(backend, "dry") == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "soft",
                       "its kernels do nothing (--device dry): results are wrong");
        tow_doctor_mend(doctor, "towlined --device cuda at the server");
    }
}

/* ---- the way ---- */

/* Whether that host is this machine. */
static bool server_is_here(const char *host)
{
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    struct ifaddrs *own = NULL;
    bool here = false;
    if (getaddrinfo(host, NULL, &hints, &found) != 0) {
        return false;
    }
    if (getifaddrs(&own) != 0) {
        own = NULL;
    }
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)at->ai_addr;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)at->ai_addr;
        /* The loopback has more addresses than its interface. */
        here |= at->ai_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == 127;
        for (const struct ifaddrs *one = own; one != NULL; one = one->ifa_next) {
            if (one->ifa_addr == NULL || one->ifa_addr->sa_family != at->ai_family) {
                continue;
            }
            const struct sockaddr_in *own4 = (const struct sockaddr_in *)one->ifa_addr;
            const struct sockaddr_in6 *own6 = (const struct sockaddr_in6 *)one->ifa_addr;
            here |= at->ai_family == AF_INET
                        ? v4->sin_addr.s_addr == own4->sin_addr.s_addr
                        : memcmp(&v6->sin6_addr, &own6->sin6_addr, sizeof v6->sin6_addr) == 0;
        }
    }
    freeaddrinfo(found);
    freeifaddrs(own);
    return here;
}

/* Of a unix socket the trial program says later what became of it. */
static void server_judge_way(struct tow_doctor *doctor, const char *address, const char *shown)
{
    char host[256], port[16];
    bool tls = server_begins(address, "tls:");
    server_host(address, host, port);
    if (server_begins(address, "ssh:")) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "way",
                       "%s goes through ssh, which is slower than tls:// for copies of 64 KiB and "
                       "more",
                       shown);
        tow_doctor_mend(doctor,
                        "towlined -l tls://0.0.0.0:4838 --require-token at the server, then "
                        "towline trust tls://HOST:4838");
    } else if (server_begins(address, "hook:")) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "way",
                       "%s has a hook between client and server, which is for tests", shown);
        tow_doctor_mend(doctor, "name the address behind it: %s",
                        tow_transport_behind_hook(address));
    } else if ((tls || server_begins(address, "tcp:")) && server_is_here(host)) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "way",
                       "%s is this machine, and %s is slower than its socket, which uses shared "
                       "memory",
                       shown, tls ? "tls" : "tcp");
        tow_doctor_mend(doctor,
                        "towlined -l unix:///run/towline.sock as well, then towline run -s "
                        "/run/towline.sock -- %s",
                        doctor->program != NULL ? doctor->program : "PROGRAM");
    } else if (tls) {
        tow_doctor_say(
            doctor, TOW_DOCTOR_GOOD, "way",
            "the way is tls: encrypted; tcp:// carries more, on networks that are yours");
    } else if (server_begins(address, "tcp:")) {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "way",
                       "the way is tcp: nothing is faster between machines, and nothing is "
                       "encrypted");
    }
}

static void server_judge_identity(struct tow_doctor *doctor, const struct tow_json_doc *doc)
{
    const struct tow_json_value *root = doc->values;
    const char *you = tow_json_text(doc, root, "you"), *class = tow_json_text(doc, root, "class");
    if (you[0] == '\0') {
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "identity",
                       "it does not say whom it takes you for: it is older");
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "identity", "it takes you for %s%s%s", you,
                       class[0] != '\0' ? ", of class " : "", class);
    }
}

static bool server_look(struct tow_doctor *doctor, const char *address)
{
    char shown[TOW_ADDRESS_MAX], why[TOW_WHY_MAX] = "";
    struct tow_json_doc doc;
    struct tow_buf report;
    address = tow_transport_behind_hook(address);
    tow_transport_as_written(address, shown);
    if (server_begins(address, "self:")) {
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "version",
                       "%s is a server inside the program, for tests", shown);
        return true;
    }
    tow_buf_init(&report, TOW_FRAME_MAX);
    int error = tow_ask_report(address, TOW_STATUS_AT_HAND, &report, why, sizeof why);
    if (error == 0) {
        error = tow_json_doc_parse((const char *)report.data, report.size, &doc);
        if (error < 0) {
            snprintf(why, sizeof why, "%s sent a report that cannot be read", shown);
        }
    }
    tow_buf_fini(&report);
    if (error < 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "reach", "%s", why);
        server_mend(doctor, address, error, why);
        return false;
    }
    server_judge_version(doctor, shown, tow_json_text(&doc, doc.values, "version"));
    server_judge_identity(doctor, &doc);
    server_judge_gpus(doctor, shown, &doc);
    bool serves = server_judge_room(doctor, shown, &doc);
    server_judge_way(doctor, address, shown);
    serves = serves && tow_json_text(&doc, doc.values, "failure")[0] == '\0';
    tow_json_doc_fini(&doc);
    return serves;
}

/* ---- which servers ---- */

static void server_start_private(struct tow_doctor *doctor)
{
    char serves[512], why[TOW_WHY_MAX];
    if (!doctor->installed) {
        return; /* that was said */
    }
    int error = tow_private_start(doctor->bin_dir, NULL, NULL, 0, doctor->servers,
                                  sizeof doctor->servers, serves, sizeof serves, why, sizeof why);
    if (error < 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "choice", "%s", why);
        tow_doctor_mend(doctor, "towline run -s HOST -- PROGRAM, with the host of a server");
        doctor->servers[0] = '\0';
        return;
    }
    tow_doctor_say(doctor, TOW_DOCTOR_HINT, "choice",
                   "no server is named and none listens here: towline run starts a private one, "
                   "with %s",
                   strncmp(serves, "soft", 4) == 0 ? "the software GPU" : "this machine's own GPU");
    tow_doctor_mend(doctor, "export TOWLINE_SERVER=HOST, if another machine's GPU is meant");
    doctor->served = server_look(doctor, doctor->servers);
}

void tow_doctor_server(struct tow_doctor *doctor)
{
    static const char *const found[] = {
        [TOW_CHOICE_FLAG] = "-s names",
        [TOW_CHOICE_ENVIRONMENT] = "TOWLINE_SERVER names",
        [TOW_CHOICE_FILE] = "the config file names",
        [TOW_CHOICE_SOCKET] = "on this machine's own socket listens",
    };
    char why[TOW_WHY_MAX] = "", shown[TOW_ADDRESS_MAX];
    tow_doctor_group(doctor, "The server");
    int choice = tow_choose_server(doctor->flag, doctor->servers, why, sizeof why);
    if (choice < 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "choice", "%s", why);
        tow_doctor_mend(doctor, strstr(why, "ssh") != NULL
                                    ? "try it by hand: ssh HOST true"
                                    : "write it as the sentence says, or towline doctor -s "
                                      "HOST:4837");
        doctor->servers[0] = '\0';
        return;
    }
    if (choice == TOW_CHOICE_NONE) {
        server_start_private(doctor);
        return;
    }
    char list[TOW_CLI_ADDRESS_MAX], *rest = list;
    const char *address;
    memcpy(list, doctor->servers, sizeof list);
    doctor->served = true;
    while ((address = tow_address_next(&rest)) != NULL) {
        tow_transport_as_written(address, shown);
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "choice", "%s %s", found[choice], shown);
        doctor->served &= server_look(doctor, address);
    }
}
