/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: what parses, what is refused and how it is said. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "machine.h"
#include "ptx/text/lexer.h"

static struct machine m;

static void refused(int error, unsigned line, const char *words, const char *text)
{
    int got = machine_load(&m, text, false);
    if (got != error || m.diag.line != line || !strstr(m.diag.message, words)) {
        fail_msg("error %d, line %u: '%s'; expected %d, line %u, '%s'", got, m.diag.line,
                 m.diag.message, error, line, words);
    }
    machine_unload(&m);
}

static void unknown_instructions_are_named_with_their_line(void **state)
{
    (void)state;
    refused(-ENOTSUP, 6, "wgmma.fence.sync.aligned",
            PTX_HEAD ".entry k() {\n.reg .b32 %r;\nwgmma.fence.sync.aligned;\n}");
    refused(-ENOTSUP, 6, "tcgen05.alloc",
            PTX_HEAD
            ".entry k() {\n\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [0], 32;\n}");
    refused(-ENOTSUP, 5, "frobnicate", PTX_HEAD ".entry k() {\nfrobnicate.u32 1;\n}");
    refused(-ENOTSUP, 6, "add.rn.u32",
            PTX_HEAD ".entry k() {\n.reg .b32 %r<3>;\nadd.rn.u32 %r0, %r1, %r2;\n}");
}

static const char *refused_of(const char *kernel, unsigned *ret_line)
{
    struct tow_ptx_kernel_info info;
    tow_ptx_kernel_describe(tow_ptx_kernel_find(m.module, kernel), &info);
    *ret_line = info.refused_line;
    return info.refused;
}

/* One of them hinders only who can reach it; mistakes behind it are still mistakes. */
static void unknown_instructions_are_told_by_kernel(void **state)
{
    static const char head[] = PTX_HEAD
        ".func deep() { .reg .b32 %r; .reg .pred %p; setp.eq.u32 %p, %r, 0;\n"
        "@%p wgmma.fence.sync.aligned; tcgen05.fence::before_thread_sync; ret; }\n"
        ".func fine() { ret; }\n"
        ".visible .global .u64 table[2] = {deep, fine};\n"
        ".entry good() { call fine; ret; }\n"
        ".entry far() { call fine; call deep; ret; }\n"
        ".entry through(.param .u32 n) { .reg .b64 %d<2>; .reg .b32 %r;\n"
        "ld.param.u32 %r, [n]; mov.u64 %d0, table; mul.wide.u32 %d1, %r, 8; add.u64 %d0, %d0, "
        "%d1;\n"
        "ld.global.u64 %d1, [%d0]; P: .callprototype _ (); call %d1, (), P; ret; }\n";
    char text[2048];
    unsigned line;
    (void)state;
    machine_load(&m, head, true);
    assert_true(tow_ptx_refuses(m.module));
    assert_null(refused_of("good", &line));
    assert_null(refused_of("through", &line)); /* found out when it comes there */
    assert_string_equal(refused_of("far", &line), "wgmma.fence.sync.aligned");
    assert_int_equal(line, 5);
    assert_int_equal(machine_run1(&m, "good", 1, 32, NULL, 0), 0);
    uint64_t deep = 0, fine = 1;
    assert_int_equal(machine_run1(&m, "through", 1, 32, &fine, 1), 0);
    assert_int_equal(machine_run1(&m, "through", 1, 32, &deep, 1), -EIO);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_INSTRUCTION);
    assert_non_null(strstr(m.fault.message, "'wgmma.fence.sync.aligned'"));
    machine_unload(&m);
    snprintf(text, sizeof text, "%s.entry wrong() { .reg .b32 %%r; add.u32 %%r, %%r; }", head);
    refused(-EINVAL, 13, "2 operands, expected 3", text);
}

