/* SPDX-License-Identifier: Apache-2.0 */
/* What two peers that meet for the first time can tell each other, in one exact sentence. */
#ifndef TOW_WIRE_HANDSHAKE_H
#define TOW_WIRE_HANDSHAKE_H

#include "wire/control.h"

/* Which side is asking: decides who is told to upgrade. */
enum tow_role { TOW_ROLE_CLIENT, TOW_ROLE_SERVER };

/* Looks at the first bytes a peer sent (16 or more are best; fewer are judged as far as they go).
 * Returns 0 when they are a Towline frame of a kind that may come first, -EAGAIN when too few to
 * say, -EPROTO with a sentence in ret_why when the peer speaks something else. `peer` is its
 * address, for the sentence. */
int tow_handshake_sniff(enum tow_role role, const void *bytes, size_t n, const char *peer,
                        char *ret_why, size_t size);

/* The highest version both speak (positive), or -EPROTO with the sentence. Called by the server
 * with the hello's range. */
int tow_handshake_pick_version(uint32_t client_min, uint32_t client_max, uint32_t server_min,
                               uint32_t server_max, char *ret_why, size_t size);

/* Variables that change how the GPU's driver starts: a client sends those that are set, and a
 * server takes no others. NULL ends the list. */
enum { TOW_DRIVER_VARIABLES_MAX = 32 };
extern const char *const tow_driver_variables[];

/* Goes through the functions of a hello: `common` is called for each that the server has with the
 * same hash (hash_of: 0 if it has none of that number), the numbers of the others are put into
 * ret_lacking, which has room for TOW_HELLO_FUNCTIONS_MAX. -EPROTO if they are not in order. */
int tow_handshake_agree(const struct tow_hello *hello, uint32_t (*hash_of)(unsigned number),
                        void (*common)(void *user, unsigned number), void *user,
                        uint32_t *ret_lacking, uint32_t *ret_count);

/* The client's check of the version a server chose. */
int tow_handshake_check_version(uint32_t chosen, char *ret_why, size_t size);

#endif
