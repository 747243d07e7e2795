/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the program's memory to the device, as bytes. They have been read when the call
 * returns, but deferred ones. Executors of client/copy/plan.h's ways. */
#ifndef TOW_CLIENT_UPLOAD_H
#define TOW_CLIENT_UPLOAD_H

#include "client/copy/look.h"

towc_copy_executor towc_upload_wait_source; /* TOW_WAY_WAIT_SOURCE */
towc_copy_executor towc_upload_deferred;    /* TOW_WAY_DEFERRED */
towc_copy_executor towc_upload_staged;      /* TOW_WAY_STAGED */
towc_copy_executor towc_upload_line;        /* TOW_WAY_LINE: on lanes too */

#endif
