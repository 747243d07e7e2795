/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for NVIDIA's management library: one GPU whose load grows with each question. */
#include <stdio.h>
#include <string.h>

int nvmlInit_v2(void);
const char *nvmlErrorString(int result);
int nvmlSystemGetDriverVersion(char *text, unsigned size);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *text, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *load);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *value);
int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending);
int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned since,
                                unsigned long long *errors);
int nvmlDeviceValidateInforom(void *device);
int nvmlDeviceGetVirtualizationMode(void *device, unsigned *mode);
int nvmlDeviceGetFanSpeed(void *device, unsigned *speed);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int nvmlInit_v2(void)
{
    return 0;
}

PUBLIC const char *nvmlErrorString(int result)
{
    return result == 0 ? "fine" : "not fine";
}

PUBLIC int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "123.45");
    return 0;
}

PUBLIC int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return 0;
}

PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    static int gpu;
    *device = &gpu;
    return index == 0 ? 0 : 2;
}

PUBLIC int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
    (void)device;
    snprintf(text, size, "GPU-1");
    return 0;
}

PUBLIC int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    (void)device;
    memory[0] = 1000;
    memory[1] = 600;
    memory[2] = 400;
    return 0;
}

PUBLIC int nvmlDeviceGetUtilizationRates(void *device, unsigned *load)
{
    static unsigned asked;
    (void)device;
    load[0] = ++asked;
    load[1] = 7;
    return 0;
}

PUBLIC int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *value)
{
    (void)device;
    *value = 55;
    return sensor == 0 ? 0 : 2;
}

PUBLIC int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending)
{
    (void)device;
    *current = 1;
    *pending = 0;
    return 0;
}

/* Corrected or not, since the driver was loaded or ever. */
PUBLIC int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned since,
                                       unsigned long long *errors)
{
    (void)device;
    *errors = 100 * (kind + 1) + since + 1;
    return 0;
}

/* Corrupted, which a program should hear of; but not for whoever asks again. */
PUBLIC int nvmlDeviceValidateInforom(void *device)
{
    static int asked;
    (void)device;
    return asked++ == 0 ? 14 : 0;
}

PUBLIC int nvmlDeviceGetVirtualizationMode(void *device, unsigned *mode)
{
    (void)device;
    *mode = 1;
    return 0;
}

PUBLIC int nvmlDeviceGetFanSpeed(void *device, unsigned *speed)
{
    (void)device;
    *speed = 5;
    return 3; /* not supported: the number is not to be believed */
}
