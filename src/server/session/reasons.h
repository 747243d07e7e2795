/* SPDX-License-Identifier: Apache-2.0 */
/* Why the software GPU refused something, in its own words: for the person at the
 * program. The log has it, too, but that is the server's. */
#ifndef TOW_SERVER_REASONS_H
#define TOW_SERVER_REASONS_H

#include "server/session/session.h"

/* From now on they are kept until a session tells its client. Of this process: its sessions are of
 * one program. */
void tows_reasons_begin(void);

/* What was said since, each text once; before a reply. Lets other commands of the session wait for
 * the line. */
void tows_reasons_tell(struct tows_session *session);

#endif
