/* SPDX-License-Identifier: Apache-2.0 */
/* What a client says first, and what it is told of the functions that both sides know. */
#ifndef TOW_CLIENT_HELLO_H
#define TOW_CLIENT_HELLO_H

#include <stdbool.h>

#include "transport/transport.h"

struct towc_link;

/* Our HELLO: encoded once, since a server on this machine is shown it before the line is there.
 * `slot`: which of the session's servers this is; `lasts`: its line may outlive its connection. End
 * it with towc_hello_free. */
int towc_hello_make(unsigned slot, bool lanes, bool lasts, struct tow_preface *ret_hello);
void towc_hello_free(struct tow_preface *hello);

/* Keeps what the welcome says of functions that the server lacks: it does not know them, or what
 * travels for them differs. -ENOMEM. */
int towc_hello_take_lacking(struct towc_link *link);
/* Whether the program waits where there is no room for it. */
bool towc_hello_waits(void);
/* Says it where the server does not know what the program asks for. */
void towc_hello_check_limit(const struct towc_link *link);
/* False for such a function, whose name is said once. Control frames may always go. */
bool towc_hello_may_call(const struct towc_link *link, unsigned fn);

#endif
