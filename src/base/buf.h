/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer with a maximum, for whatever is collected from outside.
 *
 * Every buffer names its maximum when it is made, so nothing a peer sends can make it grow beyond
 * what its owner thought of. Not for several threads at once.
 */
#ifndef TOW_BASE_BUF_H
#define TOW_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct tow_buf {
    uint8_t *data; /* owned, but see tow_buf_init_on; NULL while nothing was stored */
    size_t size;
    size_t capacity;
    size_t max; /* size never goes beyond */
};

void tow_buf_init(struct tow_buf *buf, size_t max);
void tow_buf_fini(struct tow_buf *buf);
/* A buffer in memory of the caller's, which is its maximum: it allocates nothing, and is not given
 * to tow_buf_fini or tow_buf_steal. */
void tow_buf_init_on(struct tow_buf *buf, void *memory, size_t size);

/* Forgets the content, keeps the memory. */
void tow_buf_clear(struct tow_buf *buf);

/* Makes room for `extra` more bytes: -E2BIG beyond the maximum, -ENOMEM. */
int tow_buf_reserve(struct tow_buf *buf, size_t extra);

int tow_buf_append(struct tow_buf *buf, const void *bytes, size_t n);

/* Adds `n` bytes of unspecified content and says where; valid until the buffer grows again. */
int tow_buf_extend(struct tow_buf *buf, size_t n, uint8_t **ret_at);

/* Appends text; the terminating NUL is stored behind the text but does not count in size. */
int tow_buf_printf(struct tow_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int tow_buf_vprintf(struct tow_buf *buf, const char *format, va_list args);

/* Removes the first `n` bytes; n <= size. */
void tow_buf_drop_front(struct tow_buf *buf, size_t n);

/* Hands the memory to the caller (to free()) and leaves the buffer empty. */
uint8_t *tow_buf_steal(struct tow_buf *buf);

#endif
