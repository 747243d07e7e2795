/* SPDX-License-Identifier: Apache-2.0 */
/* hook: puts a delay, a cut or a trace between the user of a line and the line. For tests.
 *
 * The user gets one end of a self pair; two pump threads carry bytes between its other end and the
 * inner line, each chunk no earlier than `delay` after it came. So a delay is a latency, not a
 * limit of the rate.
 */
#include "base/clock.h"
#include "base/thread.h"
#include "transport/ring.h"
#include "transport/transport.h"
#include "wire/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOOK "hook:"

/* What may be on its way in one direction. */
#define QUEUE_MAX (64u << 20)
#define CHUNK_MAX (64u << 10)

/* How long a closing hook lets its last bytes go out. */
#define LINGER_NS (2 * TOW_TIME_S)

struct chunk {
    struct chunk *next; /* owned */
    int64_t due;
    size_t size;
    uint8_t bytes[];
};

/* Follows the frames of one direction for the trace. */
struct frame_follower {
    uint8_t header[TOW_FRAME_HEADER];
    size_t held;   /* of the header */
    uint64_t skip; /* bytes of the body still to come */
    bool lost;     /* this is not a stream of frames */
};

struct pump {
    struct hook *hook;     /* borrowed */
    struct tow_line *from; /* borrowed from the hook */
    struct tow_line *to;   /* borrowed from the hook */
    char mark;             /* '>' to the peer, '<' from it */
    struct frame_follower follower;
    _Atomic uint64_t forwarded;
    _Atomic uint32_t drained_for; /* 1: somebody sleeps until more was forwarded, or it is done */
    _Atomic uint32_t done;
    pthread_t thread;
    bool started;
};

struct hook {
    struct tow_line_ops ops;             /* the user's end uses these; finds us by its address */
    const struct tow_line_ops *base_ops; /* what they were */
    struct tow_line *outer;              /* the user's end; closed by itself */
    struct tow_line *middle;             /* owned */
    struct tow_line *inner;              /* owned */
    int64_t delay_ns;
    uint64_t cut; /* bytes to the peer after which everything ends */
    int trace_fd; /* owned; -1 */
    int64_t began_ns;
    struct pump out, in;
};

static struct hook *hook_of(struct tow_line *line)
{
    return (struct hook *)((char *)line->ops - offsetof(struct hook, ops));
}

/* ---- trace ---- */

static void trace_line(struct pump *pump, const char *text)
{
    double seconds = (double)(tow_time_now_ns() - pump->hook->began_ns) / 1e9;
    dprintf(pump->hook->trace_fd, "%.6f %c %s\n", seconds, pump->mark, text);
}

static void trace_frame(struct pump *pump)
{
    struct tow_frame frame;
    char text[160];
    if (tow_frame_read(pump->follower.header, &frame) < 0) {
        pump->follower.lost = true;
        trace_line(pump, "not a frame; from here on only sizes");
        return;
    }
    const char *name = tow_control_name(frame.kind);
    if (name != NULL) {
        snprintf(text, sizeof text, "%s length %u context %u seq %u", name, frame.length,
                 frame.context, frame.seq);
    } else {
        snprintf(text, sizeof text, "function %u length %u thread %u context %u seq %u", frame.kind,
                 frame.length, frame.thread, frame.context, frame.seq);
    }
    trace_line(pump, text);
    pump->follower.skip = frame.length - TOW_FRAME_HEADER;
}

static void trace_bytes(struct pump *pump, const uint8_t *at, size_t n)
{
    struct frame_follower *follower = &pump->follower;
    while (n > 0 && !follower->lost) {
        if (follower->skip > 0) {
            size_t step = follower->skip < n ? (size_t)follower->skip : n;
            follower->skip -= step;
            at += step;
            n -= step;
            continue;
        }
        size_t step = TOW_FRAME_HEADER - follower->held;
        step = step < n ? step : n;
        memcpy(follower->header + follower->held, at, step);
        follower->held += step;
        at += step;
        n -= step;
        if (follower->held == TOW_FRAME_HEADER) {
            follower->held = 0;
            trace_frame(pump);
        }
    }
    if (follower->lost && n > 0) {
        char text[64];
        snprintf(text, sizeof text, "%zu bytes", n);
        trace_line(pump, text);
    }
}

