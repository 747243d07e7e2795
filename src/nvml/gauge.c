/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's state: numbers that the server's report has, or that CUDA knows. What neither knows is
 * not supported. */
#include "nvml/nvml_api.h"
#include "nvml/nvml.h"

static int gauge_number(void *handle, enum tow_gauge_id id, int64_t *ret_value)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct tow_nvml_device *device = tow_nvml_device(handle);
    result = device == NULL ? NVML_ERROR_INVALID_ARGUMENT : tow_nvml_refresh();
    if (result == NVML_SUCCESS && (device->known >> id & 1) == 0) {
        result = tow_nvml_refuse(tow_nvml_gauge_names[id]);
    }
    if (result == NVML_SUCCESS) {
        *ret_value = device->gauge[id];
    }
    return tow_nvml_end(result);
}

static int gauge_one(void *handle, enum tow_gauge_id id, unsigned *ret_value)
{
    int64_t value = 0;
    int result = ret_value == NULL ? NVML_ERROR_INVALID_ARGUMENT : gauge_number(handle, id, &value);
    if (result == NVML_SUCCESS) {
        *ret_value = (unsigned)value;
    }
    return result;
}

static int gauge_two(void *handle, enum tow_gauge_id a, enum tow_gauge_id b, unsigned *ret_a,
                     unsigned *ret_b)
{
    unsigned first = 0, second = 0;
    if (ret_a == NULL || ret_b == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    int result = gauge_one(handle, a, &first);
    if (result == NVML_SUCCESS) {
        result = gauge_one(handle, b, &second);
    }
    if (result == NVML_SUCCESS) {
        *ret_a = first;
        *ret_b = second;
    }
    return result;
}

#define ONE(function, gauge)                                                                       \
    TOW_NVML_PUBLIC int function(void *handle, unsigned *ret_value)                                \
    {                                                                                              \
        return gauge_one(handle, TOW_GAUGE_##gauge, ret_value);                                    \
    }
#define TWO(function, a, b)                                                                        \
    TOW_NVML_PUBLIC int function(void *handle, unsigned *ret_a, unsigned *ret_b)                   \
    {                                                                                              \
        return gauge_two(handle, TOW_GAUGE_##a, TOW_GAUGE_##b, ret_a, ret_b);                      \
    }

ONE(nvmlDeviceGetPowerUsage, power)
ONE(nvmlDeviceGetEnforcedPowerLimit, power_limit)
ONE(nvmlDeviceGetPowerManagementLimit, power_management_limit)
ONE(nvmlDeviceGetPowerManagementDefaultLimit, power_default_limit)
TWO(nvmlDeviceGetPowerManagementLimitConstraints, power_min_limit, power_max_limit)
ONE(nvmlDeviceGetPerformanceState, performance_state)
ONE(nvmlDeviceGetPowerState, performance_state)
ONE(nvmlDeviceGetFanSpeed, fan_speed)
ONE(nvmlDeviceGetMinorNumber, minor)
ONE(nvmlDeviceGetBrand, brand)
TWO(nvmlDeviceGetEccMode, ecc_current, ecc_pending)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
ONE(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max)
ONE(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max)
ONE(nvmlDeviceGetPersistenceMode, persistence)
ONE(nvmlDeviceGetComputeMode, compute_mode)
ONE(nvmlDeviceGetDisplayActive, display_active)
ONE(nvmlDeviceGetDisplayMode, display_mode)
TWO(nvmlDeviceGetMigMode, mig_current, mig_pending)
ONE(nvmlDeviceGetNumGpuCores, cores)
ONE(nvmlDeviceGetMaxMigDeviceCount, mig_devices_max)
ONE(nvmlDeviceGetVirtualizationMode, virtualization)

/* What the server's library said is the result. */
TOW_NVML_PUBLIC int nvmlDeviceValidateInforom(void *handle)
{
    unsigned said = 0;
    int result = gauge_one(handle, TOW_GAUGE_inforom, &said);
    return result == NVML_SUCCESS ? (int)said : result;
}

TOW_NVML_PUBLIC int nvmlDeviceGetUtilizationRates(void *handle, struct nvml_utilization *load)
{
    return load == NULL ? NVML_ERROR_INVALID_ARGUMENT
                        : gauge_two(handle, TOW_GAUGE_util_gpu, TOW_GAUGE_util_memory, &load->gpu,
                                    &load->memory);
}

static int gauge_codec(void *handle, enum tow_gauge_id id, unsigned *ret_load,
                       unsigned *ret_period_us)
{
    if (ret_period_us == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    int result = gauge_one(handle, id, ret_load);
    if (result == NVML_SUCCESS) {
        *ret_period_us = 0;
    }
    return result;
}

TOW_NVML_PUBLIC int nvmlDeviceGetEncoderUtilization(void *handle, unsigned *ret_load,
                                                    unsigned *ret_period_us)
{
    return gauge_codec(handle, TOW_GAUGE_util_encoder, ret_load, ret_period_us);
}

TOW_NVML_PUBLIC int nvmlDeviceGetDecoderUtilization(void *handle, unsigned *ret_load,
                                                    unsigned *ret_period_us)
{
    return gauge_codec(handle, TOW_GAUGE_util_decoder, ret_load, ret_period_us);
}

static int gauge_wide(void *handle, enum tow_gauge_id id, unsigned long long *ret_value)
{
    int64_t value = 0;
    int result = ret_value == NULL ? NVML_ERROR_INVALID_ARGUMENT : gauge_number(handle, id, &value);
    if (result == NVML_SUCCESS) {
        *ret_value = (unsigned long long)value;
    }
    return result;
}

TOW_NVML_PUBLIC int nvmlDeviceGetTotalEnergyConsumption(void *handle,
                                                        unsigned long long *ret_energy)
{
    return gauge_wide(handle, TOW_GAUGE_energy, ret_energy);
}

/* Kind: corrected, uncorrected. Since: the driver was loaded, ever. */
TOW_NVML_PUBLIC int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int since,
                                                unsigned long long *ret_errors)
{
    return kind < 0 || kind > 1 || since < 0 || since > 1
               ? NVML_ERROR_INVALID_ARGUMENT
               : gauge_wide(handle, TOW_GAUGE_ecc_corrected + 2 * kind + since, ret_errors);
}

/* There is one sensor: the GPU's. */
TOW_NVML_PUBLIC int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *ret_temperature)
{
    return sensor != 0 ? NVML_ERROR_INVALID_ARGUMENT
                       : gauge_one(handle, TOW_GAUGE_temperature, ret_temperature);
}

TOW_NVML_PUBLIC int nvmlDeviceGetTemperatureV(void *handle, struct nvml_temperature *temperature)
{
    unsigned value = 0;
    if (temperature == NULL || temperature->sensor != 0) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (temperature->version != (sizeof *temperature | 1u << 24)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    int result = gauge_one(handle, TOW_GAUGE_temperature, &value);
    if (result == NVML_SUCCESS) {
        temperature->temperature = (int)value;
    }
    return result;
}

TOW_NVML_PUBLIC int nvmlDeviceGetTemperatureThreshold(void *handle, int which, unsigned *ret_value)
{
    switch (which) {
    case 0:
        return gauge_one(handle, TOW_GAUGE_temperature_shutdown, ret_value);
    case 1:
        return gauge_one(handle, TOW_GAUGE_temperature_slowdown, ret_value);
    default:
        return which < 0 || which > 7 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    }
}

/* Graphics, SM, memory, video. */
TOW_NVML_PUBLIC int nvmlDeviceGetClockInfo(void *handle, int which, unsigned *ret_mhz)
{
    static const enum tow_gauge_id clocks[] = {TOW_GAUGE_clock_graphics, TOW_GAUGE_clock_sm,
                                               TOW_GAUGE_clock_memory, TOW_GAUGE_clock_video};
    return which < 0 || which > 3 ? NVML_ERROR_INVALID_ARGUMENT
                                  : gauge_one(handle, clocks[which], ret_mhz);
}

static int gauge_fact(void *handle, int64_t (*get)(const struct tow_nvml_device *),
                      unsigned *ret_value)
{
    int result = ret_value == NULL ? NVML_ERROR_INVALID_ARGUMENT : tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    const struct tow_nvml_device *device = tow_nvml_device(handle);
    if (device == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    int64_t value = get(device);
    if (value <= 0) {
        return tow_nvml_end(NVML_ERROR_NOT_SUPPORTED);
    }
    *ret_value = (unsigned)value;
    return tow_nvml_end(NVML_SUCCESS);
}

static int64_t sm_clock(const struct tow_nvml_device *device)
{
    return device->clock_khz / 1000;
}

static int64_t memory_clock(const struct tow_nvml_device *device)
{
    return device->memory_clock_khz / 1000;
}

static int64_t bus_width(const struct tow_nvml_device *device)
{
    return device->bus_width;
}

TOW_NVML_PUBLIC int nvmlDeviceGetMaxClockInfo(void *handle, int which, unsigned *ret_mhz)
{
    static const enum tow_gauge_id clocks[] = {TOW_GAUGE_max_clock_graphics, TOW_GAUGE_max_clock_sm,
                                               TOW_GAUGE_max_clock_memory,
                                               TOW_GAUGE_max_clock_video};
    if (which < 0 || which > 3) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    int result = gauge_one(handle, clocks[which], ret_mhz);
    if (result == NVML_ERROR_NOT_SUPPORTED && which != 3) {
        result =
            gauge_fact(handle, which == 2 ? memory_clock : sm_clock, ret_mhz); /* CUDA knows them */
    }
    return result;
}

TOW_NVML_PUBLIC int nvmlDeviceGetMemoryBusWidth(void *handle, unsigned *ret_bits)
{
    int result = gauge_one(handle, TOW_GAUGE_bus_width, ret_bits);
    return result == NVML_ERROR_NOT_SUPPORTED ? gauge_fact(handle, bus_width, ret_bits) : result;
}
