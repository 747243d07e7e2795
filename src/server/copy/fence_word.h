/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that are answered by a fence word, which the device writes in shared memory
 * (wire/share.h). */
#ifndef TOW_SERVER_FENCE_WORD_H
#define TOW_SERVER_FENCE_WORD_H

#include "server/session/serve.h"

/* After a command that was carried out, or not, in the stream: decodes an address and a value, and
 * lets the stream write that fence word when it gets there. Whether it can is not the command's
 * affair.
 */
void tows_fence_word_put(struct tows_serve *call, CUstream stream);

#endif
