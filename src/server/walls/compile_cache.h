/* SPDX-License-Identifier: Apache-2.0 */
/* Where NVIDIA's driver keeps what it compiled: one folder for all workers, or where each tenant
 * has a user, one for each tenant that no other can open.
 *
 * The driver may look at CUDA_CACHE_PATH before the tenant is known. So it names a descriptor
 * (/proc/self/fd/N), and that one becomes the tenant's folder later.
 */
#ifndef TOW_SERVER_COMPILE_CACHE_H
#define TOW_SERVER_COMPILE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"

/* The worker, before it opens a driver: makes the folder and sets CUDA_CACHE_PATH. What it may
 * write to below; "": nothing. */
void tows_compile_cache_begin(const struct tows_config *config, char *ret_path, size_t size);

/* The worker, when it has become that user: from now on the cache is that tenant's, or none. */
void tows_compile_cache_take(uint32_t user, const char *tenant);

/* The listener, at its start: a child removes folders of tenants who have not come for 30 days. */
void tows_compile_cache_tidy(const struct tows_config *config);

#endif
