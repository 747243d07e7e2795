/* SPDX-License-Identifier: Apache-2.0 */
/* What a program hands to a load: recognised, measured, hashed. */
#ifndef TOW_CLIENT_IMAGE_H
#define TOW_CLIENT_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "wire/image.h"

struct towc_image {
    enum tow_image_form form;
    const void *data; /* borrowed from the program, or `owned` */
    size_t size;
    uint8_t hash[TOW_SHA256_SIZE];
    void *owned; /* owned: a bundle or a file's content; else NULL */
};

/* Follows wrappers. 0, -ENOEXEC (no image), -E2BIG, -ENOMEM. The program's memory is borrowed until
 * close. */
int towc_image_open(const void *code, struct towc_image *ret_image);
/* The image in a file. -ENOENT and other errors of reading too. */
int towc_image_open_file(const char *path, struct towc_image *ret_image);
/* Bytes whose length is known, of any kind. */
void towc_image_open_raw(const void *bytes, size_t size, struct towc_image *ret_image);
void towc_image_close(struct towc_image *image);

#endif