/* ---- pumps ---- */

static void pump_tell(struct pump *pump)
{
    if (atomic_load(&pump->drained_for) != 0) {
        tow_ring_wake(&pump->drained_for, false);
    }
}

static int hook_deliver(struct pump *pump, const uint8_t *at, size_t n)
{
    struct hook *hook = pump->hook;
    uint64_t before = atomic_load(&pump->forwarded);
    bool cut = pump == &hook->out && n >= hook->cut - before;
    if (cut) {
        n = (size_t)(hook->cut - before);
    }
    if (hook->trace_fd >= 0) {
        trace_bytes(pump, at, n);
    }
    if (n > 0) {
        uint8_t *to;
        int error = tow_line_reserve(pump->to, n, &to);
        if (error < 0) {
            return error;
        }
        memcpy(to, at, n);
        tow_line_commit(pump->to, n);
        atomic_store(&pump->forwarded, before + n);
        pump_tell(pump);
    }
    if (cut) {
        if (hook->trace_fd >= 0) {
            trace_line(pump, "cut");
        }
        tow_line_drain(hook->inner, tow_time_deadline(LINGER_NS));
        tow_line_shutdown(hook->inner);
        tow_line_shutdown(hook->middle);
        return -EPIPE;
    }
    return 0;
}

static int take_chunk(struct pump *pump, int64_t deadline_ns, struct chunk **ret_chunk)
{
    const uint8_t *at;
    size_t available;
    int error = tow_line_peek(pump->from, 1, deadline_ns, &at, &available);
    if (error < 0) {
        return error;
    }
    size_t n = available < CHUNK_MAX ? available : CHUNK_MAX;
    struct chunk *chunk = malloc(sizeof *chunk + n);
    if (chunk == NULL) {
        return -ENOMEM;
    }
    chunk->next = NULL;
    chunk->size = n;
    chunk->due = tow_time_now_ns() + pump->hook->delay_ns;
    memcpy(chunk->bytes, at, n);
    tow_line_consume(pump->from, n);
    *ret_chunk = chunk;
    return 0;
}

static void *pump_run(void *arg)
{
    struct pump *pump = arg;
    struct chunk *first = NULL, **last = &first;
    size_t queued = 0;
    bool ended = false;
    int error = 0;
    while (error == 0 && (first != NULL || !ended)) {
        if (first != NULL && first->due <= tow_time_now_ns()) {
            struct chunk *chunk = first;
            error = hook_deliver(pump, chunk->bytes, chunk->size);
            queued -= chunk->size;
            first = chunk->next;
            last = first == NULL ? &first : last;
            free(chunk);
        } else if (!ended && queued < QUEUE_MAX) {
            struct chunk *chunk;
            int taken = take_chunk(pump, first == NULL ? TOW_TIME_FOREVER : first->due, &chunk);
            if (taken == 0) {
                *last = chunk;
                last = &chunk->next;
                queued += chunk->size;
            } else if (taken != -ETIMEDOUT) {
                ended = true;
            }
        } else {
            tow_time_sleep(tow_time_left(first->due));
        }
    }
    while (first != NULL) {
        struct chunk *chunk = first;
        first = chunk->next;
        free(chunk);
    }
    /* The source has ended and its last bytes are out, or the destination is gone: both ends learn
     * it. */
    tow_line_drain(pump->to, tow_time_deadline(LINGER_NS));
    tow_line_shutdown(pump->to);
    tow_line_shutdown(pump->from);
    atomic_store(&pump->done, 1);
    tow_futex_wake(&pump->done, 1, false);
    pump_tell(pump);
    return NULL;
}

/* ---- the user's end ---- */

