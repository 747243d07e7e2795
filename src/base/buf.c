/* SPDX-License-Identifier: Apache-2.0 */
/* The growing byte buffer: it grows by doubling, up to its maximum, and remembers that it failed.
 */
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tow_buf_init(struct tow_buf *buf, size_t max)
{
    *buf = (struct tow_buf){.max = max};
}

void tow_buf_init_on(struct tow_buf *buf, void *memory, size_t size)
{
    *buf = (struct tow_buf){.data = memory, .capacity = size, .max = size};
}

void tow_buf_fini(struct tow_buf *buf)
{
    if (buf != NULL) {
        free(buf->data);
        *buf = (struct tow_buf){.max = buf->max};
    }
}

void tow_buf_clear(struct tow_buf *buf)
{
    buf->size = 0;
}

int tow_buf_reserve(struct tow_buf *buf, size_t extra)
{
    assert(buf->size <= buf->max);
    if (extra > buf->max - buf->size) {
        return -E2BIG;
    }
    size_t need = buf->size + extra;
    if (need <= buf->capacity) {
        return 0;
    }
    size_t capacity = buf->capacity < 64 ? 64 : buf->capacity;
    while (capacity < need) {
        capacity = capacity > buf->max / 2 ? buf->max : capacity * 2;
    }
    if (capacity > buf->max) {
        capacity = buf->max;
    }
    uint8_t *data = realloc(buf->data, capacity);
    if (data == NULL) {
        return -ENOMEM;
    }
    buf->data = data;
    buf->capacity = capacity;
    return 0;
}

int tow_buf_append(struct tow_buf *buf, const void *bytes, size_t n)
{
    uint8_t *at;
    int error = tow_buf_extend(buf, n, &at);
    if (error < 0) {
        return error;
    }
    if (n > 0) {
        memcpy(at, bytes, n);
    }
    return 0;
}

int tow_buf_extend(struct tow_buf *buf, size_t n, uint8_t **ret_at)
{
    int error = tow_buf_reserve(buf, n);
    if (error < 0) {
        return error;
    }
    *ret_at = n == 0 && buf->data == NULL ? NULL : buf->data + buf->size;
    buf->size += n;
    return 0;
}

int tow_buf_vprintf(struct tow_buf *buf, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) {
        return -EINVAL;
    }
    /* One more for the NUL, which is not counted in size. */
    int error = tow_buf_reserve(buf, (size_t)length + 1);
    if (error < 0) {
        return error;
    }
    vsnprintf((char *)buf->data + buf->size, (size_t)length + 1, format, args);
    buf->size += (size_t)length;
    return 0;
}

int tow_buf_printf(struct tow_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int error = tow_buf_vprintf(buf, format, args);
    va_end(args);
    return error;
}

void tow_buf_drop_front(struct tow_buf *buf, size_t n)
{
    assert(n <= buf->size);
    if (n > 0) {
        memmove(buf->data, buf->data + n, buf->size - n);
        buf->size -= n;
    }
}

uint8_t *tow_buf_steal(struct tow_buf *buf)
{
    uint8_t *data = buf->data;
    *buf = (struct tow_buf){.max = buf->max};
    return data;
}
