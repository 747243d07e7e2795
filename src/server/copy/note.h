/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that are answered by a note, which the device writes in shared memory (wire/share.h). */
#ifndef TOW_SERVER_NOTE_H
#define TOW_SERVER_NOTE_H

#include "server/session/serve.h"

/* After a command that was carried out, or not, in the stream: decodes an address and a value, and
 * lets the stream write that note when it gets there. Whether it can is not the command's affair.
 */
void tows_share_note(struct tows_serve *call, CUstream stream);

#endif
