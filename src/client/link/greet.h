/* SPDX-License-Identifier: Apache-2.0 */
/* What a client says first, and what it is told of the functions that both sides know. */
#ifndef TOW_CLIENT_GREET_H
#define TOW_CLIENT_GREET_H

#include <stdbool.h>

#include "transport/transport.h"

struct towc_link;

/* Our HELLO: encoded once, since a server on this machine is shown it before the line is there.
 * `slot`: which of the session's servers this is. End it with towc_greet_free. */
int towc_greet_make(unsigned slot, bool lanes, struct tow_preface *ret_hello);
void towc_greet_free(struct tow_preface *hello);

/* Keeps what the welcome says of functions that the server lacks: it does not know them, or what
 * travels for them differs. -ENOMEM. */
int towc_greet_take_lacking(struct towc_link *link);
/* False for such a function, whose name is said once. Control frames may always go. */
bool towc_greet_may_call(const struct towc_link *link, unsigned fn);

#endif
