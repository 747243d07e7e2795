/* SPDX-License-Identifier: Apache-2.0 */
/* Beginning and ending, the servers' reports, the list of devices. */
#include "base/mutex.h"
#include "nvml/nvml.h"
#include "nvml/nvml_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_read.h"
#include "base/log.h"
#include "transport/address.h"
#include "transport/choose.h"
#include "transport/limit.h"
#include "wire/control.h"
#include "wire/limits.h"

enum { SERVERS_MAX = 16 };

static const int64_t fresh_ns = 50 * TOW_TIME_MS;     /* how long a report is good */
static const int64_t start_ns = 10 * TOW_TIME_S;      /* how long a server may take to start */
static const int64_t pause_ns = 20 * TOW_TIME_MS;     /* between two questions */
static const int64_t numbers_ns = 1500 * TOW_TIME_MS; /* how long we wait for new numbers */
static const double old_s = 1.0; /* numbers older than this are asked for again */

static struct {
    struct tow_mutex lock; /* guards all here */
    unsigned users;
    char servers[SERVERS_MAX][TOW_ADDRESS_MAX];
    unsigned server_count;
    struct tow_nvml_device *devices; /* owned, never freed: handles point into it */
    unsigned count;
    struct tow_nvml_system everywhere;
    int64_t taken_ns;
    bool stale;
} known = {.lock = TOW_MUTEX(NVML)};

/* ---- reading a report ---- */

static void copy_text(char *into, const char *text)
{
    snprintf(into, TOW_NVML_TEXT_MAX, "%s", text);
}

const char *const tow_nvml_gauge_names[] = {
#define TOW_GAUGE_NAME(name) #name,
    TOW_GAUGES(TOW_GAUGE_NAME)
#undef TOW_GAUGE_NAME
};

static void take_gauges(struct tow_nvml_device *device, const struct tow_json_doc *doc,
                        const struct tow_json_value *object)
{
    device->known = 0;
    copy_text(device->serial, tow_json_text(doc, object, "serial"));
    copy_text(device->vbios, tow_json_text(doc, object, "vbios"));
    for (unsigned i = 0; i < TOW_GAUGE_COUNT; i++) {
        const struct tow_json_value *value = tow_json_member(doc, object, tow_nvml_gauge_names[i]);
        if (value != NULL && value->type == TOW_JSON_NUMBER) {
            device->known |= UINT64_C(1) << i;
            device->gauge[i] = tow_json_whole(value);
        }
    }
}

/* A number of a list; 0 if it is not there. */
static uint64_t state_item(const struct tow_json_doc *doc, const struct tow_json_value *list,
                           int index)
{
    const struct tow_json_value *value = NULL;
    for (int i = 0; i <= index; i++) {
        value = tow_json_next(doc, list, value);
        if (value == NULL) {
            return 0;
        }
    }
    return (uint64_t)tow_json_whole(value);
}

static int64_t state_number(const struct tow_json_doc *doc, const struct tow_json_value *object,
                            const char *name)
{
    return tow_json_whole(tow_json_member(doc, object, name));
}

static void take_sessions(struct tow_nvml_device *device, const struct tow_json_doc *doc,
                          const struct tow_json_value *sessions)
{
    const struct tow_json_value *session = NULL;
    device->held = device->charged = 0;
    device->process_count = 0;
    while ((session = tow_json_next(doc, sessions, session)) != NULL) {
        bool here = state_number(doc, session, "gpu") == device->ordinal;
        uint64_t memory = here ? (uint64_t)state_number(doc, session, "memory") : 0;
        const struct tow_json_value *used = tow_json_member(doc, session, "used");
        const struct tow_json_value *charged = tow_json_member(doc, session, "charged");
        device->charged += state_item(doc, charged, device->ordinal);
        device->held += used == NULL ? memory : state_item(doc, used, device->ordinal);
        if (!here) {
            continue;
        }
        if (device->process_count < TOW_NVML_PROCESSES_MAX) {
            struct tow_nvml_process *process = &device->process[device->process_count++];
            process->pid = (uint32_t)state_number(doc, session, "client_pid");
            process->memory = memory;
            snprintf(process->name, sizeof process->name, "%s",
                     tow_json_text(doc, session, "client"));
        }
    }
}

