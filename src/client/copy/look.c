/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what is known of a copy: each operand is looked up once. */
#include "client/copy/look.h"

#include <sys/mman.h>
#include <unistd.h>

#include "client/copy/owner.h"
#include "client/copy/stage.h"
#include "client/hostmem/mirror.h"
#include "client/stream/capture.h"
#include "client/stream/context.h"

/* Smaller uploads ride in their commands: to page-lock what few bytes go through costs more. */
enum { STAGED_MIN = (16 << 10) + 1 };

/* Bytes of asynchronous downloads under way; beyond, they are waited for. The worker's limit,
 * TOW_PINNED_TOTAL, is more than twice that: it rounds sizes up to powers of two. */
#define ASYNC_MAX ((size_t)384 << 20)

static unsigned look_fact(bool holds, enum towc_copy_fact which)
{
    return holds ? (unsigned)which : 0;
}

static bool is_up(const struct towc_copy *copy)
{
    return (copy->facts & TOW_FACT_UP) != 0;
}

/* Where there is none any more, what host functions wrote is read behind this. */
static bool look_any(const atomic_uint *count)
{
    return atomic_load_explicit(count, memory_order_acquire) != 0;
}

/* While its stream captures it may be no address at all. */
static bool is_made_up(CUdeviceptr address, CUstream stream)
{
    unsigned char resident = 0;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return towc_capture_on(stream) &&
           mincore((void *)(uintptr_t)(address & ~(page - 1)), 1, &resident) != 0;
}

bool towc_copy_is_device(CUdeviceptr address, CUstream stream)
{
    return towc_region_is_device(address) || is_made_up(address, stream);
}

static bool look_captures(const struct towc_copy *copy)
{
    return look_any(&towc_captures) && towc_capture_on(copy->stream);
}

/* ---- what time changes ---- */

/* Whether the device was given work behind what is known to be done. */
static bool has_work(const struct towc_link *link, const _Atomic uint64_t *done)
{
    return atomic_load_explicit(&link->worked, memory_order_relaxed) >
           atomic_load_explicit(done, memory_order_relaxed);
}

/* True if the device may have much to do before a copy in a default stream. */
static bool is_busy(const struct towc_link *link, CUstream stream)
{
    const struct towc_context *context = towc_context_current();
    return look_any(&link->hostfns.turns) ||
           (has_work(link, &context->done) &&
            (stream == CU_STREAM_PER_THREAD || has_work(link, &context->default_done)));
}

/* Functions of streams are counted; of graphs it is only known that there are some. */
static bool may_be_written(const struct towc_link *link)
{
    return look_any(&link->hostfns.writers) ||
           (look_any(&link->hostfns.graphs) && has_work(link, &towc_context_current()->done));
}

/* A synchronous copy of pageable memory has been read when it is sent, and the server lets nothing
 * overtake it while that takes the device a moment (TOW_COPY_SYNCHRONOUS). Behind launches it may
 * take long: then it is waited for, as natively, unless a capture forbids it. Over shared memory
 * one of one dimension is not sent, as a rule. */
static bool is_long(const struct towc_copy *copy)
{
    return copy->size > TOW_COPY_INLINE_MAX && (copy->rows != NULL || copy->link->share == NULL) &&
           !look_any(&towc_captures) && is_busy(copy->link, copy->stream);
}

void towc_copy_look_again(struct towc_copy *copy)
{
    const struct towc_link_hostfns *hostfns = &copy->link->hostfns;
    bool up = is_up(copy);
    copy->facts &= ~(unsigned)(TOW_FACT_FUNCTIONS | TOW_FACT_LONG);
    copy->facts |=
        look_fact(up ? may_be_written(copy->link) : look_any(&hostfns->turns), TOW_FACT_FUNCTIONS) |
        look_fact(up && (copy->facts & TOW_FACT_WAIT) && is_long(copy), TOW_FACT_LONG);
}

/* ---- sizes ---- */

static void look_size(struct towc_copy *copy)
{
    bool up = is_up(copy);
    bool small =
        up ? copy->rows == NULL && copy->size < STAGED_MIN : copy->size <= TOW_STAGE_FETCH_MAX;
    copy->facts &= ~(unsigned)(TOW_FACT_SMALL | TOW_FACT_LARGE);
    copy->facts |= look_fact(small, TOW_FACT_SMALL) |
                   look_fact(copy->size > TOW_COPY_ASYNC_MAX, TOW_FACT_LARGE);
}

