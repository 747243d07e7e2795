/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the client shares with this worker (wire/share.h): copies that name addresses in it,
 * and fence words there. */
#ifndef TOW_SERVER_SHARE_H
#define TOW_SERVER_SHARE_H

#include <stdint.h>

#include "server/session/serve.h"

struct tow_fence_word;
struct tows_session;

/* True if the client shares all of [address, address + size), and the driver knows it. */
bool tows_share_holds(struct tows_serve *call, uint64_t address, uint64_t size);
/* How many bytes from the address on lie in one piece of shared memory; 0: it is in none. Both keep
 * what they find until the call was carried out (hold.h). */
uint64_t tows_share_from(struct tows_serve *call, uint64_t address);
/* A context is about to end: what was page-locked in it is page-locked again when next used. */
void tows_share_drop_context(struct tows_session *session, uint32_t context);

/* A copy between the device and shared memory, in either direction: decodes what follows the
 * command's common fields. `host_is_source` tells which way. */
void tows_share_copy(struct tows_serve *call, bool host_is_source, CUdeviceptr device,
                     uint64_t size, CUstream stream, uint32_t form);
/* Before a download that only a fence word answers: it does not begin if its thread has an error of
 * an earlier call to hear. Refused, the client asks in the ordinary way. */
void tows_fence_word_refuse_owing(struct tows_serve *call, bool host_is_source);
/* The fence word of a copy in shared memory: decodes its address and value (NULL: that breaks the
 * protocol), and after the copy was begun, or not, lets the stream write it. */
struct tow_fence_word *tows_fence_word_decode(struct tows_serve *call, uint32_t *ret_value);
void tows_fence_word_put_copy(struct tows_serve *call, struct tow_fence_word *word, uint32_t value,
                              bool host_is_source, uint64_t size, CUstream stream);

#endif
