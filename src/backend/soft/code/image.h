/* SPDX-License-Identifier: Apache-2.0 */
/* Images of all forms to code. */
#ifndef TOW_SOFT_CODE_IMAGE_H
#define TOW_SOFT_CODE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "gen/cuda_types.h"
#include "ptx/ptx.h"

#define TOW_SOFT_IMAGE_MAX (UINT64_C(1) << 30)

/* Parsed code, shared by the libraries and modules made of it. */
struct tow_soft_code {
    unsigned refs;
    struct tow_ptx_module *ptx; /* owned */
    size_t kernel_count, variable_count;
    int ptx_target;                  /* of the text, e.g. 90 */
    uint8_t digest[TOW_SHA256_SIZE]; /* of its texts; zeroes unless launches are checked */
};
struct tow_soft_code *tow_soft_code_ref(struct tow_soft_code *code);
void tow_soft_code_unref(struct tow_soft_code *code);

/* The JIT options of a load, as far as they matter here. */
struct tow_soft_jit {
    char *info, *error;
    size_t info_size, error_size;
    unsigned index_info, index_error;   /* + 1; where the sizes written go */
    unsigned index_wall, index_threads; /* + 1; where time and threads of a block go */
    void **values;
};

/* CUDA_ERROR_INVALID_VALUE for options that do not fit together. */
CUresult tow_soft_jit_parse(unsigned count, const CUjit_option *options, void **values,
                            struct tow_soft_jit *ret_jit);
/* Writes what the options ask for: the time that compiling took so far, logs and their sizes, and
 * for how many threads it was. */
void tow_soft_jit_done(struct tow_soft_jit *jit, int64_t ns, const char *info, const char *error);
/* Whether NVIDIA's driver, and no text, would define a function of this name. */
bool tow_soft_is_device_runtime(const char *name);
/* The first function of the code that nobody defines, NVIDIA's driver neither; NULL if none. */
const struct tow_ptx_undefined *tow_soft_undefined(const struct tow_ptx_module *ptx);
/* Turns an image of any form into code; unlocked. */
CUresult tow_soft_code_load(const void *image, struct tow_soft_jit *jit,
                            struct tow_soft_code **ret_code);

/* Collects the PTX texts of an image (owned by the caller; see image.c). */
struct tow_soft_texts {
    struct tow_ptx_text *texts; /* owned, each text too */
    size_t count, capacity;
};
CUresult tow_soft_image_texts(const void *image, size_t known_size, struct tow_soft_texts *texts,
                              char *why, size_t why_size);
void tow_soft_texts_fini(struct tow_soft_texts *texts);
int tow_soft_texts_add(struct tow_soft_texts *texts, const void *bytes, size_t size,
                       const char *name);
/* What a dry GPU takes for code: PTX that declares a cubin's kernels and variables (owned by the
 * caller; -EINVAL, -ENOMEM), and PTX text without the bodies of its functions, in place. */
int tow_soft_skeleton_of_cubin(const uint8_t *bytes, size_t size, char **ret_text);
void tow_soft_skeleton_of_text(char *text);

#endif
