/* Names and descriptions of results. */
#ifndef TOW_CLIENT_ERROR_H
#define TOW_CLIENT_ERROR_H

#include "wire/snapshot.h"

/* From now on results are described as a server's driver does (`snapshot` stays); NULL: in our own
 * words. */
void tow_error_use(const struct tow_snapshot *snapshot);

#endif
