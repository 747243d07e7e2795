/* SPDX-License-Identifier: Apache-2.0 */
/* shm: rings in memory that both processes map, arranged over a unix socket.
 *
 * The server makes one memfd (control words, the client's ring, the server's ring), seals its size
 * and sends it. Each side then writes its own ring and reads the other's. Nothing the peer writes
 * is trusted: positions are read once and checked, and bytes are copied into private memory before
 * they are looked at, so that a frame cannot change between its check and its use. The socket stays
 * open to tell when the peer has died, and to pass descriptors of further memory.
 */
#include "transport/shm.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "transport/ring.h"
#include "transport/sock.h"
#include "transport/transport.h"
#include "transport/unix.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHM_VERSION 2u

/* The control words come first and take this much: the largest page size we meet. */
#define CONTROL_SIZE (64u << 10)

/* Ring sizes a client accepts. */
#define RING_MIN (64u << 10)
#define RING_MAX (256u << 20)

/* Copied ahead of need: stays in the first-level cache, and a bulk payload is not copied twice. */
#define COPY_AHEAD 4096u

/* A large copy gives room back in pieces of this size, so that the producer goes on meanwhile. */
#define COPY_CHUNK (256u << 10)

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Index 0 is the client's, 1 the server's. Shared memory: read once, check, then use. */
struct shm_control {
    struct tow_ring_ctl ctl[2];
    _Alignas(128) _Atomic uint32_t gone[2];
};
_Static_assert(sizeof(struct shm_control) <= CONTROL_SIZE, "the control words fit");

struct shm_request {
    char magic[TOW_SHM_MAGIC_SIZE];
    uint32_t version;
    uint32_t preface; /* so many bytes follow; at most TOW_PREFACE_MAX */
};

#define REFUSED_NOW 1u

struct shm_answer {
    char magic[TOW_SHM_MAGIC_SIZE];
    uint32_t version;
    uint32_t control_size; /* refused: REFUSED_NOW if it may be tried again, else 0 */
    uint64_t ring_size;    /* 0: refused */
    uint64_t sentence;     /* refused: so many bytes follow, which say why; else 0 */
};

/* What travels with a descriptor. */
struct shm_passed {
    char magic[TOW_SHM_MAGIC_SIZE];
    uint64_t number;
};

/* Descriptors that came before somebody asked for them: threads ask in any order. */
#define PASSED_MAX 64

struct shm_line {
    struct tow_line line;
    struct shm_control *control; /* owned mapping */
    uint8_t *out_ring;           /* owned mapping */
    uint8_t *in_ring;            /* owned mapping: the peer writes it at any time */
    uint8_t *buffer;             /* owned: private copy of what is being read */
    struct tow_ring_ctl *in;     /* borrowed from control */
    size_t ring_size;
    _Atomic uint64_t taken; /* our own copy of in->tail; written by the consumer */
    int fd;                 /* owned */
    int role;               /* 0 client, 1 server */

    struct tow_mutex pass_lock; /* guards the socket's messages and the list */
    struct {
        uint64_t number;
        int fd; /* owned */
    } passed[PASSED_MAX];
    unsigned passed_count;
};

static struct shm_line *shm_of(struct tow_line *line)
{
    return (struct shm_line *)line;
}

static void shm_wake(struct tow_line *line)
{
    tow_line_count(&line->wakes, 1);
    tow_ring_wake(&line->out->consumer_waits, true);
}

static int shm_send_direct(struct tow_line *line, const struct iovec *iov, int count, size_t total)
{
    return tow_ring_send_copy(line, iov, count);
}

/* What is in the ring survives us: the peer reads it before it looks whether we live. */
static int shm_drain(struct tow_line *line, int64_t deadline_ns)
{
    return 0;
}

/* Waits until the peer has written beyond `taken`. */
static int wait_in(struct shm_line *shm, uint64_t taken, uint64_t capacity, struct tow_spin *spin,
                   int64_t deadline_ns, uint64_t *ret_available)
{
    struct tow_line *line = &shm->line;
    struct tow_ring_wait wait = {
        .word = &shm->in->head,
        .waits = &shm->in->consumer_waits,
        .base = taken,
        .need = 1,
        .capacity = capacity,
        .spin = spin,
        .sleeps = &line->in_sleeps,
        .spins = &line->in_spins,
    };
    return tow_ring_wait(line, &wait, deadline_ns, ret_available);
}

