/* SPDX-License-Identifier: Apache-2.0 */
/* A worker: opens its backend, waits for one connection from the listener, serves it, ends. */
#ifndef TOW_SERVER_WORKER_H
#define TOW_SERVER_WORKER_H

#include "backend/backend.h"
#include "server/config/config.h"

/* The worker's whole life; the program's exit code. */
int tows_worker_main(const struct tows_config *config);

/* Opens what the settings ask for: cuda, soft, a library, or the first of these that works. */
int tows_worker_open(const struct tows_config *config, struct tow_backend *ret_backend, char *why,
                     size_t why_size);

/* Where this server keeps code that clients sent; "" when it keeps none. */
void tows_worker_code_cache(const struct tows_config *config, char *ret_path, size_t size);

#endif
