/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML's functions here share: its numbers and records, and the devices of all servers.
 *
 * Nothing runs in the background and no connection is kept: each question whose answer changes asks
 * the servers' listeners for their report: for memory and processes always, else at most every
 * 50 ms. So a forked child may go on asking.
 */
#ifndef TOW_NVML_NVML_H
#define TOW_NVML_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/gauges.h"

#define TOW_NVML_PUBLIC __attribute__((visibility("default")))

/* Results, with NVML's numbers. */
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

/* Records, laid out as programs know them. */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct nvml_utilization {
    unsigned gpu, memory;
};
struct nvml_pci_v2 {
    char bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id, reserved[4];
};
struct nvml_pci_v3 {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct nvml_pci_ext {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
};
struct nvml_process_v1 {
    unsigned pid;
    unsigned long long memory;
};
struct nvml_process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};
struct nvml_field_value {
    unsigned field, scope;
    long long timestamp, latency_us;
    int type, result;
    unsigned long long value;
};
struct nvml_fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned state;
};
struct nvml_fabric_v {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned state;
    unsigned health;
    unsigned char summary; /* from version 3 on */
};
struct nvml_confidential_state {
    unsigned environment, feature, tools;
};
struct nvml_confidential {
    unsigned version, environment, feature, tools, several;
};
struct tow_nvml_events;
struct nvml_temperature {
    unsigned version;
    int sensor;
    int temperature;
};

enum {
    TOW_NVML_DEVICES_MAX = 64,
    TOW_NVML_PROCESSES_MAX = 256,
    TOW_NVML_TEXT_MAX = 96,
};

struct tow_nvml_process {
    uint32_t pid;
    uint64_t memory;
    char name[128];
};

/* One GPU of one server, as the last report had it. Its address is the handle that programs get. */
struct tow_nvml_device {
    unsigned index;
    unsigned server;
    int ordinal; /* on the server: less than TOW_NVML_DEVICES_MAX */
    char name[TOW_NVML_TEXT_MAX], uuid[TOW_NVML_TEXT_MAX];
    char serial[TOW_NVML_TEXT_MAX], vbios[TOW_NVML_TEXT_MAX];
    unsigned domain, bus, slot;
    int major, minor;
    uint64_t memory, held; /* all of it; what the server's sessions hold */
    uint64_t charged;      /* what those of whoever asks hold of their quotas */
    uint64_t quota;        /* of whoever asks: the server has no more for it; 0: all */
    int64_t bus_width, clock_khz, memory_clock_khz;
    int cuda;
    uint64_t peers; /* bit i: may reach the server's GPU i */
    uint64_t known; /* bit i: gauge[i] is there */
    int64_t gauge[TOW_GAUGE_COUNT];
    unsigned process_count;
    struct tow_nvml_process process[TOW_NVML_PROCESSES_MAX];
};

/* What all devices have in common, as the last reports had it. */
struct tow_nvml_system {
    char driver[TOW_NVML_TEXT_MAX], library[TOW_NVML_TEXT_MAX];
    int cuda;
};

/* Every function begins and ends with these. Between them nobody else changes anything. Begin
 * answers NVML_ERROR_UNINITIALIZED if that is so; then there is nothing to end. */
int tow_nvml_begin(void);
int tow_nvml_end(int result);
/* NVML_ERROR_NOT_SUPPORTED; `what` is named in the log (TOWLINE_LOG=nvml=debug). */
int tow_nvml_refuse(const char *what);
/* In the report, by TOW_GAUGE_*. */
extern const char *const tow_nvml_gauge_names[];
/* The device of a handle; NULL if it is none. */
struct tow_nvml_device *tow_nvml_device(void *handle);
unsigned tow_nvml_count(void);
struct tow_nvml_device *tow_nvml_at(unsigned index);
const struct tow_nvml_system *tow_nvml_system(void);
/* Brings the numbers up to date, if they are older than 50 ms. NVML_ERROR_GPU_IS_LOST if the server
 * does not answer. */
int tow_nvml_refresh(void);
/* However new they are: for what programs compare with what they have just done. */
int tow_nvml_refresh_now(void);

/* Copies a text out: NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_INSUFFICIENT_SIZE,
 * NVML_ERROR_NOT_SUPPORTED for an empty one. */
int tow_nvml_give_text(const char *text, char *into, unsigned size);

#endif