void towc_copy_advance(struct towc_copy *copy, size_t bytes)
{
    copy->to += bytes;
    copy->from += bytes;
    copy->size -= bytes;
    copy->host = towc_host_rect_flat(copy->host.first + bytes, copy->size);
    look_size(copy);
}

/* ---- the host's operand ---- */

/* The bytes from the first address of a device's operand to the last. */
static uint64_t device_span(const struct tow_copy_3d *copy_3d, uint64_t *ret_first)
{
    const struct tow_copy_operand *operand = &copy_3d->from;
    uint64_t plane = operand->pitch * operand->height;
    *ret_first = operand->address + operand->z * plane + operand->y * operand->pitch + operand->x;
    return (copy_3d->planes - 1) * plane + (copy_3d->rows - 1) * operand->pitch + copy_3d->width;
}

/* False: the driver will refuse it. What an array has is not known here, nor a variable's size. */
static bool may_be_read(const struct tow_copy_3d *copy_3d)
{
    uint64_t first, size = device_span(copy_3d, &first);
    return copy_3d->from.kind == TOW_AT_ARRAY ||
           towc_region_check_device(first, size) == CUDA_SUCCESS;
}

bool towc_copy_is_sure(const struct tow_copy_3d *copy_3d)
{
    uint64_t first, size = device_span(copy_3d, &first);
    return copy_3d->from.kind == TOW_AT_DEVICE && towc_region_holds(first, size);
}

bool towc_copy_has_room(struct towc_link *link, size_t size)
{
    size_t under_way = towc_link_outstanding(link);
    return under_way < ASYNC_MAX && size <= ASYNC_MAX - under_way;
}

/* Whether a download may come later. Over shared memory large ones are faster through the staging;
 * of rows it is told later if the driver refuses them after all. */
static bool may_be_async(const struct towc_copy *copy)
{
    bool may = copy->rows != NULL ? may_be_read(&copy->rows->packed)
                                  : copy->size <= TOW_COPY_ASYNC_MAX || copy->link->share == NULL;
    return may && towc_copy_has_room(copy->link, copy->size);
}

/* Without memory that host and device both see nothing is known of the host's. */
static void look_host_memory(struct towc_copy *copy)
{
    uint64_t first = (uint64_t)(uintptr_t)copy->host.first, span = towc_host_rect_span(&copy->host);
    struct towc_region_view view;
    towc_region_look(copy->link, first, span, &view);
    bool has =
        view.visible && view.whole && !view.shared && towc_mirror_has(copy->link, first, span);
    copy->facts |= look_fact(view.shared, TOW_FACT_SHARED) |
                   look_fact(view.alike < span, TOW_FACT_PARTLY) |
                   look_fact(view.pinned, TOW_FACT_PINNED) | look_fact(has, TOW_FACT_MIRRORED);
    if (view.pinned && !has && !view.shared && !is_up(copy) && !(copy->facts & TOW_FACT_WAIT)) {
        copy->facts |= look_fact(may_be_async(copy), TOW_FACT_ROOM);
    }
}

/* Of a copy with one host operand. */
static void look_host(struct towc_copy *copy)
{
    struct towc_link *link = copy->link;
    copy->facts |= look_fact(link->stage != NULL, TOW_FACT_STAGING);
    look_size(copy);
    towc_copy_look_again(copy);
    if (look_any(&towc_region_visible)) {
        look_host_memory(copy);
    }
    if (is_up(copy) && !(copy->facts & TOW_FACT_SHARED) &&
        towc_link_expecting(link, copy->host.first, towc_host_rect_span(&copy->host))) {
        copy->facts |= TOW_FACT_EXPECTED;
    }
}

/* ---- one dimension ---- */

