/* Contexts, for the families that make or end some (green contexts). */
#ifndef TOW_SERVER_CONTEXT_H
#define TOW_SERVER_CONTEXT_H

#include "server/session.h"

/* Puts what the client keeps of a context it has got into the reply. */
void tow_context_put_facts(struct tow_serve *call, CUcontext context);
/* The same of device 0's primary context, if that was made ahead; false: it was not. */
bool tow_context_describe_ahead(const struct tow_driver *driver, struct tow_enc *enc);
/* Forgets a context's id and what was made in it: the context is about to end. */
void tow_context_drop(struct tow_session *session, uint64_t id);

#endif
