/* SPDX-License-Identifier: Apache-2.0 */
/* From which PTX a cubin comes that a linker (nvJitLink) made of several objects: the objects are
 * found again in it by the code of their functions. */
#ifndef TOW_CLIENT_LINKED_CUBIN_H
#define TOW_CLIENT_LINKED_CUBIN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* An object that is to be linked, and its PTX. */
struct towc_linked_object {
    struct towc_linked_object *next; /* owned: one that is older */
    size_t elf_size, text_size;
    bool used;  /* while a cubin is looked at */
    char *text; /* behind the bytes of the object */
    unsigned char elf[];
};

/* Whether these bytes are an object for a linker. */
bool towc_linked_is_object(const void *elf, size_t n);
/* A copy of both; NULL without memory. */
struct towc_linked_object *towc_linked_object_create(const void *elf, size_t n, const char *text,
                                                     size_t text_size);
/* Appends the PTX of all objects that are in the cubin: one text, or several behind a line with
 * their lengths, as the software GPU's own linker writes them. -ENOENT if a kernel is in none of
 * them. */
int towc_linked_ptx_of(const void *cubin, size_t n, struct towc_linked_object *objects,
                       struct tow_buf *ptx);

#endif
