/* SPDX-License-Identifier: Apache-2.0 */
/* A monitoring program whose server is hostile: asks all there is of each device that is named. */
#include <stdio.h>
#include <string.h>

enum { GUARD = 64, DEVICES = 80, PROCESSES = 300 };

struct memory {
    unsigned long long total, free, used;
};
struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};
struct pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *name, unsigned size);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size);
int nvmlDeviceGetSerial(void *device, char *serial, unsigned size);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *temperature);
int nvmlDeviceGetMaxClockInfo(void *device, int which, unsigned *mhz);
int nvmlDeviceGetArchitecture(void *device, unsigned *architecture);
int nvmlDeviceGetP2PStatus(void *first, void *second, int index, int *status);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *list);
int nvmlSystemGetDriverVersion(char *version, unsigned size);

/* Text goes to so much room, and not beyond. */
static int texts_stay_within(void *device)
{
    char room[96 + GUARD];
    int (*const asks[])(void *, char *, unsigned) = {nvmlDeviceGetName, nvmlDeviceGetUUID,
                                                     nvmlDeviceGetSerial};
    int within = 1;
    for (unsigned i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        memset(room, 0x33, sizeof room);
        asks[i](device, room, 96);
        for (unsigned at = 96; at < sizeof room; at++) {
            within &= room[at] == 0x33;
        }
    }
    return within;
}

int main(void)
{
    void *devices[DEVICES];
    unsigned count = 0, number = 0;
    static struct process processes[PROCESSES];
    struct memory memory;
    struct pci pci;
    char version[96];
    int status, within = 1;
    if (nvmlInit_v2() != 0) {
        puts("no devices");
        return 0;
    }
    nvmlSystemGetDriverVersion(version, sizeof version);
    nvmlDeviceGetCount_v2(&count);
    count = count < DEVICES ? count : DEVICES;
    for (unsigned i = 0; i < count; i++) {
        nvmlDeviceGetHandleByIndex_v2(i, &devices[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned listed = PROCESSES;
        within &= texts_stay_within(devices[i]);
        nvmlDeviceGetPciInfo_v3(devices[i], &pci);
        nvmlDeviceGetMemoryInfo(devices[i], &memory);
        nvmlDeviceGetTemperature(devices[i], 0, &number);
        nvmlDeviceGetMaxClockInfo(devices[i], 1, &number);
        nvmlDeviceGetArchitecture(devices[i], &number);
        nvmlDeviceGetComputeRunningProcesses_v3(devices[i], &listed, processes);
        for (unsigned j = 0; j < count; j++) {
            nvmlDeviceGetP2PStatus(devices[i], devices[j], 0, &status);
        }
    }
    printf("%u devices; %s\n", count, within ? "within" : "beyond");
    return 0;
}