/* Gives back the room of `n` of the `available` bytes behind `taken`, which were copied. */
static void give_back(struct shm_line *shm, uint64_t taken, size_t n, uint64_t available)
{
    /* Released after in_head, for shm_wait_readable. */
    atomic_store_explicit(&shm->taken, taken + n, memory_order_release);
    tow_ring_release(shm->in, taken + n, taken + available, shm->ring_size, true, &shm->line.wakes);
}

static int shm_fill(struct tow_line *line, size_t min, int64_t deadline_ns)
{
    struct shm_line *shm = shm_of(line);
    if (min > TOW_LINE_FRAME_MAX) {
        return -EMSGSIZE;
    }
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&line->in_head, memory_order_relaxed);
    if (head == tail) {
        head = tail = tail % 8;
        atomic_store_explicit(&line->in_tail, tail, memory_order_relaxed);
        atomic_store_explicit(&line->in_head, head, memory_order_relaxed);
    }
    while (head - tail < min) {
        uint64_t available;
        uint64_t taken = atomic_load_explicit(&shm->taken, memory_order_relaxed);
        int error = wait_in(shm, taken, shm->ring_size, &line->in_spin, deadline_ns, &available);
        if (error < 0) {
            return error;
        }
        size_t need = min - (size_t)(head - tail);
        size_t want = need > COPY_AHEAD ? need : COPY_AHEAD;
        size_t room = line->in_mask + 1 - (size_t)(head - tail);
        want = want < room ? want : room;
        want = want < available ? want : (size_t)available;
        memcpy(shm->buffer + (head & line->in_mask), shm->in_ring + (taken & (shm->ring_size - 1)),
               want);
        head += want;
        atomic_store_explicit(&line->in_head, head, memory_order_relaxed);
        give_back(shm, taken, want, available);
    }
    return 0;
}

static int shm_recv_into(struct tow_line *line, void *dst, size_t n)
{
    struct shm_line *shm = shm_of(line);
    uint8_t *to = dst;
    size_t left = n;
    while (left > 0) {
        uint64_t available;
        uint64_t taken = atomic_load_explicit(&shm->taken, memory_order_relaxed);
        int error =
            wait_in(shm, taken, shm->ring_size, &line->in_spin, TOW_TIME_FOREVER, &available);
        if (error < 0) {
            return error;
        }
        size_t chunk = available < left ? (size_t)available : left;
        chunk = chunk < COPY_CHUNK ? chunk : COPY_CHUNK;
        memcpy(to, shm->in_ring + (taken & (shm->ring_size - 1)), chunk);
        give_back(shm, taken, chunk, available);
        to += chunk;
        left -= chunk;
    }
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed) + n;
    atomic_store_explicit(&line->in_tail, tail, memory_order_relaxed);
    atomic_store_explicit(&line->in_head, tail, memory_order_relaxed);
    tow_line_count(&line->bytes_in, n);
    return 0;
}

static int shm_wait_readable(struct tow_line *line, int64_t deadline_ns)
{
    struct shm_line *shm = shm_of(line);
    struct tow_spin none = {0};
    /* In this order: what a consumer takes after the first load ends the wait early, what it took
     * before is seen by the second. */
    uint64_t taken = atomic_load_explicit(&shm->taken, memory_order_acquire);
    if (atomic_load(&line->in_head) != atomic_load(&line->in_tail)) {
        return 0;
    }
    /* A consumer may get far ahead of this thread: no distance is nonsense here. */
    uint64_t available;
    return wait_in(shm, taken, UINT64_MAX, &none, deadline_ns, &available);
}

static int shm_send_fd(struct tow_line *line, int fd, uint64_t number)
{
    struct shm_line *shm = shm_of(line);
    struct shm_passed message = {.magic = TOW_SHM_MAGIC, .number = number};
    tow_mutex_lock(&shm->pass_lock);
    int error = tow_fds_send(shm->fd, &message, sizeof message, &fd, 1);
    tow_mutex_unlock(&shm->pass_lock);
    return error;
}