/* A capture takes any address: only the graph's launch needs the memory. */
static CUresult look_admit(struct towc_copy *copy, const struct towc_region_view *view,
                           CUdeviceptr address)
{
    if (!view->device) {
        copy->facts |= TOW_FACT_BAD;
        return towc_capture_on(copy->stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    return look_any(&towc_mirror_candidates) ? towc_mirror_admit(address, copy->size)
                                             : CUDA_SUCCESS;
}

/* As towc_copy_is_device says of what was looked up. */
static bool look_is_device(const struct towc_copy *copy, const struct towc_region_view *view,
                           CUdeviceptr address)
{
    bool known = view->region.link != NULL ? !towc_region_is_host(&view->region) : view->device;
    return known || is_made_up(address, copy->stream);
}

/* Of a unified copy: which sides are the host's. What was looked up of those does not count. */
static void look_hosts(struct towc_copy *copy, struct towc_region_view *to,
                       struct towc_region_view *from)
{
    if (!look_is_device(copy, to, copy->to)) {
        copy->facts |= TOW_FACT_DOWN;
        *to = (struct towc_region_view){0};
    }
    if (!look_is_device(copy, from, copy->from)) {
        copy->facts |= TOW_FACT_UP;
        *from = (struct towc_region_view){0};
    }
}

/* Whether the operand is another server's: not asked of memory of the copy's own server. */
static bool look_is_elsewhere(const struct towc_copy *copy, const struct towc_region *region)
{
    return region->link != NULL && region->link != copy->link &&
           towc_owner_is_elsewhere(towc_owner_of(region));
}

/* The operands that are the device's; both are looked up before either is made reachable. */
static CUresult look_devices(struct towc_copy *copy)
{
    struct towc_region_view to = {0}, from = {0};
    if (!(copy->facts & TOW_FACT_DOWN)) {
        towc_region_look(copy->link, copy->to, copy->size, &to);
    }
    if (!(copy->facts & TOW_FACT_UP)) {
        towc_region_look(copy->link, copy->from, copy->size, &from);
    }
    if (copy->unified) {
        look_hosts(copy, &to, &from);
    }
    bool has_to = !(copy->facts & TOW_FACT_DOWN), has_from = !(copy->facts & TOW_FACT_UP);
    if (!has_to && !has_from) {
        return CUDA_SUCCESS;
    }
    if (look_is_elsewhere(copy, &to.region) || look_is_elsewhere(copy, &from.region)) {
        copy->facts |= TOW_FACT_ELSEWHERE;
        return CUDA_SUCCESS;
    }
    if ((!has_to && copy->to == 0) || (!has_from && copy->from == 0) ||
        (has_to && look_admit(copy, &to, copy->to) != CUDA_SUCCESS) ||
        (has_from && look_admit(copy, &from, copy->from) != CUDA_SUCCESS)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    copy->facts |= look_fact(to.visible || from.visible, TOW_FACT_SEEN) |
                   look_fact(look_any(&towc_mirror_count), TOW_FACT_MIRRORS);
    return CUDA_SUCCESS;
}

CUresult towc_copy_look(struct towc_copy *copy)
{
    if (copy->unified && (copy->to == 0 || copy->from == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = look_devices(copy);
    bool up = is_up(copy), down = (copy->facts & TOW_FACT_DOWN) != 0;
    if (status != CUDA_SUCCESS || up == down || (copy->facts & TOW_FACT_ELSEWHERE)) {
        return status;
    }
    CUdeviceptr host = is_up(copy) ? copy->from : copy->to;
    copy->host = towc_host_rect_flat((void *)(uintptr_t)host, copy->size);
    if (!(copy->facts & TOW_FACT_WAIT) && look_captures(copy)) {
        copy->facts |= TOW_FACT_CAPTURES;
        return CUDA_SUCCESS;
    }
    look_host(copy);
    return CUDA_SUCCESS;
}

/* ---- two and three dimensions ---- */

CUresult towc_copy_look_rows(struct towc_copy *copy)
{
    const struct towc_copy_rows *rows = copy->rows;
    const struct tow_copy_3d *copy_3d = &rows->packed;
    bool up = is_up(copy), down = (copy->facts & TOW_FACT_DOWN) != 0;
    if (towc_client_link_count() > 1 &&
        (towc_owner_is_elsewhere(towc_owner_of_source(rows->asked)) ||
         towc_owner_is_elsewhere(towc_owner_of_target(rows->asked)))) {
        copy->facts |= TOW_FACT_ELSEWHERE;
        return CUDA_SUCCESS;
    }
    copy->facts |= look_fact(look_any(&towc_mirror_count), TOW_FACT_MIRRORS) |
                   look_fact(!down && towc_mirror_sees(copy_3d->to.address), TOW_FACT_SEEN);
    if ((up || down) && !(copy->facts & TOW_FACT_WAIT) && look_captures(copy)) {
        copy->facts |= TOW_FACT_CAPTURES;
        return CUDA_SUCCESS;
    }
    if (up == down || copy_3d->bytes == 0) {
        return up == down ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    copy->host = up ? rows->from : rows->to;
    copy->size = copy_3d->bytes;
    look_host(copy);
    return CUDA_SUCCESS;
}
