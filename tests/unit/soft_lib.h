/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the software GPU share: an open backend, a context, a few kernels. */
#ifndef TOW_TEST_SOFT_LIB_H
#define TOW_TEST_SOFT_LIB_H

#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "gen/context.h"
#include "gen/core.h"
#include "gen/launch.h"
#include "gen/module.h"

static struct tow_backend backend;
static struct tow_driver *cu; /* the table under test */
static CUcontext context;

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)
#define FAILS(code, call) assert_int_equal(call, code)

#define MIB ((size_t)1 << 20)

static inline int soft_open_with(const struct tow_soft_options *options)
{
    char why[256];
    int rc = tow_backend_soft_open(options, &backend, why, sizeof why);
    if (rc != 0) {
        fprintf(stderr, "%s\n", why);
        return rc;
    }
    cu = &backend.driver;
    OK(tow_drive(cu, cuInit)(0));
    OK(tow_drive(cu, cuDevicePrimaryCtxRetain)(&context, 0));
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    return 0;
}

static inline int soft_setup(void **state)
{
    (void)state;
    struct tow_soft_options options = {.memory = 256 * MIB};
    return soft_open_with(&options);
}

static inline int soft_teardown(void **state)
{
    (void)state;
    tow_drive(cu, cuCtxSetCurrent)(NULL);
    backend.close(&backend);
    return 0;
}

/* add: c[i] = a[i] + b[i] for i < n; fill: p[i] = v; spin: until *p is not 0; wild: writes to p;
 * trap. */
static const char *const soft_kernels =
    ".version 8.0\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".visible .global .align 4 .u32 counter = 7;\n"
    ".visible .const .align 4 .b8 table[16] = {1, 2, 3, 4};\n"
    ".visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)\n"
    "{\n"
    "  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<4>;\n"
    "  ld.param.u64 %d0, [pa]; ld.param.u64 %d1, [pb]; ld.param.u64 %d2, [pc]; ld.param.u32 %r0, "
    "[pn];\n"
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "  setp.ge.u32 %p, %r4, %r0;\n"
    "  @%p ret;\n"
    "  mul.wide.u32 %d3, %r4, 4;\n"
    "  add.u64 %d4, %d0, %d3; add.u64 %d5, %d1, %d3; add.u64 %d6, %d2, %d3;\n"
    "  ld.global.f32 %f0, [%d4]; ld.global.f32 %f1, [%d5];\n"
    "  add.f32 %f2, %f0, %f1;\n"
    "  st.global.f32 [%d6], %f2;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry fill(.param .u64 p, .param .u32 v)\n"
    "{\n"
    "  .reg .b32 %r<8>; .reg .b64 %d<4>;\n"
    "  ld.param.u64 %d0, [p]; ld.param.u32 %r0, [v];\n"
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "  mul.wide.u32 %d1, %r4, 4; add.u64 %d2, %d0, %d1;\n"
    "  st.global.u32 [%d2], %r0;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry increment(.param .u64 p)\n"
    "{\n"
    "  .reg .b32 %r<4>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [p];\n"
    "  ld.global.u32 %r0, [%d0]; add.u32 %r0, %r0, 1; st.global.u32 [%d0], %r0;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry spin(.param .u64 p)\n"
    "{\n"
    "  .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [p];\n"
    "again:\n"
    "  ld.volatile.global.u32 %r0, [%d0];\n"
    "  setp.eq.u32 %p, %r0, 0;\n"
    "  @%p bra again;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry forever()\n"
    "{\n"
    "again:\n"
    "  bra again;\n"
    "}\n"
    ".visible .entry crash()\n"
    "{\n"
    "  trap;\n"
    "}\n"
    ".visible .entry bounded() .maxntid 64, 1, 1 .maxnreg 10\n"
    "{\n"
    "  ret;\n"
    "}\n"
    ".visible .entry bump()\n"
    "{\n"
    "  .reg .b32 %r<2>; .reg .b64 %d;\n"
    "  mov.u64 %d, counter;\n"
    "  ld.global.u32 %r0, [%d]; add.u32 %r0, %r0, 1; st.global.u32 [%d], %r0;\n"
    "  ret;\n"
    "}\n"
    ".extern .shared .align 16 .b8 dynamic[];\n"
    ".visible .entry shared(.param .u64 p)\n"
    "{\n"
    "  .reg .b32 %r<6>; .reg .b64 %d<4>;\n"
    "  .shared .align 4 .b8 fixed[256];\n"
    "  ld.param.u64 %d0, [p];\n"
    "  mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; st.shared.u32 [fixed], %r0;\n"
    "  mov.u32 %r2, dynamic; add.u32 %r2, %r2, %r1; st.shared.u32 [%r2], %r0;\n"
    "  bar.sync 0;\n"
    "  mov.u32 %r3, %ntid.x; sub.u32 %r3, %r3, 1; sub.u32 %r3, %r3, %r0; shl.b32 %r3, %r3, 2;\n"
    "  mov.u32 %r4, dynamic; add.u32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4];\n"
    "  mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1; st.global.u32 [%d2], %r5;\n"
    "  ret;\n"
    "}\n";

static inline CUmodule soft_module(void)
{
    CUmodule module;
    OK(tow_drive(cu, cuModuleLoadData)(&module, soft_kernels));
    return module;
}

static inline CUfunction soft_function(CUmodule module, const char *name)
{
    CUfunction function;
    OK(tow_drive(cu, cuModuleGetFunction)(&function, module, name));
    return function;
}

static inline CUresult soft_launch(CUfunction f, unsigned grid, unsigned block, CUstream stream,
                                   void **params)
{
    return tow_drive(cu, cuLaunchKernel)(f, grid, 1, 1, block, 1, 1, 0, stream, params, NULL);
}

#endif
