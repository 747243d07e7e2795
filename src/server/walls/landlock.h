/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock: which files a worker can open, and that it connects nowhere.
 *
 * What is left is what NVIDIA's driver opens (seen on an H200, driver 580) and what a worker does
 * itself. Nothing can be executed, and nothing written to but devices, the caches and, for events
 * of cuIpc, /dev/shm.
 */
#ifndef TOW_SERVER_LANDLOCK_H
#define TOW_SERVER_LANDLOCK_H

#include "server/config/config.h"

/* What this kernel offers: 0: nothing, else the version of its interface (1: Linux 5.13). From 4 on
 * (6.7) TCP is closed, from 6 on (6.12) others cannot be signalled. */
int tows_landlock_version(void);

/* For this thread and those that it makes from now on: no_new_privs must be set. `code_cache`: a
 * folder to read; `compile_cache`: one to write to; "": none. 0, or -Exxx. */
int tows_landlock_enter(const struct tows_config *config, const char *code_cache,
                        const char *compile_cache);

/* The same, and nothing may be opened at all. */
int tows_landlock_enter_bare(void);

/* Whether a worker could open the file: 1, 0, or -Exxx if that cannot be told. A child with its
 * rules tries; `cache` is a folder that has all its caches. This process must have one thread. */
int tows_landlock_shows(const struct tows_config *config, const char *cache, const char *path);

#endif