/* On one device there is no address that it could be used with. */
static void multicast_memory_is_no_memory(void **state)
{
    (void)state;
    machine_load(&m,
                 PTX_HEAD
                 ".entry k(.param .u32 n) { .reg .b64 %d; .reg .b32 %r; .reg .f32 %f; .reg "
                 ".pred %p;\n"
                 "ld.param.u32 %r, [n]; setp.ne.u32 %p, %r, 0; mov.u64 %d, 0;\n"
                 "@%p multimem.ld_reduce.relaxed.sys.global.add.f32 %f, [%d]; ret; }\n",
                 true);
    uint64_t no = 0, yes = 1;
    assert_int_equal(machine_run1(&m, "k", 1, 32, &no, 1), 0);
    assert_int_equal(machine_run1(&m, "k", 1, 32, &yes, 1), -EIO);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_ADDRESS);
    machine_unload(&m);
}

static void mistakes_in_the_text_are_explained(void **state)
{
    (void)state;
    refused(-EINVAL, 1, "'.version'", "hello");
    refused(-EINVAL, 1, "'.version'", ".target sm_90\n");
    refused(-EINVAL, 1, "a version", ".version .target sm_90\n");
    refused(-EINVAL, 6, "2 operands, expected 3",
            PTX_HEAD
            ".entry k() {\n.reg .b32 %r<3>; .reg .f32 %f<3>;\ncvt.rn.f16x2.f32 %r1, %f1;\n}");
    refused(-EINVAL, 6, "does not fit",
            PTX_HEAD ".entry k() {\n.reg .f32 %f<3>; .reg .pred %p;\ncvt.rn.f32.u32 %f1, %p;\n}");
    refused(-EINVAL, 6, "3 operands, expected 2",
            PTX_HEAD
            ".entry k() {\n.reg .f64 %d<3>; .reg .f32 %f<3>;\ncvt.f64.f32 %d1, %f1, %f2;\n}");
    refused(-EINVAL, 5, "not declared", PTX_HEAD ".entry k() {\nbra NOWHERE;\n}");
    refused(-EINVAL, 6, "neither declared",
            PTX_HEAD ".entry k() {\n.reg .b32 %r<3>;\nmov.u32 %r9, 1;\n}");
    refused(-EINVAL, 6, "64-bit register",
            PTX_HEAD ".entry k() {\n.reg .b32 %r<3>;\nadd.u64 %r0, %r1, %r2;\n}");
    refused(-EINVAL, 5, "declared twice",
            PTX_HEAD ".entry k() {\n.reg .b32 %r<3>; .reg .b64 %r<2>;\n}");
    refused(-EINVAL, 6, "operands",
            PTX_HEAD ".entry k() {\n.reg .b32 %r<3>;\nadd.u32 %r0, %r1;\n}");
    refused(-EINVAL, 6, "'}'", PTX_HEAD ".entry k() {\n.reg .b32 %r<3>;\n");
    refused(-EINVAL, 5, "'vprintf' has 2 parameters",
            PTX_HEAD ".extern .func (.param .b32 r) vprintf();\n"
                     ".entry k() { .param .b32 r; call (r), vprintf, (); }");
    refused(-EINVAL, 5, "'cudaGraphSetConditional' has 2 parameters",
            PTX_HEAD ".extern .func cudaGraphSetConditional(.param .b64 h);\n"
                     ".entry k() { .param .b64 h; call cudaGraphSetConditional, (h); }");
    refused(
        -ENOENT, 4, "no text defines it",
        PTX_HEAD
        ".extern .global .u32 missing;\n.entry k() { .reg .b32 %r; ld.global.u32 %r, [missing]; }");
    refused(-ENOTSUP, 3, "-m64", ".version 8.0\n.target sm_90\n.address_size 32\n");
    refused(-EINVAL, 4, "more initial values", PTX_HEAD ".global .u32 a[2] = {1, 2, 3};\n");
    refused(-EINVAL, 4, "64 GiB", PTX_HEAD ".global .u64 a[99999999999];\n");
}

