/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the program's memory to the device, as bytes. They have been read when the call
 * returns, but deferred ones. Executors of client/copy/plan.h's ways. */
#ifndef TOW_CLIENT_UPLOAD_H
#define TOW_CLIENT_UPLOAD_H

#include "client/copy/look.h"

tow_copy_executor tow_upload_settle;   /* TOW_WAY_SETTLE */
tow_copy_executor tow_upload_deferred; /* TOW_WAY_DEFERRED */
tow_copy_executor tow_upload_staged;   /* TOW_WAY_STAGED */
tow_copy_executor tow_upload_line;     /* TOW_WAY_LINE: on lanes too */

#endif
