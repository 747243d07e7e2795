/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, for the files that read the program's requests. */
#ifndef TOW_CLIENT_COPY_H
#define TOW_CLIENT_COPY_H

#include "client/copy/look.h"

/* Makes a copy that was looked up, whichever way it goes. */
CUresult towc_copy_run(struct towc_copy *copy);

/* A copy between contexts that names no stream comes behind the work of both, and before what they
 * are given next. The default stream of the current one says nothing of another: the program waits
 * for that before the copy, and for the copy. */
CUresult towc_copy_wait_for_others(CUcontext dst, CUcontext src, bool *ret_others);

#endif
