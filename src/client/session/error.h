/* SPDX-License-Identifier: Apache-2.0 */
/* Names and descriptions of results. */
#ifndef TOW_CLIENT_ERROR_H
#define TOW_CLIENT_ERROR_H

#include "wire/snapshot.h"

/* From now on results are described as this server's driver does, those that none has described
 * before: takes the texts over. */
void towc_error_take(struct tow_snapshot *snapshot);

#endif
