/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: rings mapped twice in a row, and the waiting that all kinds share. */
#ifndef TOW_TRANSPORT_RING_H
#define TOW_TRANSPORT_RING_H

#include "transport/line.h"

/* Maps `size` bytes of `fd` from `offset` on twice in a row, so that what wraps around is
 * contiguous. With fd -1 the memory is fresh and private to this process (and its forks). */
int tow_mirror_map(int fd, uint64_t offset, size_t size, uint8_t **ret_base);
void tow_mirror_unmap(uint8_t *base, size_t size);

/* Sets the common fields; everything else of `line` is zero. */
void tow_line_init(struct tow_line *line, const struct tow_line_ops *ops);

/* Connects the line's producer half with a ring that is empty. */
void tow_line_set_out(struct tow_line *line, uint8_t *base, struct tow_ring_ctl *ctl, size_t size);

/* Notes why nothing can be sent any more (first one wins) and wakes whoever waits here. */
void tow_line_fail(struct tow_line *line, int error);

/* One waiting: until *word - base >= need. */
struct tow_ring_wait {
    _Atomic uint64_t *word;  /* the position the other side advances */
    _Atomic uint32_t *waits; /* set to 1 before sleeping */
    uint64_t base;
    uint64_t need;
    uint64_t capacity; /* *word - base beyond this is nonsense */
    struct tow_spin *spin;
    _Atomic uint64_t *sleeps; /* counter */
    _Atomic uint64_t *spins;  /* counter */
    bool producer;            /* then line->error ends the wait too */
};

/* Gives *word - base. -EPROTO if the word is nonsense; what peer_gone, error and down say else. */
int tow_ring_wait(struct tow_line *line, const struct tow_ring_wait *wait, int64_t deadline_ns,
                  uint64_t *ret_value);

/* Advances a tail and wakes the producer if it waits for room and there is enough now. `head` is
 * the last one known: more may have been written since. */
void tow_ring_release(struct tow_ring_ctl *ctl, uint64_t tail, uint64_t head, uint64_t capacity,
                      bool shared, _Atomic uint64_t *wakes);

/* Clears a waits word and wakes everyone who sleeps on it. */
void tow_ring_wake(_Atomic uint32_t *waits, bool shared);

/* Copies into the out ring in pieces that the consumer can start on early. */
int tow_ring_send_copy(struct tow_line *line, const struct iovec *iov, int count);

/* Spinning: until when to spin from `now_ns` on (not at all where that is now), and what to learn
 * from a wait that began and ended then, sleep included: spinning pays where waits are short. */
int64_t tow_spin_until(const struct tow_spin *spin, int64_t now_ns);
void tow_spin_learn(struct tow_spin *spin, int64_t began_ns, int64_t now_ns);
void tow_spin_expect(struct tow_spin *spin, int64_t until_ns);

/* True when the socket says that its peer is gone. */
bool tow_socket_ended(int fd);

#endif