/* With the lock held: the next message; its descriptor is put on the list. */
static int receive_fd(struct shm_line *shm, int64_t deadline_ns)
{
    struct shm_passed message;
    int fd = -1, count = 0;
    int error = tow_fds_recv(shm->fd, &message, sizeof message, deadline_ns, &fd, 1, &count);
    if (error < 0) {
        return error;
    }
    if (count != 1 || memcmp(message.magic, TOW_SHM_MAGIC, sizeof message.magic) != 0 ||
        shm->passed_count == PASSED_MAX) {
        if (count == 1) {
            close(fd);
        }
        return -EPROTO;
    }
    shm->passed[shm->passed_count].number = message.number;
    shm->passed[shm->passed_count++].fd = fd;
    return 0;
}

static int shm_take_fd(struct tow_line *line, uint64_t number, int64_t deadline_ns, int *ret_fd)
{
    struct shm_line *shm = shm_of(line);
    int error = -EAGAIN;
    tow_mutex_lock(&shm->pass_lock);
    while (error == -EAGAIN) {
        for (unsigned i = 0; i < shm->passed_count; i++) {
            if (shm->passed[i].number == number) {
                *ret_fd = shm->passed[i].fd;
                shm->passed[i] = shm->passed[--shm->passed_count];
                error = 0;
                break;
            }
        }
        if (error == -EAGAIN) {
            int got = receive_fd(shm, deadline_ns);
            error = got < 0 ? got : -EAGAIN;
        }
    }
    tow_mutex_unlock(&shm->pass_lock);
    return error;
}

static void shm_shutdown(struct tow_line *line)
{
    struct shm_line *shm = shm_of(line);
    atomic_store(&shm->control->gone[shm->role], 1);
    shutdown(shm->fd, SHUT_RDWR);
    tow_line_fail(line, -ESHUTDOWN);
    tow_ring_wake(&shm->in->producer_waits, true);
    tow_ring_wake(&shm->in->consumer_waits, true);
}

static int shm_await_end(struct tow_line *line, int64_t deadline_ns)
{
    return tow_sock_poll(shm_of(line)->fd, POLLRDHUP, deadline_ns);
}

static void shm_abandon(struct tow_line *line)
{
    close(shm_of(line)->fd);
}

static void shm_destroy(struct tow_line *line)
{
    struct shm_line *shm = shm_of(line);
    if (shm->control != NULL) {
        munmap(shm->control, CONTROL_SIZE);
    }
    tow_mirror_unmap(shm->out_ring, shm->ring_size);
    tow_mirror_unmap(shm->in_ring, shm->ring_size);
    tow_mirror_unmap(shm->buffer, TOW_LINE_RING_SIZE);
    for (unsigned i = 0; i < shm->passed_count; i++) {
        close(shm->passed[i].fd);
    }
    tow_mutex_fini(&shm->pass_lock);
    close(shm->fd);
    free(shm);
}

static const struct tow_line_ops shm_ops = {
    .name = "shm",
    .wake = shm_wake,
    .send_now = shm_wake,
    .send_direct = shm_send_direct,
    .drain = shm_drain,
    .fill = shm_fill,
    .recv_into = shm_recv_into,
    .wait_readable = shm_wait_readable,
    .shutdown = shm_shutdown,
    .await_end = shm_await_end,
    .send_fd = shm_send_fd,
    .take_fd = shm_take_fd,
    .abandon = shm_abandon,
    .destroy = shm_destroy,
};

static uint64_t total_size(size_t ring_size)
{
    return CONTROL_SIZE + 2 * (uint64_t)ring_size;
}

