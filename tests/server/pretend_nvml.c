/* A management library of one GPU, for test_gauge.c: each number says which function it is from. */
#include <stdio.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC visibility push(default)

static char gpu;

const char *nvmlErrorString(int result)
{
    return result == 0 ? "Success" : "Unknown Error";
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    snprintf(version, size, "580.1");
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *ret_count)
{
    *ret_count = 1;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret_device)
{
    *ret_device = &gpu;
    return index == 0 ? 0 : 2;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    snprintf(uuid, size, "GPU-1");
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *ret_milliwatts)
{
    *ret_milliwatts = 70000;
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetEccMode(void *device, unsigned *ret_current, unsigned *ret_pending)
{
    *ret_current = 1;
    *ret_pending = 0;
    return device == &gpu ? 0 : 2;
}

/* Corrected or not, since the driver was loaded or ever. */
int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned since,
                                unsigned long long *ret_errors)
{
    *ret_errors = 100 * (kind + 1) + since + 1;
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceValidateInforom(void *device)
{
    return device == &gpu ? 14 : 2; /* corrupted, which a program should hear of */
}

int nvmlDeviceGetVirtualizationMode(void *device, unsigned *ret_mode)
{
    *ret_mode = 1;
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetFanSpeed(void *device, unsigned *ret_speed)
{
    (void)device;
    *ret_speed = 5;
    return 3; /* not supported: the number is not to be believed */
}