static int hook_drain(struct tow_line *line, int64_t deadline_ns)
{
    struct hook *hook = hook_of(line);
    struct pump *out = &hook->out;
    while (atomic_load(&out->forwarded) < atomic_load(&line->out->head)) {
        if (atomic_load(&out->done) != 0) {
            return -EPIPE;
        }
        if (tow_time_passed(deadline_ns)) {
            return -ETIMEDOUT;
        }
        /* Announce, look once more, sleep: see tow_ring_wait. */
        atomic_store(&out->drained_for, 1);
        if (atomic_load(&out->forwarded) < atomic_load(&line->out->head) &&
            atomic_load(&out->done) == 0) {
            tow_futex_wait(&out->drained_for, 1, deadline_ns, false);
        }
    }
    return tow_line_drain(hook->inner, deadline_ns);
}

static int hook_await_end(struct tow_line *line, int64_t deadline_ns)
{
    return tow_line_await_end(hook_of(line)->inner, deadline_ns);
}

static void hook_abandon(struct tow_line *line)
{
    tow_line_abandon(hook_of(line)->inner);
}

static void hook_free(struct hook *hook)
{
    int64_t deadline = tow_time_deadline(LINGER_NS + hook->delay_ns);
    while (hook->out.started && atomic_load(&hook->out.done) == 0 &&
           tow_futex_wait(&hook->out.done, 0, deadline, false) != -ETIMEDOUT) {
    }
    tow_line_shutdown(hook->inner);
    if (hook->out.started) {
        pthread_join(hook->out.thread, NULL);
    }
    if (hook->in.started) {
        pthread_join(hook->in.thread, NULL);
    }
    tow_line_close(hook->inner);
    tow_line_close(hook->middle);
    if (hook->trace_fd >= 0) {
        close(hook->trace_fd);
    }
    free(hook);
}

static void hook_destroy(struct tow_line *line)
{
    struct hook *hook = hook_of(line);
    const struct tow_line_ops *base_ops = hook->base_ops;
    hook_free(hook);
    line->ops = base_ops;
    line->ops->destroy(line);
}

/* ---- making one ---- */

static int parse_time(const char *text, int64_t *ret_ns)
{
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    int64_t unit = strcmp(end, "us") == 0   ? TOW_TIME_US
                   : strcmp(end, "ms") == 0 ? TOW_TIME_MS
                   : strcmp(end, "s") == 0  ? TOW_TIME_S
                                            : 0;
    if (errno != 0 || end == text || unit == 0 || !(number >= 0 && number <= 3600)) {
        return -EINVAL;
    }
    *ret_ns = (int64_t)(number * (double)unit);
    return 0;
}

