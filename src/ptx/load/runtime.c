/* SPDX-License-Identifier: Apache-2.0 */
/* Grid barriers for programs that come without NVIDIA's device runtime, which would define them:
 * Numba links it as machine code.
 *
 * As cooperative_groups.h does it: a cooperative launch has a workspace, whose address is in
 * %envreg1 and %envreg2. All blocks but the first add 1 to a word in it, the first adds so much
 * that the highest bit changes when the last one comes; everybody waits for that. */
#include "ptx/load/runtime.h"

#include <string.h>

static const char text[] =
    ".version 8.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".weak .func (.param .b64 ret) cudaCGGetIntrinsicHandle(.param .b32 scope)\n"
    "{\n"
    "  .reg .b32 %high, %low; .reg .b64 %d;\n"
    "  mov.b32 %high, %envreg1; mov.b32 %low, %envreg2;\n"
    "  mov.b64 %d, {%low, %high};\n"
    "  st.param.b64 [ret], %d;\n"
    "  ret;\n"
    "}\n"
    ".weak .func (.param .b32 ret) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)\n"
    "{\n"
    "  .reg .b64 %at; .reg .b32 %r<12>; .reg .pred %none, %wait, %other;\n"
    "  ld.param.b64 %at, [handle];\n"
    "  setp.eq.u64 %none, %at, 0;\n"
    "  mov.u32 %r0, 1;\n" /* cudaErrorInvalidValue: the launch is not cooperative */
    "  @%none bra done;\n"
    "  bar.sync 0;\n"
    "  mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;\n"
    "  or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3;\n"
    "  setp.ne.u32 %other, %r1, 0;\n"
    "  @%other bra meet;\n"
    "  mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y; mov.u32 %r6, %nctaid.z;\n"
    "  mul.lo.u32 %r4, %r4, %r5; mul.lo.u32 %r4, %r4, %r6;\n"
    "  sub.u32 %r4, 0x80000001, %r4;\n"
    "  mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ctaid.z;\n"
    "  or.b32 %r5, %r5, %r6; or.b32 %r5, %r5, %r7;\n"
    "  setp.eq.u32 %other, %r5, 0;\n"
    "  selp.b32 %r4, %r4, 1, %other;\n"
    "  fence.acq_rel.gpu;\n"
    "  atom.add.u32 %r8, [%at], %r4;\n"
    "again:\n"
    "  ld.acquire.gpu.u32 %r9, [%at];\n"
    "  xor.b32 %r9, %r9, %r8;\n"
    "  setp.ge.s32 %wait, %r9, 0;\n" /* the highest bit is as it was */
    "  @%wait bra again;\n"
    "  fence.acq_rel.gpu;\n"
    "meet:\n"
    "  bar.sync 0;\n"
    "  mov.u32 %r0, 0;\n"
    "done:\n"
    "  st.param.b32 [ret], %r0;\n"
    "  ret;\n"
    "}\n";

const struct tow_ptx_text *tow_ptx_runtime_for(const struct tow_ptx_program *program)
{
    static const struct tow_ptx_text runtime = {
        .text = text, .length = sizeof text - 1, .name = "the software GPU's runtime"};
    static const char *const names[] = {"cudaCGGetIntrinsicHandle", "cudaCGSynchronize"};
    for (const struct tow_ptx_symbol *symbol = program->undefined; symbol;
         symbol = symbol->scope_next) {
        for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
            if (symbol->kind == SYM_FUNC && symbol->length == strlen(names[i]) &&
                memcmp(symbol->name, names[i], symbol->length) == 0 &&
                !tow_ptx_defined(program, symbol)) {
                return &runtime;
            }
        }
    }
    return NULL;
}
