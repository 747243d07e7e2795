/* SPDX-License-Identifier: Apache-2.0 */
/* What a server's report says, for who shows it. */
#ifndef TOW_WIRE_REPORT_H
#define TOW_WIRE_REPORT_H

#include "base/json_read.h"

/* A GPU of a server. Texts are the report's. */
struct tow_report_gpu {
    const char *name, *uuid, *pci, *capability;
    int64_t index;          /* the server's own number */
    double multiprocessors; /* how many */
    double memory, used;    /* bytes */
    int busy;               /* per cent of the last moment; -1: the server does not know */
};

/* Walks the GPUs of a report: 0 starts, false ends. What is used of a GPU's memory is what NVIDIA's
 * management library says on the server; without it, as on a software GPU, what all sessions hold.
 */
bool tow_report_gpu(const struct tow_json_doc *doc, unsigned nth, struct tow_report_gpu *ret_gpu);

/* What NVIDIA's management library says of a GPU: numbers by the names of wire/gauges.h. NULL: it
 * says nothing. */
const struct tow_json_value *tow_report_gauges(const struct tow_json_doc *doc, const char *uuid);

/* The version of the GPUs' driver, "" if the server does not know. */
const char *tow_report_driver(const struct tow_json_doc *doc);

#endif