static int set_option(struct hook *hook, const char *key, const char *value, char *ret_why,
                      size_t size)
{
    if (strcmp(key, "delay") == 0 && parse_time(value, &hook->delay_ns) == 0) {
        return 0;
    }
    if (strcmp(key, "cut") == 0) {
        char *end;
        errno = 0;
        hook->cut = strtoull(value, &end, 10);
        if (errno == 0 && end != value && *end == '\0') {
            return 0;
        }
    }
    if (strcmp(key, "trace") == 0 && hook->trace_fd < 0) {
        hook->trace_fd = open(value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (hook->trace_fd >= 0) {
            return 0;
        }
        snprintf(ret_why, size, "hook: cannot write the trace to %s: %s", value, strerror(errno));
        return -errno;
    }
    snprintf(ret_why, size,
             "hook: %s=%s is not understood; write delay=1ms (or us, s), cut=BYTES, trace=FILE",
             key, value);
    return -EINVAL;
}

static int parse_spec(struct hook *hook, const char *spec, char *ret_why, size_t size)
{
    while (*spec != '\0') {
        char option[TOW_ADDRESS_MAX];
        size_t length = strcspn(spec, ",");
        if (length >= sizeof option) {
            snprintf(ret_why, size, "hook: an option is too long");
            return -EINVAL;
        }
        memcpy(option, spec, length);
        option[length] = '\0';
        char *equals = strchr(option, '=');
        if (equals != NULL) {
            *equals = '\0';
        }
        int error = set_option(hook, option, equals == NULL ? "" : equals + 1, ret_why, size);
        if (error < 0) {
            return error;
        }
        spec += length;
        spec += *spec == ',';
    }
    return 0;
}

static int start_pump(struct hook *hook, struct pump *pump, struct tow_line *from,
                      struct tow_line *to, char mark)
{
    pump->hook = hook;
    pump->from = from;
    pump->to = to;
    pump->mark = mark;
    int error = tow_thread_start("towline-hook", pump_run, pump, &pump->thread);
    pump->started = error == 0;
    return error;
}

int tow_line_hook(struct tow_line *inner, const char *spec, char *ret_why, size_t size,
                  struct tow_line **ret_line)
{
    struct hook *hook = calloc(1, sizeof *hook);
    if (hook == NULL) {
        tow_line_close(inner);
        snprintf(ret_why, size, "out of memory");
        return -ENOMEM;
    }
    hook->inner = inner;
    hook->cut = UINT64_MAX;
    hook->trace_fd = -1;
    hook->began_ns = tow_time_now_ns();
    int error = parse_spec(hook, spec, ret_why, size);
    if (error < 0) {
        goto free_hook;
    }
    error = tow_line_pair(&hook->outer, &hook->middle);
    if (error < 0) {
        snprintf(ret_why, size, "hook: %s", strerror(-error));
        goto free_hook;
    }
    error = start_pump(hook, &hook->out, hook->middle, inner, '>');
    if (error == 0) {
        error = start_pump(hook, &hook->in, inner, hook->middle, '<');
    }
    if (error < 0) {
        snprintf(ret_why, size, "hook: cannot start a thread: %s", strerror(-error));
        goto close_outer;
    }
    struct tow_line *line = hook->outer;
    hook->base_ops = line->ops;
    hook->ops = *line->ops;
    hook->ops.name = "hook";
    hook->ops.in_process = tow_line_is_in_process(inner);
    hook->ops.can_break = true; /* cut=N */
    hook->ops.drain = hook_drain;
    hook->ops.await_end = hook_await_end;
    hook->ops.abandon = hook_abandon;
    hook->ops.destroy = hook_destroy;
    line->ops = &hook->ops;
    memcpy(line->peer, inner->peer, sizeof line->peer);
    line->binding = inner->binding;
    line->grant = inner->grant;
    *ret_line = line;
    return 0;

close_outer:
    tow_line_close(hook->outer);
free_hook:
    hook_free(hook);
    return error;
}

/* The address behind it is another's. */
static int hook_check(const char *rest, char *ret_why, size_t size)
{
    size_t options = strcspn(rest, ":");
    if (rest[options] == ':' && options < TOW_ADDRESS_MAX) {
        return 0;
    }
    snprintf(ret_why, size,
             "hook:%s is not an address; write hook:OPTIONS:ADDRESS, for example "
             "hook:delay=1ms:tcp://localhost:%d",
             rest, TOW_DEFAULT_PORT);
    return -EINVAL;
}

const char *tow_transport_behind_hook(const char *address)
{
    while (strncmp(address, HOOK, strlen(HOOK)) == 0) {
        const char *colon = strchr(address + strlen(HOOK), ':');
        if (colon == NULL) {
            break;
        }
        address = colon + 1;
    }
    return address;
}

static int hook_wrap(const char *rest, struct tow_line *inner, char *ret_why, size_t size,
                     struct tow_line **ret_line)
{
    char spec[TOW_ADDRESS_MAX];
    snprintf(spec, sizeof spec, "%.*s", (int)strcspn(rest, ":"), rest);
    return tow_line_hook(inner, spec, ret_why, size, ret_line);
}

static int hook_no_listen(const char *rest, mode_t mode, char *ret_why, size_t size, int *ret_fd,
                          char *ret_address)
{
    snprintf(ret_why, size, "hook: is for clients; listen on the address behind it");
    return -EOPNOTSUPP;
}

static int hook_no_adopt(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                         struct tow_line **ret_line)
{
    close(fd);
    snprintf(ret_why, size, "hook: is for clients");
    return -EOPNOTSUPP;
}

const struct tow_transport_ops tow_transport_hook = {
    .name = "hook",
    .prefix = HOOK,
    .check = hook_check,
    .listen = hook_no_listen,
    .adopt = hook_no_adopt,
    .wrap = hook_wrap,
};
