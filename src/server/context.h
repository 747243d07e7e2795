/* Contexts, for the families that make or end some (green contexts). */
#ifndef TOW_SERVER_CONTEXT_H
#define TOW_SERVER_CONTEXT_H

#include "server/session.h"

/* Puts what the client keeps of a context it has got into the reply. */
void tow_context_put_facts(struct tow_serve *call, CUcontext context);
/* Forgets a context's id and what was made in it: the context is about to end. */
void tow_context_drop(struct tow_session *session, uint64_t id);

#endif