static void debug_forms_parse(void **state)
{
    (void)state;
    machine_load(
        &m,
        ".version 9.0\n.target sm_121a, debug\n.address_size 64\n"
        "@@DWARF .section .debug_abbrev, \"\", @progbits\n"
        ".file 1 \"/a b/c.cu\", 1, 2\n.pragma \"nounroll\";\n"
        ".weak .func (.param .b32 r) f(.param .b32 x)\n;\n"
        ".visible .entry k(.param .u64 .ptr .global .align 8 p0, .param .align 4 .b8 s[12])\n"
        ".maxntid 128, 2, 1 .minnctapersm 2 .maxnreg 40\n{\n"
        ".reg .b32 %r<4>; .reg .v2 .f32 %v; .reg .f32 %f;\n.loc 1 5 3\n.loc 1 7 2, function_name "
        "$L1, inlined_at 1 3 1\n"
        ".pragma \"nounroll\";\n{ .reg .b32 %r1; mov.u32 %r1, 3; L: add.u32 %r0, %r1, 1; }\n"
        "{ L: mov.f32 %v.x, 0f3F800000; mov.f32 %f, %v.y; /* not\n a label: */ }\n"
        "mov.u32 %r2, WARP_SZ; // comment\nret;\n}\n"
        ".func (.param .b32 r) f(.param .b32 x)\n{ .reg .b32 %a; ld.param.b32 %a, [x]; "
        "st.param.b32 [r+0], %a; ret; }\n"
        ".alias g, f;\n"
        ".section .debug_str { info_string0:\n.b8 95, 90\n.b8 49\n.b64 .debug_abbrev\n}\n",
        false);
    if (m.module) {
        fail_msg("an alias of an undeclared function must be refused");
    }
    machine_unload(&m);
    machine_load(
        &m,
        ".version 9.0\n.target sm_121a, debug\n.address_size 64\n"
        "@@DWARF .section .debug_abbrev, \"\", @progbits\n"
        ".file 1 \"/a b/c.cu\", 1, 2\n.pragma \"nounroll\";\n"
        ".weak .func (.param .b32 r) f(.param .b32 x)\n;\n"
        ".func (.param .b32 r) g(.param .b32 x)\n;\n"
        ".visible .entry k(.param .u64 .ptr .global .align 8 p0, .param .align 4 .b8 s[12])\n"
        ".maxntid 128, 2, 1 .minnctapersm 2 .maxnreg 40\n{\n"
        ".reg .b32 %r<4>; .reg .v2 .f32 %v; .reg .f32 %f;\n.loc 1 5 3\n.loc 1 7 2, function_name "
        "$L1, inlined_at 1 3 1\n"
        ".pragma \"nounroll\";\n{ .reg .b32 %r1; mov.u32 %r1, 3; L: add.u32 %r0, %r1, 1; }\n"
        "{ L: mov.f32 %v.x, 0f3F800000; mov.f32 %f, %v.y; /* not\n a label: */ }\n"
        "mov.u32 %r2, WARP_SZ; // comment\n{ .param .b32 i; .param .b32 o; st.param.b32 [i], %r2; "
        "call (o), g, (i); }\nret;\n}\n"
        ".func (.param .b32 r) f(.param .b32 x)\n{ .reg .b32 %a; ld.param.b32 %a, [x]; "
        "st.param.b32 [r+0], %a; ret; }\n"
        ".alias g, f;\n"
        ".section .debug_str { info_string0:\n.b8 95, 90\n.b8 49\n.b64 .debug_abbrev\n}\n",
        true);
    struct tow_ptx_kernel_info info;
    tow_ptx_kernel_describe(tow_ptx_kernel_find(m.module, "k"), &info);
    assert_int_equal(info.param_count, 2);
    assert_int_equal(info.param_bytes, 20);
    assert_int_equal(info.params[1].offset, 8);
    assert_int_equal(info.max_threads, 256);
    assert_int_equal(info.min_ctas, 2);
    assert_int_equal(machine_run1(&m, "k", 1, 32, NULL, 0), 0);
    machine_unload(&m);
}

