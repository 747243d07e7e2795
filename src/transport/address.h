/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them, everywhere they do: -s, TOWLINE_SERVER, the config files,
 * towlined's -l.
 *
 *     gpuhost  gpuhost:4837  192.0.2.1  [::1]:4837      are tcp://gpuhost:4837 and so on
 *     /run/towline.sock  @name  unix:/run/towline.sock  are unix:///run/towline.sock, unix://@name
 *     what has a scheme (transport.h) stays as it is
 */
#ifndef TOW_TRANSPORT_ADDRESS_H
#define TOW_TRANSPORT_ADDRESS_H

#include "transport/transport.h"

/* Gives the form with a scheme (`ret_address` has TOW_ADDRESS_MAX bytes), which reads as itself.
 * Nothing is connected to and no name is looked up. -EINVAL, -ENAMETOOLONG, with a sentence. */
int tow_address_read(const char *text, char *ret_address, char *ret_why, size_t size);

/* Takes the next address off a list that commas separate, without the blanks around it; NULL at its
 * end. Behind hook: and self: a comma is an option's unless a scheme follows it. */
char *tow_address_next(char **rest);

/* The same as tow_address_read for a list: how many they are, at least one. */
int tow_address_read_list(const char *text, char *ret_list, size_t list_size, char *ret_why,
                          size_t size);

#endif