/* Maps the memory and makes the line; owns `fd` in any case, and leaves `memory` to the caller. */
static int shm_build(int fd, int memory, size_t ring_size, int role, struct tow_line **ret_line)
{
    struct shm_line *shm = aligned_alloc(128, sizeof *shm);
    if (shm == NULL) {
        close(fd);
        return -ENOMEM;
    }
    memset(shm, 0, sizeof *shm);
    tow_line_init(&shm->line, &shm_ops);
    shm->fd = fd;
    shm->role = role;
    tow_mutex_init(&shm->pass_lock, LINE_SHM_PASS);
    shm->ring_size = ring_size;
    int error = 0;
    void *control = mmap(NULL, CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (control == MAP_FAILED) {
        error = -errno;
    } else {
        shm->control = control;
    }
    uint64_t own = CONTROL_SIZE + (uint64_t)role * ring_size;
    uint64_t other = CONTROL_SIZE + (uint64_t)(1 - role) * ring_size;
    if (error == 0) {
        error = tow_mirror_map(memory, own, ring_size, &shm->out_ring);
    }
    if (error == 0) {
        error = tow_mirror_map(memory, other, ring_size, &shm->in_ring);
    }
    if (error == 0) {
        error = tow_mirror_map(-1, 0, TOW_LINE_RING_SIZE, &shm->buffer);
    }
    if (error < 0) {
        shm_destroy(&shm->line);
        return error;
    }
    struct tow_line *line = &shm->line;
    tow_line_set_out(line, shm->out_ring, &shm->control->ctl[role], ring_size);
    shm->in = &shm->control->ctl[1 - role];
    line->in_base = shm->buffer;
    line->in_mask = TOW_LINE_RING_SIZE - 1;
    line->peer_gone = &shm->control->gone[1 - role];
    line->shared = true;
    line->peer_fd = fd;
    tow_sock_describe(fd, line->peer, sizeof line->peer);
    *ret_line = line;
    return 0;
}

static int make_memory(size_t ring_size, int *ret_memory)
{
    int memory = memfd_create("towline-line", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0) {
        return -errno;
    }
    if (ftruncate(memory, (off_t)total_size(ring_size)) != 0 ||
        fcntl(memory, F_ADD_SEALS, SEALS) != 0) {
        int error = -errno;
        close(memory);
        return error;
    }
    *ret_memory = memory;
    return 0;
}

_Static_assert(sizeof(struct shm_answer) == TOW_SHM_ANSWER_SIZE, "they are read as answers");

/* Of version 0, which no client has. */
void tow_shm_write_patience(uint32_t place, uint32_t of, uint32_t wait_for, uint8_t *ret_bytes)
{
    struct shm_answer answer = {
        .magic = TOW_SHM_MAGIC, .ring_size = place | (uint64_t)of << 32, .sentence = wait_for};
    memcpy(ret_bytes, &answer, sizeof answer);
}

size_t tow_shm_write_refusal(const char *sentence, bool later,
                             uint8_t ret_bytes[TOW_SHM_REFUSAL_MAX])
{
    struct shm_answer answer = {
        .magic = TOW_SHM_MAGIC, .version = SHM_VERSION, .control_size = later ? REFUSED_NOW : 0};
    answer.sentence = strnlen(sentence, TOW_WHY_MAX - 1);
    memcpy(ret_bytes, &answer, sizeof answer);
    memcpy(ret_bytes + sizeof answer, sentence, answer.sentence);
    return sizeof answer + answer.sentence;
}

static int check_request(const struct shm_request *request, char *ret_why, size_t size)
{
    if (request->version == 0) {
        snprintf(ret_why, size, "the client's request for shared memory makes no sense");
        return -EPROTO;
    }
    if (request->version != SHM_VERSION) {
        snprintf(ret_why, size,
                 "the client asks for shared memory in version %u, this server has version %u; "
                 "install the same Towline on both sides",
                 request->version, SHM_VERSION);
        return -EPROTONOSUPPORT;
    }
    if (request->preface > TOW_PREFACE_MAX) {
        snprintf(ret_why, size,
                 "the client's request for shared memory has a preface of %u bytes, more than %u",
                 request->preface, TOW_PREFACE_MAX);
        return -EPROTO;
    }
    return 0;
}

int tow_shm_read_request(const uint8_t *bytes, size_t n, struct tow_preface *ret_preface,
                         char *ret_why, size_t size)
{
    struct shm_request request;
    if (n < sizeof request) {
        return -EAGAIN;
    }
    memcpy(&request, bytes, sizeof request);
    int error = check_request(&request, ret_why, size);
    if (error < 0) {
        return error;
    }
    if (request.preface > n - sizeof request) {
        return -EAGAIN;
    }
    *ret_preface = (struct tow_preface){bytes + sizeof request, request.preface};
    return 0;
}

/* The request, checked; the preface is dropped. */
static int take_request(int fd, int64_t deadline_ns, char *ret_why, size_t size)
{
    struct shm_request request;
    uint8_t dropped[1024];
    int error = tow_sock_recv_all(fd, &request, sizeof request, deadline_ns);
    int wrong = error < 0 ? 0 : check_request(&request, ret_why, size);
    if (wrong == -EPROTONOSUPPORT) {
        uint8_t answer[TOW_SHM_REFUSAL_MAX];
        tow_sock_send_all(fd, answer, tow_shm_write_refusal(ret_why, false, answer), deadline_ns);
    }
    if (wrong < 0) {
        return wrong;
    }
    for (size_t left = request.preface; error == 0 && left > 0;) {
        size_t chunk = left < sizeof dropped ? left : sizeof dropped;
        error = tow_sock_recv_all(fd, dropped, chunk, deadline_ns);
        left -= chunk;
    }
    if (error < 0) {
        snprintf(ret_why, size, "the client's request for shared memory did not arrive: %s",
                 strerror(-error));
    }
    return error;
}

int tow_shm_serve(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                  struct tow_line **ret_line)
{
    int error = tow_sock_set_blocking(fd, true);
    if (error < 0) {
        snprintf(ret_why, size, "cannot set up the connection: %s", strerror(-error));
    } else {
        error = take_request(fd, deadline_ns, ret_why, size);
    }
    if (error < 0) {
        close(fd);
        return error;
    }
    int memory;
    error = make_memory(TOW_LINE_RING_SIZE, &memory);
    if (error < 0) {
        snprintf(ret_why, size, "cannot make shared memory: %s", strerror(-error));
        close(fd);
        return error;
    }
    struct shm_answer answer = {.magic = TOW_SHM_MAGIC,
                                .version = SHM_VERSION,
                                .control_size = CONTROL_SIZE,
                                .ring_size = TOW_LINE_RING_SIZE};
    error = tow_fds_send(fd, &answer, sizeof answer, &memory, 1);
    if (error < 0) {
        close(fd);
    } else {
        error = shm_build(fd, memory, TOW_LINE_RING_SIZE, 1, ret_line);
    }
    close(memory);
    if (error < 0) {
        snprintf(ret_why, size, "cannot share memory with the client: %s", strerror(-error));
    }
    return error;
}

/* The size of a memory is what makes our accesses safe: it must be as said, and stay so. */
static bool memory_is_safe(int memory, uint64_t ring_size)
{
    struct stat status;
    int seals = fcntl(memory, F_GET_SEALS);
    return ring_size >= RING_MIN && ring_size <= RING_MAX && (ring_size & (ring_size - 1)) == 0 &&
           ring_size >= TOW_LINE_RING_SIZE && seals >= 0 && (seals & SEALS) == SEALS &&
           fstat(memory, &status) == 0 && (uint64_t)status.st_size == total_size(ring_size);
}

/* In one piece: a listener that finds less looks again only after a while. */
static int send_request(int fd, const struct tow_preface *preface, int64_t deadline_ns)
{
    size_t more = preface != NULL ? preface->size : 0;
    struct shm_request request = {
        .magic = TOW_SHM_MAGIC, .version = SHM_VERSION, .preface = (uint32_t)more};
    uint8_t *bytes = more <= TOW_PREFACE_MAX ? malloc(sizeof request + more) : NULL;
    if (bytes == NULL) {
        return more <= TOW_PREFACE_MAX ? -ENOMEM : -EMSGSIZE;
    }
    memcpy(bytes, &request, sizeof request);
    if (more > 0) {
        memcpy(bytes + sizeof request, preface->bytes, more);
    }
    int error = tow_sock_send_all(fd, bytes, sizeof request + more, deadline_ns);
    free(bytes);
    return error;
}

/* Whether the answer is a refusal: then the sentence is read. */
static bool is_refused(int fd, const struct shm_answer *answer, int64_t deadline_ns, char *ret_text)
{
    if (memcmp(answer->magic, TOW_SHM_MAGIC, sizeof answer->magic) != 0 ||
        answer->version != SHM_VERSION || answer->ring_size != 0 ||
        answer->sentence >= TOW_WHY_MAX ||
        tow_sock_recv_all(fd, ret_text, (size_t)answer->sentence, deadline_ns) < 0) {
        return false;
    }
    ret_text[answer->sentence] = '\0';
    return true;
}

static int shm_check(const char *rest, char *ret_why, size_t size)
{
    return tow_unix_check("shm", rest, ret_why, size);
}

static int shm_connect(const char *rest, const struct tow_preface *preface,
                       struct tow_patience *patience, char *ret_why, size_t size,
                       struct tow_line **ret_line)
{
    int fd;
    int error = tow_unix_connect_fd("shm", rest, patience->deadline_ns, ret_why, size, &fd);
    if (error < 0) {
        return error;
    }
    struct shm_answer answer;
    int memory = -1, count = 0;
    error = send_request(fd, preface, patience->deadline_ns);
    bool waits = error == 0;
    while (waits) {
        error = tow_sock_poll(fd, POLLIN, tow_patience_next(patience));
        if (error == -ETIMEDOUT && tow_patience_goes_on(patience)) {
            continue;
        }
        if (error == 0) {
            error =
                tow_fds_recv(fd, &answer, sizeof answer, patience->deadline_ns, &memory, 1, &count);
        }
        waits = error == 0 && count == 0 && answer.version == 0 &&
                memcmp(answer.magic, TOW_SHM_MAGIC, sizeof answer.magic) == 0;
        if (waits) {
            tow_patience_place(patience, answer.ring_size, answer.sentence);
        }
    }
    if (error < 0) {
        close(fd);
        if (error == -ETIMEDOUT) {
            snprintf(ret_why, size, "the server at shm://%s did not answer in time", rest);
        } else {
            snprintf(ret_why, size,
                     "the server at shm://%s does not offer shared memory (%s); use unix://%s",
                     rest, strerror(-error), rest);
        }
        return error;
    }
    char text[TOW_WHY_MAX];
    if (count == 0 && is_refused(fd, &answer, patience->deadline_ns, text)) {
        /* As everything else names the socket. */
        snprintf(ret_why, size, "unix://%s refuses: %s", rest, text);
        close(fd);
        return answer.control_size == REFUSED_NOW ? -EUSERS : -EBUSY;
    }
    if (count != 1 || memcmp(answer.magic, TOW_SHM_MAGIC, sizeof answer.magic) != 0 ||
        answer.version != SHM_VERSION || answer.control_size != CONTROL_SIZE ||
        !memory_is_safe(memory, answer.ring_size)) {
        snprintf(ret_why, size,
                 "the server at shm://%s shares memory in a way this client does not know; use "
                 "unix://%s",
                 rest, rest);
        if (count == 1) {
            close(memory);
        }
        close(fd);
        return -EPROTO;
    }
    error = shm_build(fd, memory, (size_t)answer.ring_size, 0, ret_line);
    close(memory);
    if (error < 0) {
        snprintf(ret_why, size, "cannot map the memory of shm://%s: %s", rest, strerror(-error));
    }
    return error;
}

static int shm_listen(const char *rest, mode_t mode, char *ret_why, size_t size, int *ret_fd,
                      char *ret_address)
{
    return tow_unix_listen_fd("shm", rest, mode, ret_why, size, ret_fd, ret_address);
}

const struct tow_transport_ops tow_transport_shm = {
    .name = "shm",
    .prefix = "shm://",
    .further = &tow_transport_unix, /* the socket that arranges it */
    .check = shm_check,
    .connect = shm_connect,
    .listen = shm_listen,
    .adopt = tow_unix_adopt,
};