/* With a quota the GPU is as large as that, and what is in use is what counts against it. */
static void take_quota(struct tow_nvml_device *device, const struct tow_json_doc *doc,
                       const struct tow_json_value *root)
{
    const struct tow_json_value *limit =
        tow_json_member(doc, tow_json_member(doc, root, "limits"), "gpu-memory");
    uint64_t quota = (uint64_t)state_number(doc, limit, "limit"), asked = 0;
    char why[TOW_WHY_MAX];
    if (limit != NULL && tow_limit_gpu_memory(&asked, why, sizeof why) == 0 && asked != 0) {
        quota = quota == 0 || asked < quota ? asked : quota;
    }
    device->quota = quota < device->memory ? quota : 0;
}

static void take_facts(struct tow_nvml_device *device, const struct tow_json_doc *doc,
                       const struct tow_json_value *object)
{
    copy_text(device->name, tow_json_text(doc, object, "name"));
    copy_text(device->uuid, tow_json_text(doc, object, "uuid"));
    sscanf(tow_json_text(doc, object, "pci"), "%x:%x:%x", &device->domain, &device->bus,
           &device->slot);
    sscanf(tow_json_text(doc, object, "capability"), "%d.%d", &device->major, &device->minor);
    device->memory = (uint64_t)state_number(doc, object, "memory");
    device->bus_width = state_number(doc, object, "bus_width");
    device->clock_khz = state_number(doc, object, "clock_khz");
    device->memory_clock_khz = state_number(doc, object, "memory_clock_khz");
    device->cuda = (int)state_number(doc, object, "cuda");
    const struct tow_json_value *peers = tow_json_member(doc, object, "peers"), *peer = NULL;
    device->peers = 0;
    for (unsigned i = 0; i < 64 && (peer = tow_json_next(doc, peers, peer)) != NULL; i++) {
        device->peers |= (uint64_t)(peer->number != 0) << i;
    }
}

static uint64_t pci_key(const struct tow_nvml_device *device)
{
    return (uint64_t)device->server << 56 | (uint64_t)device->domain << 24 |
           (uint64_t)device->bus << 8 | device->slot;
}

/* The first report of a server: its devices join the list, by PCI address within a server. */
static void add_device(const struct tow_nvml_device *device)
{
    if (known.count == TOW_NVML_DEVICES_MAX) {
        return;
    }
    unsigned place = known.count++;
    while (place > 0 && pci_key(&known.devices[place - 1]) > pci_key(device)) {
        known.devices[place] = known.devices[place - 1];
        place--;
    }
    known.devices[place] = *device;
    for (unsigned i = 0; i < known.count; i++) {
        known.devices[i].index = i;
    }
}

static struct tow_nvml_device *find_device(unsigned server, int ordinal)
{
    for (unsigned i = 0; i < known.count; i++) {
        if (known.devices[i].server == server && known.devices[i].ordinal == ordinal) {
            return &known.devices[i];
        }
    }
    return NULL;
}

/* False if the server is still starting, or its numbers (at first: any) are to come. */
static bool is_whole(const struct tow_json_doc *doc, bool first, bool *ret_usable)
{
    const struct tow_json_value *root = doc->values;
    const struct tow_json_value *list = tow_json_member(doc, root, "devices");
    const struct tow_json_value *gauges = tow_json_member(doc, root, "gauges");
    *ret_usable = tow_json_next(doc, list, NULL) != NULL;
    if (!*ret_usable) {
        return tow_json_text(doc, root, "failure")[0] != '\0';
    }
    if (tow_json_number(doc, gauges, "running") == 0) {
        return true;
    }
    const struct tow_json_value *age = tow_json_member(doc, gauges, "age_s");
    return age != NULL && (first || age->number < old_s);
}

