/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a server's report: which GPUs, and what is used of them. */
#include "wire/report.h"

#include <string.h>

/* The nth number of an array, 0 if it is shorter. */
static double report_item(const struct tow_json_doc *doc, const struct tow_json_value *array,
                          unsigned nth)
{
    const struct tow_json_value *item = NULL;
    while ((item = tow_json_next(doc, array, item)) != NULL) {
        if (nth-- == 0) {
            return item->type == TOW_JSON_NUMBER ? item->number : 0;
        }
    }
    return 0;
}

/* What sessions hold of the nth GPU, those that are not shown included. */
static double report_held(const struct tow_json_doc *doc, unsigned nth)
{
    const struct tow_json_value *root = doc->values, *session = NULL;
    const struct tow_json_value *sessions = tow_json_member(doc, root, "sessions");
    const struct tow_json_value *others = tow_json_member(doc, root, "others");
    double held = report_item(doc, tow_json_member(doc, others, "used"), nth);
    while ((session = tow_json_next(doc, sessions, session)) != NULL) {
        const struct tow_json_value *used = tow_json_member(doc, session, "used");
        if (used != NULL) {
            held += report_item(doc, used, nth);
        } else if (tow_json_whole(tow_json_member(doc, session, "gpu")) == (int64_t)nth) {
            held += tow_json_number(doc, session, "memory");
        }
    }
    return held;
}

const struct tow_json_value *tow_report_gauges(const struct tow_json_doc *doc, const char *uuid)
{
    const struct tow_json_value *gauges = tow_json_member(doc, doc->values, "gauges");
    const struct tow_json_value *devices = tow_json_member(doc, gauges, "devices"), *device = NULL;
    while ((device = tow_json_next(doc, devices, device)) != NULL) {
        if (strcmp(tow_json_text(doc, device, "uuid"), uuid) == 0) {
            return device;
        }
    }
    return NULL;
}

bool tow_report_gpu(const struct tow_json_doc *doc, unsigned nth, struct tow_report_gpu *ret_gpu)
{
    const struct tow_json_value *devices = tow_json_member(doc, doc->values, "devices");
    const struct tow_json_value *device = NULL;
    unsigned left = nth;
    do {
        device = tow_json_next(doc, devices, device);
    } while (device != NULL && left-- > 0);
    if (device == NULL) {
        return false;
    }
    struct tow_report_gpu gpu = {
        .name = tow_json_text(doc, device, "name"),
        .uuid = tow_json_text(doc, device, "uuid"),
        .pci = tow_json_text(doc, device, "pci"),
        .capability = tow_json_text(doc, device, "capability"),
        .index = tow_json_whole(tow_json_member(doc, device, "index")),
        .multiprocessors = tow_json_number(doc, device, "multiprocessors"),
        .memory = tow_json_number(doc, device, "memory"),
        .busy = -1,
    };
    const struct tow_json_value *gauges = tow_report_gauges(doc, gpu.uuid);
    const struct tow_json_value *busy = tow_json_member(doc, gauges, "util_gpu");
    if (busy != NULL) {
        int64_t value = tow_json_whole(busy);
        gpu.busy = value < 0 ? -1 : value > 100 ? 100 : (int)value;
    }
    gpu.used = tow_json_member(doc, gauges, "memory_used") != NULL
                   ? tow_json_number(doc, gauges, "memory_used")
                   : report_held(doc, nth);
    gpu.used = gpu.used < 0 ? 0 : gpu.used > gpu.memory ? gpu.memory : gpu.used;
    *ret_gpu = gpu;
    return true;
}

const char *tow_report_driver(const struct tow_json_doc *doc)
{
    return tow_json_text(doc, tow_json_member(doc, doc->values, "gauges"), "driver");
}