static void texts_link_by_name(void **state)
{
    (void)state;
    static const char one[] = PTX_HEAD
        ".extern .func (.param .b32 r) f(.param .b32 x);\n.extern .global .u32 shared_one;\n"
        ".visible .entry k(.param .u64 p0) { .reg .b32 %r<2>; .reg .b64 %d; ld.param.u64 %d, "
        "[p0];\n"
        "ld.global.u32 %r0, [shared_one]; { .param .b32 i; .param .b32 o; st.param.b32 [i], %r0;\n"
        "call (o), f, (i); ld.param.b32 %r1, [o]; } st.global.u32 [%d], %r1; ret; }\n";
    static const char two[] =
        PTX_HEAD ".visible .global .u32 shared_one = 20; .global .u32 own = 1;\n"
                 ".visible .func (.param .b32 r) f(.param .b32 x) { .reg .b32 %a<2>; ld.param.b32 "
                 "%a0, [x];\n"
                 "ld.global.u32 %a1, [own]; add.u32 %a0, %a0, %a1; st.param.b32 [r], %a0; ret; }\n";
    struct tow_ptx_text texts[2] = {{one, sizeof one, "one"}, {two, sizeof two - 1, "two"}};
    struct tow_ptx_diag diag;
    struct tow_ptx_module *module;
    assert_int_equal(tow_ptx_load(texts, 1, &diag, &module), -ENOENT);
    assert_non_null(strstr(diag.message, "'shared_one'"));
    if (tow_ptx_load(texts, 2, &diag, &module)) {
        fail_msg("line %u: %s", diag.line, diag.message);
    }
    assert_int_equal(tow_ptx_variable_count(module), 2);
    assert_int_equal(tow_ptx_kernel_count(module), 1);
    tow_ptx_unload(module);
}

static const char *lack_of(const char *kernel)
{
    struct tow_ptx_kernel_info info;
    tow_ptx_kernel_describe(tow_ptx_kernel_find(m.module, kernel), &info);
    return info.undefined;
}

/* What nobody defines hinders only who can reach it. */
static void undefined_functions_are_told_by_kernel(void **state)
{
    (void)state;
    machine_load(
        &m,
        PTX_HEAD
        ".extern .func absent();\n.extern .func other();\n.extern .func unused();\n"
        ".extern .func tabled();\n"
        ".func again();\n.func fine();\n"
        ".visible .global .u64 table[2] = {tabled, fine};\n"
        ".func deep() { call absent; ret; }\n"
        ".func again() { call deep; call again; ret; }\n"
        ".func fine() { ret; }\n"
        ".entry good() { call fine; ret; }\n"
        ".entry near() { call absent; ret; }\n"
        ".entry far() { call fine; call again; ret; }\n"
        ".entry taken() { .reg .b64 %d; mov.u64 %d, other; ret; }\n"
        ".entry through(.param .u32 n) { .reg .b64 %d<2>; .reg .b32 %r;\n"
        "ld.param.u32 %r, [n]; mov.u64 %d0, table; mul.wide.u32 %d1, %r, 8; add.u64 %d0, %d0, "
        "%d1;\n"
        "ld.global.u64 %d1, [%d0]; P: .callprototype _ (); call %d1, (), P; ret; }\n",
        true);
    assert_int_equal(tow_ptx_undefined_count(m.module), 3);
    assert_string_equal(tow_ptx_undefined_at(m.module, 0)->name, "absent");
    assert_int_equal(tow_ptx_undefined_at(m.module, 0)->line, 11);
    assert_string_equal(tow_ptx_undefined_at(m.module, 1)->name, "other");
    assert_string_equal(tow_ptx_undefined_at(m.module, 2)->name, "tabled");
    assert_null(tow_ptx_undefined_at(m.module, 3));
    assert_null(lack_of("good"));
    assert_null(lack_of("through"));
    assert_string_equal(lack_of("near"), "absent");
    assert_string_equal(lack_of("far"), "absent");
    assert_string_equal(lack_of("taken"), "other");
    uint64_t which = 1;
    assert_int_equal(machine_run1(&m, "good", 1, 32, NULL, 0), 0);
    assert_int_equal(machine_run1(&m, "through", 1, 32, &which, 1), 0);
    which = 0;
    assert_int_equal(machine_run1(&m, "through", 1, 32, &which, 1), -EIO);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_UNDEFINED);
    assert_non_null(strstr(m.fault.message, "'tabled'"));
    assert_int_equal(machine_run1(&m, "far", 1, 32, NULL, 0), -EIO);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_UNDEFINED);
    assert_non_null(strstr(m.fault.message, "'absent'"));
    machine_unload(&m);
}

