/* SPDX-License-Identifier: Apache-2.0 */
/* Images that libraries of this process hold on a server: whoever loads one of them again need not
 * wait for the answer, which is known. cuDNN loads the same image for every shape that it meets: a
 * language model, once for every token. */
#ifndef TOW_CLIENT_IMAGE_REUSE_H
#define TOW_CLIENT_IMAGE_REUSE_H

#include <stdbool.h>

#include "client/code/code.h"

/* Loads without waiting. False, and nothing was done, if the image is not known on the server, or
 * what its load answers on this device is not. */
bool towc_image_reuse_load(struct towc_library *library, struct towc_context *context,
                           const struct towc_image *image, CUresult *ret_status);
/* A load of it was waited for and went well; `facts` is the rest of the reply, still to be read. */
void towc_image_reuse_add(struct towc_library *library, const struct towc_context *context,
                          const struct towc_image *image, struct tow_dec facts);
/* The library is about to end: before the server is told, and before it is destroyed. */
void towc_image_reuse_drop(struct towc_library *library);

#endif
