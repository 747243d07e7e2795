/* SPDX-License-Identifier: Apache-2.0 */
/* What towlined logs, and in which format: from the settings, the environment, and where it goes.
 */
#ifndef TOW_SERVER_CONFIG_LOGGING_H
#define TOW_SERVER_CONFIG_LOGGING_H

#include "server/config/config.h"

/* Completes the settings, for tows_logging_apply and for workers. -EINVAL with a sentence in `why`
 * if they cannot be understood. The log itself goes on as it is. */
int tows_logging_read(struct tows_config *config, char *why, size_t why_size);

/* Has the log follow settings that tows_logging_read has completed. */
void tows_logging_apply(const struct tows_config *config);

#endif