/* Cut at every byte: an error or a module, never a crash. */
static void any_prefix_is_survived(void **state)
{
    (void)state;
    static const char text[] = PTX_HEAD
        ".global .align 8 .u64 t[2] = {f, 5};\n.func (.param .b32 r) f(.param .b32 x) { ret; }\n"
        ".entry k(.param .u64 p) .maxntid 3,4 { .reg .pred %p<2>; .reg .f32 %f<3>; .reg .b64 "
        "%d<2>; .shared .b8 s[9];\n"
        "L: ld.param.u64 %d0, [p+0]; @!%p1 bra L; mov.b64 {_, %f0}, %d1; fma.rn.f32 %f0, %f1, "
        "0f3F800000, -1.5e3;\n"
        "T: .branchtargets L, L; ld.global.v2.f32 {%f0, %f1}, [%d0+-8]; { .param .b32 i; call (i), "
        "f, (i); } atom.shared.add.u32 %f0, [s+4], 1; }\n";
    for (size_t n = 0; n < sizeof text; n++) {
        char *copy = malloc(n + 1); /* exact size, so that a checker sees reads past the end */
        memcpy(copy, text, n);
        struct tow_ptx_text source = {copy, n, NULL};
        struct tow_ptx_diag diag;
        struct tow_ptx_module *module = NULL;
        if (tow_ptx_load(&source, 1, &diag, &module) == 0) {
            tow_ptx_unload(module);
        }
        free(copy);
    }
}

/* Whatever was in the token before. */
static void the_end_is_a_token_without_text(void **state)
{
    (void)state;
    const char text[] = "word ";
    struct tow_ptx_lexer lexer;
    struct tow_ptx_token token;
    tow_ptx_lexer_init(&lexer, text, sizeof text - 1);
    tow_ptx_lexer_next(&lexer, &token);
    assert_int_equal(token.kind, TOK_WORD);
    assert_int_equal(token.length, 4);
    for (int i = 0; i < 2; i++) {
        memset(&token, 0xff, sizeof token);
        tow_ptx_lexer_next(&lexer, &token);
        assert_int_equal(token.kind, TOK_END);
        assert_int_equal(token.line, 1);
        assert_ptr_equal(token.text, text + sizeof text - 1);
        assert_int_equal(token.length, 0);
        assert_int_equal(token.punct, 0);
        assert_int_equal(token.bits, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_instructions_are_named_with_their_line),
        cmocka_unit_test(unknown_instructions_are_told_by_kernel),
        cmocka_unit_test(multicast_memory_is_no_memory),
        cmocka_unit_test(mistakes_in_the_text_are_explained),
        cmocka_unit_test(debug_forms_parse),
        cmocka_unit_test(texts_link_by_name),
        cmocka_unit_test(undefined_functions_are_told_by_kernel),
        cmocka_unit_test(any_prefix_is_survived),
        cmocka_unit_test(the_end_is_a_token_without_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
