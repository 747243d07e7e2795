/* SPDX-License-Identifier: Apache-2.0 */
/* What a server's report says of a GPU's state beside CUDA's own facts: whole numbers under these
 * names in the device's "gauges" object, each only where the server knows it. Written by
 * src/server/beside/gauge.c, read by src/nvml. */
#ifndef TOW_WIRE_GAUGES_H
#define TOW_WIRE_GAUGES_H

/* GAUGE(NAME): bytes, per cent, degrees Celsius, milliwatts, millijoules, MHz; else NVML's number.
 * The four counts of memory errors stand in the order of NVML's numbers for them. */
#define TOW_GAUGES(GAUGE)                                                                          \
    GAUGE(memory_total)                                                                            \
    GAUGE(memory_free)                                                                             \
    GAUGE(memory_used)                                                                             \
    GAUGE(memory_reserved)                                                                         \
    GAUGE(util_gpu)                                                                                \
    GAUGE(util_memory)                                                                             \
    GAUGE(util_encoder)                                                                            \
    GAUGE(util_decoder)                                                                            \
    GAUGE(temperature)                                                                             \
    GAUGE(temperature_shutdown)                                                                    \
    GAUGE(temperature_slowdown)                                                                    \
    GAUGE(power)                                                                                   \
    GAUGE(power_limit)                                                                             \
    GAUGE(power_management_limit)                                                                  \
    GAUGE(power_default_limit)                                                                     \
    GAUGE(power_min_limit)                                                                         \
    GAUGE(power_max_limit)                                                                         \
    GAUGE(energy)                                                                                  \
    GAUGE(clock_graphics)                                                                          \
    GAUGE(clock_sm)                                                                                \
    GAUGE(clock_memory)                                                                            \
    GAUGE(clock_video)                                                                             \
    GAUGE(max_clock_graphics)                                                                      \
    GAUGE(max_clock_sm)                                                                            \
    GAUGE(max_clock_memory)                                                                        \
    GAUGE(max_clock_video)                                                                         \
    GAUGE(performance_state)                                                                       \
    GAUGE(fan_speed)                                                                               \
    GAUGE(minor)                                                                                   \
    GAUGE(brand)                                                                                   \
    GAUGE(ecc_current)                                                                             \
    GAUGE(ecc_pending)                                                                             \
    GAUGE(ecc_corrected)                                                                           \
    GAUGE(ecc_corrected_ever)                                                                      \
    GAUGE(ecc_uncorrected)                                                                         \
    GAUGE(ecc_uncorrected_ever)                                                                    \
    GAUGE(pcie_generation)                                                                         \
    GAUGE(pcie_width)                                                                              \
    GAUGE(pcie_generation_max)                                                                     \
    GAUGE(pcie_width_max)                                                                          \
    GAUGE(persistence)                                                                             \
    GAUGE(compute_mode)                                                                            \
    GAUGE(display_active)                                                                          \
    GAUGE(display_mode)                                                                            \
    GAUGE(mig_current)                                                                             \
    GAUGE(mig_pending)                                                                             \
    GAUGE(mig_devices_max)                                                                         \
    GAUGE(virtualization)                                                                          \
    GAUGE(inforom)                                                                                 \
    GAUGE(cores)                                                                                   \
    GAUGE(bus_width)                                                                               \
    GAUGE(pci_device_id)                                                                           \
    GAUGE(pci_subsystem_id)                                                                        \
    GAUGE(bar1_total)                                                                              \
    GAUGE(bar1_free)                                                                               \
    GAUGE(bar1_used)

enum tow_gauge_id {
#define TOW_GAUGE_ID(name) TOW_GAUGE_##name,
    TOW_GAUGES(TOW_GAUGE_ID)
#undef TOW_GAUGE_ID
        TOW_GAUGE_COUNT, /* at most 64: a word of bits says which are known */
};

/* libnvidia-ml.so.1 of ours names itself so when asked for the text of this error. */
#define TOW_NVML_OURS_CODE 0x544f574c
#define TOW_NVML_OURS_TEXT "Towline"

#endif
