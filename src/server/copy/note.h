/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that name addresses in shared memory, and notes that the device writes there
 * (wire/share.h) in place of a reply. */
#ifndef TOW_SERVER_NOTE_H
#define TOW_SERVER_NOTE_H

#include <stdint.h>

#include "server/session/serve.h"

struct tow_share_note;

/* A copy between the device and shared memory, in either direction: decodes what follows the
 * command's common fields. `host_is_source` tells which way. */
void tows_share_copy(struct tows_serve *call, bool host_is_source, CUdeviceptr device,
                     uint64_t size, CUstream stream, uint32_t form);
/* After a command that was carried out, or not, in the stream: decodes an address and a value, and
 * lets the stream write that note when it gets there. Whether it can is not the command's affair.
 */
void tows_share_note(struct tows_serve *call, CUstream stream);
/* The note of a copy in shared memory: decodes its address and value (NULL: that breaks the
 * protocol), and after the copy was begun, or not, lets the stream write it. */
struct tow_share_note *tows_share_take_note(struct tows_serve *call, uint32_t *ret_value);
void tows_share_noted(struct tows_serve *call, struct tow_share_note *note, uint32_t value,
                      bool host_is_source, uint64_t size, CUstream stream);

#endif
