/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a module's variables take, told from its image: no driver says it. */
#ifndef TOW_SERVER_IMAGE_GLOBALS_H
#define TOW_SERVER_IMAGE_GLOBALS_H

#include <stdint.h>

/* Bytes of the variables in global memory of an image as the driver takes it: PTX, a cubin, a
 * fatbin or a wrapper of some, which was measured before (wire/image.h). Of a fatbin with code for
 * several GPUs it is the entry that has most among those for compute capabilities `major`.x and
 * those in PTX; of one that cannot be unpacked, its length. A length in PTX that has to be
 * computed is as large as can be: compilers write numbers. What cannot be read has none: the
 * driver will not take it, either. */
uint64_t tows_image_globals(const void *image, unsigned major);

#endif
