/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's MPS daemon, for scheduler = mps: kernels of several workers run beside each other then,
 * as those of one process do. It is the server's own, with a folder of its own, and ends with it.
 */
#ifndef TOW_SERVER_MPS_H
#define TOW_SERVER_MPS_H

#include <stdbool.h>
#include <stddef.h>

#include "server/config/config.h"

/* Starts it where the settings say so; what this process starts from then on finds it. Before the
 * server is split. -Exxx with a sentence. */
int tows_mps_start(const struct tows_config *config, char *why, size_t why_size);
/* Whether it has ended by itself: no worker can use a GPU any more. */
bool tows_mps_has_ended(void);
/* By the process that has started it: it ends, and its folder is removed. */
void tows_mps_stop(void);

#endif
