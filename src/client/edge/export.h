/* SPDX-License-Identifier: Apache-2.0 */
/* The tables behind cuGetExportTable, as far as tests look at them. */
#ifndef TOW_CLIENT_EXPORT_H
#define TOW_CLIENT_EXPORT_H

#include <stdint.h>

/* What the runtime and the driver must agree on; little-endian and laid out as hashed. */
struct towc_integrity_head {
    uint32_t driver_version, version;
    uint32_t pid, thread;
    uint64_t cudart_table, integrity_table, function;
    uint64_t seconds;
};

struct towc_integrity_device {
    uint8_t uuid[16];
    int32_t pci_domain, pci_bus, pci_device;
};

void towc_integrity_mac(const struct towc_integrity_head *head,
                        const struct towc_integrity_device *devices, unsigned count,
                        uint8_t ret_mac[16]);

#endif
