/* SPDX-License-Identifier: Apache-2.0 */
/* What towlined logs, and in which format: from the settings, the environment, and where it goes.
 */
#ifndef TOW_SERVER_LOGGING_H
#define TOW_SERVER_LOGGING_H

#include "server/config/config.h"

/* Has the log follow the settings, and completes these for workers. -EINVAL with a sentence in
 * `why`, and nothing has changed. */
int tows_logging_apply(struct tows_config *config, char *why, size_t why_size);

#endif
