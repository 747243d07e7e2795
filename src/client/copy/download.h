/* SPDX-License-Identifier: Apache-2.0 */
/* Copies from the device into the program's memory, as bytes that come over the line. */
#ifndef TOW_CLIENT_DOWNLOAD_H
#define TOW_CLIENT_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "client/link/box.h"
#include "client/link/link.h"

/* Of one dimension. Waits for the bytes. */
CUresult tow_download(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                      CUstream stream);

/* True if so many bytes more may come without being waited for: the server keeps only so much for a
 * client. */
bool tow_download_has_room(struct tow_link *link, size_t size);

/* Of one dimension into page-locked memory, in the stream's order: the bytes come with the next
 * synchronisation. `ret_sent` says how many of them will; the rest has to be waited for, since
 * there is no room or the call must know its result. */
CUresult tow_download_later(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                            CUstream stream, size_t *ret_sent);

/* Whether the bytes may come on several lines. Which come first is then open, so memory that an
 * earlier copy is still to fill gets them on the own line, where they come behind that one's. */
bool tow_download_is_spread(struct tow_link *link, const struct tow_box *to);

#endif
