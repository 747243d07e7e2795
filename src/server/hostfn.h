/* Host functions: the GPU's stream calls the client, which runs the program's function and says
 * when it is done. */
#ifndef TOW_SERVER_HOSTFN_H
#define TOW_SERVER_HOSTFN_H

#include <stdint.h>

struct tow_session;

/* The client has run host function `id`: the stream that waits for it goes on. Unknown ids are
 * ignored. */
void tow_hostfn_done(struct tow_session *session, uint64_t id);

#endif
