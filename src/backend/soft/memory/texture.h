/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects. */
#ifndef TOW_SOFT_MEMORY_TEXTURE_H
#define TOW_SOFT_MEMORY_TEXTURE_H

#include <stdint.h>

#include "backend/soft/ground/handle.h"

struct tow_ptx_texture;

const struct tow_ptx_texture *tow_soft_texture_get(uint64_t handle); /* unlocked, for kernels */
void tow_soft_texture_end(struct tow_soft_object *base);
void tow_soft_textures_fini(void);

#endif
