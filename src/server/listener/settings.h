/* SPDX-License-Identifier: Apache-2.0 */
/* The settings, read again while the server runs: by this process, or by its parent. */
#ifndef TOW_SERVER_LISTENER_SETTINGS_H
#define TOW_SERVER_LISTENER_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "server/config/config.h"
#include "server/pool/cache_writer.h"
#include "server/pool/parent_line.h"

/* As they are by now. `line`: to the parent; NULL: there is none. `ret_folder`, the caller's: of
 * code, if this process cannot open it; -1: none. Below 0 with a sentence. */
int tows_settings_read(struct tows_parent_line *line, int argc, char **argv,
                       struct tows_config *ret_config, int *ret_folder, char *why, size_t why_size);
/* Then, whether they hold: the parent learns it, and the folder has its owner. */
void tows_settings_decide(struct tows_parent_line *line, struct tows_cache_writer *writer,
                          bool taken, int folder);

#endif
