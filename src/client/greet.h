/* What a client says first. */
#ifndef TOW_CLIENT_GREET_H
#define TOW_CLIENT_GREET_H

#include <stdbool.h>

#include "transport/transport.h"

/* Our HELLO: encoded once, since a server on this machine is shown it before the line is there.
 * `slot`: which of the session's servers this is. End it with tow_greet_free. */
int tow_greet_make(unsigned slot, bool lanes, struct tow_preface *ret_hello);
void tow_greet_free(struct tow_preface *hello);

#endif
