/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's device files. NVIDIA's driver has a program that makes them and loads its modules,
 * nvidia-modprobe, which has root's rights by its file. Nothing that has raised walls can run it.
 */
#ifndef TOW_SERVER_DEVICES_H
#define TOW_SERVER_DEVICES_H

#include "server/config/config.h"

/* Where all this is. */
struct tows_devices_places {
    const char *program, *devices, *gpus;
};

/* Makes those that are not there, before any wall is raised. Does nothing for a software GPU, or
 * where the driver has no such program. */
void tows_devices_make(const struct tows_config *config);
/* The same for a driver elsewhere. */
void tows_devices_make_at(const struct tows_devices_places *places);

#endif
