/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the sentences in which peers of different versions say so, and the list of forwarded
 * variables. */
#include "wire/handshake.h"

#include <stdio.h>

const char *const tow_driver_variables[] = {
    "CUDA_AUTO_BOOST",
    "CUDA_BINARY_LOADER_THREAD_COUNT",
    "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "CUDA_DISABLE_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_GRAPHS_USE_NODE_PRIORITY",
    "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
    "CUDA_MODULE_DATA_LOADING",
    "CUDA_MODULE_LOADING",
    "CUDA_SCALE_LAUNCH_QUEUES",
    NULL,
};
_Static_assert(sizeof tow_driver_variables / sizeof *tow_driver_variables <=
                   TOW_DRIVER_VARIABLES_MAX,
               "a client keeps so many");

struct foreign {
    const char *start;
    size_t size;
    const char *name;
};

#define FOREIGN(text, name)                                                                        \
    {                                                                                              \
        text, sizeof(text) - 1, name                                                               \
    }

/* What is likely to listen on, or to knock at, a port by mistake. */
static const struct foreign foreigners[] = {
    FOREIGN("HTTP/", "HTTP"),          FOREIGN("GET ", "HTTP"),
    FOREIGN("POST ", "HTTP"),          FOREIGN("HEAD ", "HTTP"),
    FOREIGN("PUT ", "HTTP"),           FOREIGN("OPTIONS ", "HTTP"),
    FOREIGN("CONNECT ", "HTTP"),       FOREIGN("DELETE ", "HTTP"),
    FOREIGN("PRI * HTTP/2", "HTTP/2"), FOREIGN("SSH-", "SSH"),
    FOREIGN("\x16\x03\x00", "TLS"),    FOREIGN("\x16\x03\x01", "TLS"),
    FOREIGN("\x16\x03\x02", "TLS"),    FOREIGN("\x16\x03\x03", "TLS"),
    FOREIGN("\x15\x03\x01", "TLS"),    FOREIGN("\x15\x03\x03", "TLS"),
    FOREIGN("220 ", "SMTP or FTP"),    FOREIGN("RFB ", "VNC"),
};

static int allowed_first(enum tow_role role, uint16_t kind)
{
    if (role == TOW_ROLE_SERVER) {
        return kind == TOW_CONTROL_HELLO || kind == TOW_CONTROL_STATUS ||
               kind == TOW_CONTROL_LANE || kind == TOW_CONTROL_RESUME;
    }
    return kind == TOW_CONTROL_WELCOME || kind == TOW_CONTROL_REFUSE ||
           kind == TOW_CONTROL_REPORT || kind == TOW_CONTROL_CHALLENGE;
}

int tow_handshake_sniff(enum tow_role role, const void *bytes, size_t n, const char *peer,
                        char *ret_why, size_t size)
{
    const char *what = role == TOW_ROLE_CLIENT ? "server" : "client";
    for (size_t i = 0; i < sizeof foreigners / sizeof *foreigners; i++) {
        const struct foreign *foreign = &foreigners[i];
        if (n >= foreign->size && memcmp(bytes, foreign->start, foreign->size) == 0) {
            if (role == TOW_ROLE_CLIENT) {
                snprintf(ret_why, size,
                         "%s answers with %s, not with Towline's protocol; name the address that "
                         "towlined listens on",
                         peer, foreign->name);
            } else {
                snprintf(ret_why, size, "the client at %s speaks %s, not Towline's protocol", peer,
                         foreign->name);
            }
            return -EPROTO;
        }
    }
    if (n < TOW_FRAME_HEADER) {
        return -EAGAIN;
    }
    struct tow_frame frame;
    uint32_t magic = TOW_MAGIC;
    if (n >= TOW_FRAME_HEADER + 4) {
        memcpy(&magic, (const uint8_t *)bytes + TOW_FRAME_HEADER, 4);
    }
    if (tow_frame_read(bytes, &frame) == 0 && allowed_first(role, frame.kind) &&
        magic == TOW_MAGIC) {
        return 0;
    }
    const uint8_t *byte = bytes;
    snprintf(ret_why, size,
             "the %s at %s does not speak Towline's protocol (its first bytes are %02x %02x %02x "
             "%02x %02x %02x %02x %02x)",
             what, peer, byte[0], byte[1], byte[2], byte[3], byte[4], byte[5], byte[6], byte[7]);
    return -EPROTO;
}

static void range_text(uint32_t min, uint32_t max, char *text, size_t size)
{
    if (min == max) {
        snprintf(text, size, "%u", max);
    } else {
        snprintf(text, size, "%u to %u", min, max);
    }
}

int tow_handshake_pick_version(uint32_t client_min, uint32_t client_max, uint32_t server_min,
                               uint32_t server_max, char *ret_why, size_t size)
{
    uint32_t low = client_min > server_min ? client_min : server_min;
    uint32_t high = client_max < server_max ? client_max : server_max;
    if (low <= high && high > 0 && high <= INT32_MAX) {
        return (int)high;
    }
    char client[32], server[32];
    range_text(client_min, client_max, client, sizeof client);
    range_text(server_min, server_max, server, sizeof server);
    snprintf(ret_why, size,
             "the client speaks Towline protocol %s and the server %s; install a newer Towline on "
             "the %s",
             client, server, client_max < server_min ? "client" : "server");
    return -EPROTO;
}

int tow_handshake_check_version(uint32_t chosen, char *ret_why, size_t size)
{
    if (chosen >= TOW_PROTOCOL_MIN && chosen <= TOW_PROTOCOL_MAX) {
        return 0;
    }
    char ours[32];
    range_text(TOW_PROTOCOL_MIN, TOW_PROTOCOL_MAX, ours, sizeof ours);
    snprintf(ret_why, size,
             "the server chose Towline protocol %u, this client speaks %s; install the same "
             "Towline on both sides",
             chosen, ours);
    return -EPROTO;
}

int tow_handshake_agree(const struct tow_hello *hello, uint32_t (*hash_of)(unsigned number),
                        void (*common)(void *user, unsigned number), void *user,
                        uint32_t *ret_lacking, uint32_t *ret_count)
{
    const uint8_t *at = hello->travels;
    uint32_t count = 0, before = 0;
    for (uint32_t i = 0; i < hello->functions; i++, at += sizeof(struct tow_travel)) {
        struct tow_travel theirs;
        memcpy(&theirs, at, sizeof theirs);
        if (theirs.number <= before || theirs.number >= TOW_CONTROL_FIRST || theirs.hash == 0) {
            return -EPROTO;
        }
        before = theirs.number;
        if (hash_of(theirs.number) == theirs.hash) {
            common(user, theirs.number);
        } else {
            ret_lacking[count++] = theirs.number;
        }
    }
    *ret_count = count;
    return 0;
}
