/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what a program allocates, its libraries' allocations too. For one file of a program. */
#ifndef TOW_TESTS_HEAP_H
#define TOW_TESTS_HEAP_H

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_ulong allocations;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#pragma GCC visibility push(default) /* the libraries' calls come here, too */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **ret_at, size_t alignment, size_t size)
{
    void *at = aligned_alloc(alignment, size);
    if (at == NULL) {
        return ENOMEM;
    }
    *ret_at = at;
    return 0;
}
#pragma GCC visibility pop
#endif

#endif
