/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the client shares with this worker (wire/share.h). */
#ifndef TOW_SERVER_SHARE_H
#define TOW_SERVER_SHARE_H

#include <stdint.h>

#include "server/session/serve.h"

struct tows_session;

/* True if the client shares all of [address, address + size), and the driver knows it. */
bool tows_share_holds(struct tows_serve *call, uint64_t address, uint64_t size);
/* How many bytes from the address on lie in one piece of shared memory; 0: it is in none. Both keep
 * what they find until the call was carried out (hold.h). */
uint64_t tows_share_from(struct tows_serve *call, uint64_t address);
/* A context is about to end: what was page-locked in it is page-locked again when next used. */
void tows_share_drop_context(struct tows_session *session, uint32_t context);

#endif
