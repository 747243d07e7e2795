/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the commands about code that are not written by the generator, as both sides see them.
 * docs/wire/code.md has them field by field.
 */
#ifndef TOW_WIRE_CODE_H
#define TOW_WIRE_CODE_H

#include <stdint.h>

#include "base/hash.h"
#include "wire/cursor.h"
#include "wire/image.h"

/* ---- an image by its name ---- */

enum tow_code_stage {
    TOW_CODE_OFFER = 0, /* the sender has it; does the server? */
    TOW_CODE_SENT = 1,  /* it has just been sent as `transfer` */
    TOW_CODE_KNOWN = 2, /* a library of this session holds it; the reply, if any, is empty */
};

enum tow_code_answer {
    TOW_CODE_DONE = 0, /* the command was carried out */
    TOW_CODE_SEND = 1, /* send the image as the transfer that was named, then ask again */
};

struct tow_code_ref {
    uint8_t hash[TOW_SHA256_SIZE];
    uint64_t size;
    uint32_t form; /* enum tow_image_form */
    uint32_t stage;
    uint32_t transfer;
    uint32_t flags; /* none yet */
};
_Static_assert(sizeof(struct tow_code_ref) == 56, "as the wire says");

/* ---- what is known of a kernel ---- */

enum {
    TOW_KERNEL_ATTRIBUTES = 16, /* CUfunction_attribute 0 .. 15 */
    TOW_KERNEL_PARAMS_MAX = 8192,
    TOW_KERNEL_NAME_MAX = 65535, /* C++ templates make long ones */
    TOW_DEVICE_NONE = -1,
};

/* Then `params` times {u32 offset, u32 size}. */
struct tow_kernel_info {
    uint32_t params;
    uint32_t known; /* bit i: attribute i is there */
    int32_t attributes[TOW_KERNEL_ATTRIBUTES];
};
_Static_assert(sizeof(struct tow_kernel_info) == 72, "as the wire says");

/* What is known of kernels before anybody looks them up, from earlier sessions: in the reply to a
 * load, and in the same bytes on the server's disk. `bytes` is all of it with this head, a multiple
 * of 8; `check` the first 4 bytes of the SHA-256 of what follows the head: tow_kernel_info,
 * parameters, string. */
struct tow_kernel_fact {
    uint32_t bytes;
    uint32_t check;
};

enum {
    TOW_KERNEL_FACTS_MAX = 256 * 1024, /* bytes of them in a reply */
    TOW_KERNEL_FACT_MAX = 256 * 1024,  /* bytes of one */
};

/* Takes the next fact off `dec`: its content, name included, is checked. False at the end, and when
 * it is damaged. */
bool tow_kernel_fact_read(struct tow_dec *dec, struct tow_kernel_info *ret_info,
                          const uint8_t **ret_params, const char **ret_name);
/* Writes one; false if it does not fit. */
bool tow_kernel_fact_write(struct tow_enc *enc, const struct tow_kernel_info *info,
                           const void *params, const char *name);

/* ---- launches ---- */

enum {
    TOW_LAUNCH_ARGS_MAX = 65528, /* CUDA allows 32,764 bytes of kernel arguments */
    TOW_LAUNCH_ATTRIBUTES_MAX = 64,
    TOW_LAUNCH_VALUE_WORDS = 8, /* a launch attribute's value in u64 */
};

/* With the frame's header 56 bytes; then `bytes` of arguments, packed as the kernel wants them.
 * With what fills them up to a multiple of 8 a launch has at most 64 bytes and its arguments. */
struct tow_launch_head {
    uint64_t function;
    uint64_t stream;
    uint32_t grid[3];
    uint32_t shared;
    uint16_t block[3]; /* as tow_launch_dimension says */
    uint16_t bytes;
};
_Static_assert(sizeof(struct tow_launch_head) == 40, "as the wire says");
_Static_assert(TOW_LAUNCH_ARGS_MAX <= UINT16_MAX, "their size fits into a head");

/* A side of a block. No GPU has any that is as large as 65,535: what is larger is refused as that.
 */
static inline uint16_t tow_launch_dimension(uint32_t size)
{
    return size < UINT16_MAX ? (uint16_t)size : UINT16_MAX;
}

/* cuLaunchKernelEx: behind the head {u32 count, u32 0} and, `count` times, this and `words` u64 of
 * value (zeros at its end are left out); then the arguments. */
struct tow_launch_attribute {
    uint32_t id;
    uint32_t words;
};

/* ---- options of the compiler ---- */

enum {
    TOW_JIT_OPTIONS_MAX = 64,
    TOW_JIT_LOG_MAX = 256 * 1024, /* of each log */
    TOW_JIT_NAMES_MAX = 65536,
};

/* Then `bytes` of payload, padded to a multiple of 8: the names of a list, each
 * with its NUL, or a list of u64. In a reply `option` is the index of the option, and the payload
 * is a log's text. */
struct tow_jit_field {
    uint32_t option;
    uint32_t bytes;
    uint64_t value;
};

#endif
