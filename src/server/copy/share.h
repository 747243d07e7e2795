/* Memory that the client shares with this worker (wire/share.h): copies that name addresses in it,
 * notes that the device writes. */
#ifndef TOW_SERVER_SHARE_H
#define TOW_SERVER_SHARE_H

#include <stdint.h>

#include "server/session/serve.h"

struct tow_session;
struct tow_share_note;

/* A copy between the device and shared memory, in either direction: decodes what follows the
 * command's common fields. `host_is_source` tells which way. */
void tow_share_copy(struct tow_serve *call, bool host_is_source, CUdeviceptr device, uint64_t size,
                    CUstream stream, uint32_t form);
/* After a command that was carried out, or not, in the stream: decodes an address and a value, and
 * lets the stream write that note when it gets there. Whether it can is not the command's affair.
 */
void tow_share_note(struct tow_serve *call, CUstream stream);
/* The note of a copy in shared memory: decodes its address and value (NULL: that breaks the
 * protocol), and after the copy was begun, or not, lets the stream write it. */
struct tow_share_note *tow_share_take_note(struct tow_serve *call, uint32_t *ret_value);
void tow_share_noted(struct tow_serve *call, struct tow_share_note *note, uint32_t value,
                     bool host_is_source, uint64_t size, CUstream stream);
/* True if the client shares all of [address, address + size), and the driver knows it. */
bool tow_share_holds(struct tow_serve *call, uint64_t address, uint64_t size);
/* How many bytes from the address on lie in one piece of shared memory; 0: it is in none. Both keep
 * what they find until the call was carried out (hold.h). */
uint64_t tow_share_from(struct tow_serve *call, uint64_t address);
/* A context is about to end: what was page-locked in it is page-locked again when next used. */
void tow_share_drop_context(struct tow_session *session, uint32_t context);

#endif
