/* What two peers that meet for the first time can tell each other, in one exact sentence. */
#ifndef TOW_WIRE_HANDSHAKE_H
#define TOW_WIRE_HANDSHAKE_H

#include "wire/control.h"

/* Which side is asking: decides who is told to upgrade. */
enum tow_side { TOW_SIDE_CLIENT, TOW_SIDE_SERVER };

/* Looks at the first bytes a peer sent (16 or more are best; fewer are judged as far as they go).
 * Returns 0 when they are a Towline frame of a kind that may come first, -EAGAIN when too few to
 * say, -EPROTO with a sentence in ret_why when the peer speaks something else. `peer` is its
 * address, for the sentence. */
int tow_handshake_sniff(enum tow_side side, const void *bytes, size_t n, const char *peer,
                        char *ret_why, size_t size);

/* The highest version both speak (positive), or -EPROTO with the sentence. Called by the server
 * with the hello's range. */
int tow_handshake_pick_version(uint32_t client_min, uint32_t client_max, uint32_t server_min,
                               uint32_t server_max, char *ret_why, size_t size);

/* Variables that change how the GPU's driver starts: a client sends those that are set, and a
 * server takes no others. NULL ends the list. */
enum { TOW_DRIVER_VARIABLES_MAX = 32 };
extern const char *const tow_driver_variables[];

/* Who was built from which table of the driver API. */
struct tow_table {
    const uint64_t *hash; /* 4 of them; borrowed */
    const char *release;  /* Towline's version; NULL: not said */
    uint32_t functions;   /* that it implements; 0: not said */
};

/* The server's check that both have the same table; -EPROTO with a sentence that says what to
 * install where. */
int tow_handshake_check_table(const struct tow_table *client, const struct tow_table *server,
                              char *ret_why, size_t size);

/* The client's check of the version a server chose. */
int tow_handshake_check_version(uint32_t chosen, char *ret_why, size_t size);

#endif