static void take_report(unsigned server, const struct tow_json_doc *doc, bool first)
{
    const struct tow_json_value *root = doc->values;
    const struct tow_json_value *list = tow_json_member(doc, root, "devices");
    const struct tow_json_value *gauges = tow_json_member(doc, root, "gauges");
    const struct tow_json_value *states = tow_json_member(doc, gauges, "devices");
    const struct tow_json_value *object = NULL;
    while ((object = tow_json_next(doc, list, object)) != NULL) {
        int64_t index = state_number(doc, object, "index");
        if (index < 0 || index >= TOW_NVML_DEVICES_MAX) {
            continue; /* `peers` has no bit for it */
        }
        struct tow_nvml_device fresh = {.server = server, .ordinal = (int)index};
        if (first) {
            take_facts(&fresh, doc, object);
            add_device(&fresh);
        }
        struct tow_nvml_device *device = find_device(server, fresh.ordinal);
        if (device == NULL) {
            continue;
        }
        take_sessions(device, doc, tow_json_member(doc, root, "sessions"));
        take_quota(device, doc, root);
        /* What this user may not see is in use all the same. */
        device->held +=
            state_item(doc, tow_json_member(doc, tow_json_member(doc, root, "others"), "used"),
                       device->ordinal);
        device->known = 0;
        const struct tow_json_value *state = NULL;
        while ((state = tow_json_next(doc, states, state)) != NULL) {
            if (strcmp(tow_json_text(doc, state, "uuid"), device->uuid) == 0) {
                take_gauges(device, doc, state);
            }
        }
        if (known.everywhere.cuda == 0 ||
            (device->cuda != 0 && device->cuda < known.everywhere.cuda)) {
            known.everywhere.cuda = device->cuda;
        }
    }
    if (first && known.everywhere.driver[0] == '\0') {
        const char *driver = tow_json_text(doc, gauges, "driver");
        const char *library = tow_json_text(doc, gauges, "library");
        /* Without NVIDIA's driver the driver is Towline's own. */
        copy_text(known.everywhere.driver,
                  driver[0] != '\0' ? driver : tow_json_text(doc, root, "version"));
        copy_text(known.everywhere.library, library[0] != '\0' ? library : TOWLINE_VERSION);
    }
}

static int state_ask(unsigned server, bool first)
{
    int64_t deadline = tow_time_deadline(first ? start_ns : numbers_ns);
    for (;;) {
        struct tow_buf report;
        struct tow_json_doc doc = {0};
        char why[TOW_WHY_MAX];
        bool usable = false, whole = false;
        tow_buf_init(&report, TOW_FRAME_MAX);
        /* At first the devices are wanted, and many programs never ask for more. */
        int error = tow_ask_report(known.servers[server], first ? TOW_STATUS_AT_HAND : 0, &report,
                                   why, sizeof why);
        if (error == 0) {
            error = tow_json_doc_parse((const char *)report.data, report.size, &doc);
        }
        if (error == 0) {
            whole = is_whole(&doc, first, &usable);
        }
        bool last = whole || error < 0 || tow_time_passed(deadline);
        if (error == 0 && last && usable) {
            take_report(server, &doc, first);
        }
        tow_json_doc_fini(&doc);
        tow_buf_fini(&report);
        if (last) {
            return error < 0 || !usable ? -1 : 0;
        }
        tow_time_sleep(pause_ns);
    }
}

/* ---- beginning and ending ---- */

