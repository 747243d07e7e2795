/* SPDX-License-Identifier: Apache-2.0 */
/* Looks into code images for what prints. */
#include "server/code/printf_scan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/unpack.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/device.h"
#include "server/code/code.h"
#include "server/session/session.h"
#include "wire/image.h"

/* What device code calls to print, by name in machine code and in PTX. */
#define PRINTER "vprintf"

struct job {
    struct tows_code_image *image; /* taken once */
    struct job *next;
};

struct printf_scan {
    atomic_bool found;     /* one that prints: it stays among the session's `printers` */
    struct tow_mutex lock; /* guards the rest */
    struct job *jobs;
    bool running;
};

static bool scan_mentions(const uint8_t *bytes, size_t size)
{
    return memmem(bytes, size, PRINTER, strlen(PRINTER)) != NULL;
}

/* One entry of a fat binary; what cannot be read is taken to print. */
static bool entry_has_printf(const struct tow_entry *entry)
{
    if (!entry->is_packed) {
        return scan_mentions(entry->payload, entry->size);
    }
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (tow_entry_unpack(entry, &bytes, &size) < 0) {
        return true;
    }
    bool has_printf = scan_mentions(bytes, size);
    free(bytes);
    return has_printf;
}

/* Calls entry_has_printf for the entries of a kind that a GPU of `major` (0: any) can run. */
static bool entries_have_printf(const uint8_t *image, size_t size, unsigned kind, unsigned major,
                                unsigned *ret_count)
{
    struct tow_entry entry;
    size_t at = 0;
    uint64_t body;
    *ret_count = 0;
    int more = tow_entry_first(image, size, &at, &body);
    while (more >= 0 && (more = tow_entry_next(image, size, &at, &entry)) > 0) {
        if (entry.kind == kind && (major == 0 || entry.sm / 10 == major)) {
            ++*ret_count;
            if (entry_has_printf(&entry)) {
                return true;
            }
        }
    }
    return more < 0;
}

static bool fatbin_has_printf(const uint8_t *image, size_t size, unsigned major)
{
    /* Machine code for the GPU that is there, else what the driver would compile. */
    unsigned count = 0;
    bool has_printf = entries_have_printf(image, size, TOW_ENTRY_ELF, major, &count);
    if (!has_printf && (count == 0 || major == 0)) {
        has_printf = entries_have_printf(image, size, TOW_ENTRY_PTX, 0, &count);
    }
    return has_printf;
}

static bool image_has_printf(const struct tows_code_image *image, unsigned major)
{
    if (image->form == TOW_IMAGE_FATBIN) {
        return fatbin_has_printf(image->bytes, image->size, major);
    }
    if (image->form == TOW_IMAGE_BUNDLE) {
        /* The parts lie one behind another, each begins with its own length. */
        for (size_t i = 0; image->parts != NULL && image->parts[i] != NULL; i++) {
            const uint8_t *part = image->parts[i];
            size_t left = image->size - (size_t)(part - image->bytes);
            size_t header = 0;
            uint64_t body = 0;
            uint64_t size = tow_entry_first(part, left, &header, &body) == 0 ? header + body : 0;
            if (size == 0 || size > left || fatbin_has_printf(part, (size_t)size, major)) {
                return true;
            }
        }
        return false;
    }
    return scan_mentions(image->bytes, image->size);
}

/* The one generation of GPUs here, or 0 if there are several. */
static unsigned major_here(struct tows_session *session)
{
    int count = 0, first = 0;
    tow_drive(session->driver, cuDeviceGetCount)(&count);
    for (int i = 0; i < count; i++) {
        int major = 0;
        CUdevice device = 0;
        if (tow_drive(session->driver, cuDeviceGet)(&device, i) != CUDA_SUCCESS ||
            tow_drive(session->driver, cuDeviceGetAttribute)(
                &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) != CUDA_SUCCESS ||
            (first != 0 && major != first)) {
            return 0;
        }
        first = major;
    }
    return (unsigned)first;
}

static void scan_look(struct tows_session *session, struct printf_scan *scan,
                      struct tows_code_image *image)
{
    if (!atomic_load(&scan->found) && image_has_printf(image, major_here(session))) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_DEBUG, "the client's code prints");
        if (!atomic_exchange(&scan->found, true)) {
            atomic_fetch_add(&session->printers, 1);
        }
    }
}

static void *looking_thread(void *arg)
{
    struct tows_session *session = arg;
    struct printf_scan *scan = tows_session_state(session, TOW_SESSION_PRINTF_SCAN);
    tow_mutex_lock(&scan->lock);
    while (scan->jobs != NULL) {
        struct job *job = scan->jobs;
        scan->jobs = job->next;
        tow_mutex_unlock(&scan->lock);
        scan_look(session, scan, job->image);
        tows_code_unref(session, job->image);
        free(job);
        atomic_fetch_sub(&session->printers, 1);
        tow_mutex_lock(&scan->lock);
    }
    scan->running = false;
    tow_mutex_unlock(&scan->lock);
    return NULL;
}

static void scan_fini(struct tows_session *session, void *opaque)
{
    struct printf_scan *scan = opaque;
    (void)session;
    tow_mutex_fini(&scan->lock);
}

static void scan_init(struct tows_session *session, void *opaque)
{
    struct printf_scan *state = opaque;
    tow_mutex_init(&state->lock, SERVER_PRINTF_SCAN);
}

static struct printf_scan *state_of(struct tows_session *session)
{
    static const struct tows_family_ops ops = {TOW_SESSION_PRINTF_SCAN, sizeof(struct printf_scan),
                                               scan_init, scan_fini};
    return tows_session_make_state(session, &ops);
}

/* Hands the image to the thread beside; false if that cannot be. */
static bool look_later(struct tows_session *session, struct printf_scan *scan,
                       struct tows_code_image *image)
{
    struct job *job = malloc(sizeof *job);
    if (job == NULL) {
        return false;
    }
    *job = (struct job){image, NULL};
    tows_code_ref(session, image);
    atomic_fetch_add(&session->printers, 1);
    tow_mutex_lock(&scan->lock);
    job->next = scan->jobs;
    scan->jobs = job;
    bool running = scan->running;
    if (!running) {
        pthread_t thread;
        running = tow_thread_start("towline-prints", looking_thread, session, &thread) == 0;
        if (running) {
            pthread_detach(thread);
        } else {
            scan->jobs = job->next;
        }
        scan->running = running;
    }
    tow_mutex_unlock(&scan->lock);
    if (!running) {
        tows_code_unref(session, image);
        free(job);
        atomic_fetch_sub(&session->printers, 1);
    }
    return running;
}

void tows_printf_scan_look(struct tows_session *session, struct tows_code_image *image)
{
    struct printf_scan *scan = state_of(session);
    if (scan == NULL || atomic_load(&scan->found)) {
        return;
    }
    /* A session in the program's own process ends before its threads: nothing may run beside it. */
    bool small = image->size < 64 << 10 || session->options->in_process;
    if (small || !look_later(session, scan, image)) {
        scan_look(session, scan, image);
    }
}
