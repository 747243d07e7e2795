/* Layouts of an image's kernels, read out of its machine code: so that nobody has to ask the driver
 * for each, which would make it load them all.
 */
#ifndef TOW_SERVER_LAYOUTS_H
#define TOW_SERVER_LAYOUTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/code.h"

/* The machine code in an image of that form that a driver runs on a GPU of that compute capability
 * (90: 9.0): 1, and `ret_owned` is to be freed (NULL: `ret_bytes` is the image's own). 0 where
 * there is none, or it is not certain which it takes; else an error. */
int tow_layouts_code(const uint8_t *image, size_t size, enum tow_image_form form,
                     unsigned capability, const uint8_t **ret_bytes, size_t *ret_size,
                     uint8_t **ret_owned);
/* How much there is to unpack for that; 0 if nothing. */
size_t tow_layouts_packed(const uint8_t *image, size_t size, enum tow_image_form form,
                          unsigned capability);

/* Appends the layouts of a cubin's kernels, as many as fit. Returns how many there are, or an
 * error.
 */
int tow_layouts_read(const uint8_t *cubin, size_t size, struct tow_buf *layouts);

#endif