/* With the lock held. */
static int state_begin(void)
{
    char text[TOW_SERVERS_TEXT_MAX], why[TOW_WHY_MAX];
    int choice = tow_choose_servers(text, why, sizeof why);
    static bool said; /* the lock guards it */
    if (choice < 0 && !said) {
        said = true;
        tow_log(TOW_AREA_NVML, TOW_LOG_ERROR, "%s", why);
    }
    if (choice < 0 || choice == TOW_CHOICE_NONE) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    if (known.devices == NULL) {
        known.devices = calloc(TOW_NVML_DEVICES_MAX, sizeof *known.devices);
        if (known.devices == NULL) {
            return NVML_ERROR_DRIVER_NOT_LOADED;
        }
    }
    known.count = 0;
    known.server_count = 0;
    memset(&known.everywhere, 0, sizeof known.everywhere);
    char *rest = text, *address;
    while ((address = tow_address_next(&rest)) != NULL && known.server_count < SERVERS_MAX) {
        snprintf(known.servers[known.server_count], sizeof known.servers[0], "%s", address);
        if (state_ask(known.server_count, true) < 0) {
            return NVML_ERROR_DRIVER_NOT_LOADED;
        }
        known.server_count++;
    }
    known.stale = true; /* whoever asks for numbers gets new ones */
    return known.count > 0 ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

TOW_NVML_PUBLIC int nvmlInit_v2(void)
{
    tow_mutex_lock(&known.lock);
    int result = known.users == 0 ? state_begin() : NVML_SUCCESS;
    if (result == NVML_SUCCESS) {
        known.users++;
    }
    tow_mutex_unlock(&known.lock);
    return result;
}

TOW_NVML_PUBLIC int nvmlInit(void)
{
    return nvmlInit_v2();
}

TOW_NVML_PUBLIC int nvmlInitWithFlags(unsigned flags)
{
    (void)flags; /* they allow to go on without a GPU, or without touching it: so do we */
    return nvmlInit_v2();
}

TOW_NVML_PUBLIC int nvmlShutdown(void)
{
    tow_mutex_lock(&known.lock);
    int result = known.users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (known.users > 0) {
        known.users--;
    }
    tow_mutex_unlock(&known.lock);
    return result;
}

int tow_nvml_begin(void)
{
    tow_mutex_lock(&known.lock);
    if (known.users == 0) {
        tow_mutex_unlock(&known.lock);
        return NVML_ERROR_UNINITIALIZED;
    }
    return NVML_SUCCESS;
}

int tow_nvml_end(int result)
{
    tow_mutex_unlock(&known.lock);
    return result;
}

int tow_nvml_refuse(const char *what)
{
    tow_log(TOW_AREA_NVML, TOW_LOG_DEBUG, "%s is not supported", what);
    return NVML_ERROR_NOT_SUPPORTED;
}

/* ---- for the functions, between begin and end ---- */

struct tow_nvml_device *tow_nvml_device(void *handle)
{
    for (unsigned i = 0; i < known.count; i++) {
        if (handle == &known.devices[i]) {
            return &known.devices[i];
        }
    }
    return NULL;
}

unsigned tow_nvml_count(void)
{
    return known.count;
}

struct tow_nvml_device *tow_nvml_at(unsigned index)
{
    return index < known.count ? &known.devices[index] : NULL;
}

const struct tow_nvml_system *tow_nvml_system(void)
{
    return &known.everywhere;
}

int tow_nvml_refresh_now(void)
{
    for (unsigned i = 0; i < known.server_count; i++) {
        if (state_ask(i, false) < 0) {
            known.stale = true;
            return NVML_ERROR_GPU_IS_LOST;
        }
    }
    known.taken_ns = tow_time_now_ns();
    known.stale = false;
    return NVML_SUCCESS;
}

int tow_nvml_refresh(void)
{
    return !known.stale && tow_time_now_ns() - known.taken_ns < fresh_ns ? NVML_SUCCESS
                                                                         : tow_nvml_refresh_now();
}

int tow_nvml_give_text(const char *text, char *into, unsigned size)
{
    if (into == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (text[0] == '\0') {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (strlen(text) >= size) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    snprintf(into, size, "%s", text);
    return NVML_SUCCESS;
}
