/* SPDX-License-Identifier: Apache-2.0 */
/* Pools and stream-ordered allocation. */
#ifndef TOW_SOFT_MEMORY_POOL_H
#define TOW_SOFT_MEMORY_POOL_H

#include <stdbool.h>

#include "backend/soft/engine/work.h"
#include "backend/soft/ground/alloc.h"

struct tow_soft_pool;

struct tow_soft_pool *tow_soft_pool_create(int device, bool is_default);
uint64_t tow_soft_pool_handle(const struct tow_soft_pool *pool);
CUresult tow_soft_free_async_run(uint64_t address);
extern const struct tow_soft_work_ops tow_soft_free_ops;
void tow_soft_pools_fini(void);
/* Whether one was given to other processes, or comes from one. */
bool tow_soft_pools_shared(void);
/* Calls `visit` for what is allocated in memory files. */
void tow_soft_pool_files_each(tow_soft_area_fn *visit, void *user);

#endif
