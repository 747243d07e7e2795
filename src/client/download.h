/* Copies of one dimension from the device into the program's memory, as bytes. */
#ifndef TOW_CLIENT_DOWNLOAD_H
#define TOW_CLIENT_DOWNLOAD_H

#include <stddef.h>

#include "client/link.h"

/* Waits for the bytes. */
CUresult tow_download(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                      CUstream stream);

/* Into page-locked memory, in the stream's order: the bytes come with the next synchronisation.
 * `ret_sent` says how many of them will; the rest has to be waited for, since the server keeps only
 * so much for a client or the call must know its result. */
CUresult tow_download_later(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                            CUstream stream, size_t *ret_sent);

#endif
