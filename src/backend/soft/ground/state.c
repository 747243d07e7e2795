/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the software GPU, and the figures of its devices that others need. */
#include "backend/soft/ground/state.h"

struct tow_soft tow_soft = {.lock = TOW_MUTEX(SOFT)};

struct tow_soft_device *tow_soft_device_of(CUdevice device)
{
    return device >= 0 && (unsigned)device < tow_soft.device_count ? &tow_soft.devices[device]
                                                                   : NULL;
}

void tow_soft_device_limits(struct tow_soft_limits_of_device *ret_limits)
{
    /* Figures of the real architectures, from the CUDA guide's table of compute capabilities. One
     * that is not there yet has the most. */
    struct tow_soft_limits_of_device limits = {1536, 24, 65536, 100 * 1024, 99 * 1024};
    int major = tow_soft.capability / 10, minor = tow_soft.capability % 10;
    if (major == 9 || major == 10 || major > 12) {
        limits = (struct tow_soft_limits_of_device){2048, 32, 65536, 228 * 1024, 227 * 1024};
    } else if (major == 8 && minor == 0) {
        limits = (struct tow_soft_limits_of_device){2048, 32, 65536, 164 * 1024, 163 * 1024};
    } else if (major == 8) {
        limits = (struct tow_soft_limits_of_device){1536, 16, 65536, 100 * 1024, 99 * 1024};
    } else if (major == 7 && minor == 5) {
        limits = (struct tow_soft_limits_of_device){1024, 16, 65536, 64 * 1024, 64 * 1024};
    } else if (major == 7) {
        limits = (struct tow_soft_limits_of_device){2048, 32, 65536, 96 * 1024, 96 * 1024};
    }
    *ret_limits = limits;
}
