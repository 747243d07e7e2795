/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the driver's cases. */
#include "driver.h"

#define ENTRY ".visible .entry "
#define WORDS_0_2 ".reg .b64 %a, %b; .reg .b32 %v, %w, %i, %n, %c; .reg .pred %p;\n"

const char driver_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 number = 7;\n"
    ".visible .global .align 8 .b8 bytes[24];\n"
    ".visible .const .align 4 .u32 factors[4] = {2, 3, 5, 7};\n"
    ".extern .shared .align 4 .b8 room[];\n"
    /* *to = value */
    ENTRY "set(.param .u64 to, .param .u32 value)\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; ld.param.u32 %v, [value]; st.global.u32 [%a], %v; ret;\n}\n"
    /* *to = *from */
    ENTRY "copy(.param .u64 to, .param .u64 from)\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; ld.param.u64 %b, [from]; ld.global.u32 %v, [%b];\n"
    "st.global.u32 [%a], %v; ret;\n}\n"
    /* *to += value */
    ENTRY "inc(.param .u64 to, .param .u32 value)\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; ld.param.u32 %v, [value]; ld.global.u32 %w, [%a];\n"
    "add.u32 %w, %w, %v; st.global.u32 [%a], %w; ret;\n}\n"
    /* *to += 1 from every thread, atomically */
    ENTRY "count(.param .u64 to)\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; red.global.add.u32 [%a], 1; ret;\n}\n"
    /* *to = number * factors[index] */
    ENTRY "globals(.param .u64 to, .param .u32 index)\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; ld.param.u32 %i, [index]; mul.wide.u32 %b, %i, 4;\n"
    ".reg .b64 %f; mov.u64 %f, factors; add.u64 %f, %f, %b; ld.const.u32 %v, [%f];\n"
    "ld.global.u32 %w, [number]; mul.lo.u32 %v, %v, %w; st.global.u32 [%a], %v; ret;\n}\n"
    /* to[0..5] = grid and block dimensions, by the last thread of the last block */
    ENTRY "shape(.param .u64 to)\n{\n" WORDS_0_2 "ld.param.u64 %a, [to];\n"
    "mov.u32 %v, %nctaid.x; st.global.u32 [%a], %v; mov.u32 %v, %nctaid.y;\n"
    "st.global.u32 [%a+4], %v; mov.u32 %v, %nctaid.z; st.global.u32 [%a+8], %v;\n"
    "mov.u32 %v, %ntid.x; st.global.u32 [%a+12], %v; mov.u32 %v, %ntid.y;\n"
    "st.global.u32 [%a+16], %v; mov.u32 %v, %ntid.z; st.global.u32 [%a+20], %v; ret;\n}\n"
    /* *to = the bytes of dynamic shared memory, having written the last word of it */
    ENTRY "shared(.param .u64 to)\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; mov.u32 %v, %dynamic_smem_size; mov.u32 %w, room;\n"
    "add.u32 %w, %w, %v; st.shared.u32 [%w+-4], %v; ld.shared.u32 %n, [%w+-4];\n"
    "st.global.u32 [%a], %n; ret;\n}\n"
    /* static shared memory: 1000 words */
    ENTRY "fixed(.param .u64 to)\n{\n.shared .align 4 .b8 mine[4000];\n" WORDS_0_2
    "ld.param.u64 %a, [to]; st.shared.u32 [mine+3996], 9; ld.shared.u32 %v, [mine+3996];\n"
    "st.global.u32 [%a], %v; ret;\n}\n"
    /* parameters of many sizes: *to = byte + short + int + low and high half of long + bytes 5 of
       blob */
    ENTRY "many(.param .u8 byte, .param .u16 half, .param .u32 word, .param .u64 wide,\n"
    ".param .align 1 .b8 blob[7], .param .f32 real, .param .u64 to)\n{\n" WORDS_0_2
    ".reg .f32 %f; .reg .b16 %h;\n"
    "ld.param.u8 %v, [byte]; ld.param.u16 %h, [half]; cvt.u32.u16 %w, %h; add.u32 %v, %v, %w;\n"
    "ld.param.u32 %w, [word]; add.u32 %v, %v, %w; ld.param.u64 %b, [wide]; cvt.u32.u64 %w, %b;\n"
    "add.u32 %v, %v, %w; shr.u64 %b, %b, 32; cvt.u32.u64 %w, %b; add.u32 %v, %v, %w;\n"
    "ld.param.u8 %w, [blob+5]; add.u32 %v, %v, %w; ld.param.f32 %f, [real];\n"
    "cvt.rzi.u32.f32 %w, %f; add.u32 %v, %v, %w; ld.param.u64 %a, [to];\n"
    "st.global.u32 [%a], %v; ret;\n}\n"
    /* the most parameters there were before 12.1: *to = the last word of a structure */
    ENTRY "large(.param .u64 to, .param .align 4 .b8 blob[4088])\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; ld.param.u32 %v, [blob+4084]; st.global.u32 [%a], %v; ret;\n}\n" ENTRY
    "limited(.param .u64 to)\n.maxntid 128, 1, 1\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; red.global.add.u32 [%a], 1; ret;\n}\n" ENTRY
    "exact(.param .u64 to)\n.reqntid 32, 2, 1\n{\n" WORDS_0_2
    "ld.param.u64 %a, [to]; red.global.add.u32 [%a], 1; ret;\n}\n" ENTRY
    "nothing()\n{\nret;\n}\n" ENTRY "broken()\n{\ntrap;\nret;\n}\n";

#define SET_CONDITION                                                                              \
    "{ .param .b64 p; .param .b32 q; st.param.b64 [p], %b; st.param.b32 [q], %v;\n"                \
    "call.uni cudaGraphSetConditional, (p, q); }\n"

const char condition_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 p, .param .b32 q);\n"
    /* the condition = *from */
    ENTRY "decide(.param .u64 handle, .param .u64 from)\n{\n" WORDS_0_2
    "ld.param.u64 %b, [handle]; ld.param.u64 %a, [from]; ld.global.u32 %v, [%a];\n" SET_CONDITION
    "ret;\n}\n"
    /* *count += 1; the condition = *count < limit */
    ENTRY "again(.param .u64 handle, .param .u64 count, .param .u32 limit)\n{\n" WORDS_0_2
    "ld.param.u64 %b, [handle]; ld.param.u64 %a, [count]; ld.param.u32 %n, [limit];\n"
    "ld.global.u32 %w, [%a]; add.u32 %w, %w, 1; st.global.u32 [%a], %w;\n"
    "setp.lt.u32 %p, %w, %n; selp.u32 %v, 1, 0, %p;\n" SET_CONDITION "ret;\n}\n" ENTRY
    "fail()\n{\ntrap;\nret;\n}\n";
