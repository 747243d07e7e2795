/* SPDX-License-Identifier: Apache-2.0 */
/* Copies from the device into the program's memory, as bytes. Executors of client/copy/plan.h's
 * ways. */
#ifndef TOW_CLIENT_DOWNLOAD_H
#define TOW_CLIENT_DOWNLOAD_H

#include "client/copy/look.h"

towc_copy_executor towc_download_fetched; /* TOW_WAY_FETCHED */
towc_copy_executor towc_download_staged;  /* TOW_WAY_STAGED */
towc_copy_executor towc_download_line;    /* TOW_WAY_LINE: waits for the bytes */
/* TOW_WAY_ASYNC: into page-locked memory, in the stream's order. What is left of one of one
 * dimension has to be waited for, since the call must know its result. */
towc_copy_executor towc_download_async;

/* Until earlier downloads have filled this memory. */
CUresult towc_download_wait(struct towc_link *link, const void *host, size_t size);

#endif
