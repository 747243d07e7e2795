/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that are told of reads of what nobody wrote: every kind of load and store, to the byte.
 */
#include "../unit/cmocka_all.h"

#include "base/bits.h"
#include "machine.h"

#include <stdio.h>
#include <string.h>

enum { MEMORY = 8192, AT = 1024 };

#define REGS                                                                                       \
    ".reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %d<16>; .reg .b128 %q; .reg .f32 %f<4>; "        \
    ".reg .pred %p<4>;\n"                                                                          \
    "ld.param.u64 %d1, [p0]; mov.u64 %d4, 7; mov.u32 %r1, 7; mov.u32 %r2, data; "                  \
    "mov.u32 %r29, %tid.x; cvt.u64.u32 %d2, %r2; cvta.shared.u64 %d3, %d2; mov.b64 %d5, 8;\n"      \
    "mov.u32 %r20, 8; mov.u32 %r21, 0; mov.b16 %h1, 7; mov.f32 %f1, 0f3F800000;\n"
#define SHARED ".shared .align 128 .b8 data[4096]; .shared .align 8 .b64 bar;"
#define INIT_BAR "mbarrier.init.shared.b64 [bar], 1; bar.sync 0;\n"

static struct machine m;
static uint8_t *memory; /* global memory of a test */
static tow_bits bits[TOW_BITS_WORDS(MEMORY)];
static struct tow_ptx_written written;
static unsigned told, unseen;
static struct tow_ptx_fault first;

static void found(void *user, const struct tow_ptx_fault *fault)
{
    (void)user;
    if (fault->kind == TOW_PTX_FAULT_UNSEEN_READS) {
        unseen++;
        return;
    }
    assert_int_equal(fault->kind, TOW_PTX_FAULT_UNWRITTEN);
    if (told++ == 0) {
        first = *fault;
    }
}

static void begin(const char *body)
{
    char text[8192];
    snprintf(text, sizeof text, "%s%s", REGS, body);
    tow_ptx_check_loads(TOW_PTX_CHECK_INIT);
    machine_load(&m, machine_wrap(SHARED, text), true);
    tow_ptx_check_loads(0);
    memory = machine_alloc(&m, MEMORY);
    written = (struct tow_ptx_written){ARG(memory), MEMORY, bits};
    m.found = found;
    m.checks = TOW_PTX_CHECK_INIT;
    m.written = &written;
}

static void run(unsigned threads)
{
    uint64_t args[1] = {ARG(memory)};
    told = 0;
    assert_int_equal(machine_run1(&m, "k", 1, threads, args, 1), 0);
}

struct form {
    const char *body;
    unsigned bytes, threads;
};

/* What reads `bytes` bytes at AT of global memory. */
static const struct form reads[] = {
    {"ld.global.u8 %r3, [%d1+1024];", 1, 1},
    {"ld.global.s8 %r3, [%d1+1024];", 1, 1},
    {"ld.global.u16 %r3, [%d1+1024];", 2, 1},
    {"ld.global.u32 %r3, [%d1+1024];", 4, 1},
    {"ld.global.nc.u32 %r3, [%d1+1024];", 4, 1},
    {"ldu.global.u32 %r3, [%d1+1024];", 4, 1},
    {"ld.volatile.global.u32 %r3, [%d1+1024];", 4, 1},
    {"ld.relaxed.gpu.global.u32 %r3, [%d1+1024];", 4, 1},
    {"ld.acquire.gpu.global.u32 %r3, [%d1+1024];", 4, 1},
    {"ld.u32 %r3, [%d1+1024];", 4, 1},
    {"ld.global.u64 %d6, [%d1+1024];", 8, 1},
    {"ld.global.v2.u32 {%r3, %r4}, [%d1+1024];", 8, 1},
    {"ld.global.v4.f32 {%f2, %f2, %f2, %f3}, [%d1+1024];", 16, 1},
    {"ld.global.v2.u64 {%d6, %d7}, [%d1+1024];", 16, 1},
    {"ld.global.b128 %q, [%d1+1024];", 16, 1},
    {"shl.b32 %r4, %r29, 2; cvt.u64.u32 %d6, %r4; add.u64 %d6, %d6, %d1;"
     "ld.global.u32 %r3, [%d6+1024];",
     128, 32},
    {"ld.global.u32 %r3, [%d1+1024];", 4, 32},
    {"atom.global.add.u32 %r3, [%d1+1024], 1;", 4, 1},
    {"red.global.add.u32 [%d1+1024], 1;", 4, 1},
    {"red.global.add.f32 [%d1+1024], %f1;", 4, 1},
    {"atom.global.or.b32 %r3, [%d1+1024], 1;", 4, 1},
    {"atom.global.cas.b32 %r3, [%d1+1024], 1, 2;", 4, 1},
    {"atom.add.u64 %d6, [%d1+1024], %d4;", 8, 1},
    {"cp.async.ca.shared.global [data], [%d1+1024], 4;", 4, 1},
    {"cp.async.cg.shared.global [data], [%d1+1024], 16;", 16, 1},
    {"cp.async.cg.shared.global [data], [%d1+1024], 16, %r20;", 8, 1},
    {INIT_BAR "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], "
              "[%d1+1024], 48, [bar];",
     48, 1},
    {"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r3,%r4,%r5,%r6,%r7,%r8,%r9,%r10}, "
     "[%d1+1024], 16;",
     512, 32},
};

/* Of shared memory: what writes all of data[] but for its last `lack` bytes before. */
static const struct form shared_reads[] = {
    {"ld.shared.u8 %r3, [data];", 1, 1},
    {"ld.shared.u32 %r3, [data];", 4, 1},
    {"ld.shared.u32 %r3, [%d2];", 4, 1},
    {"ld.u32 %r3, [%d3];", 4, 1},
    {"ld.volatile.shared.u32 %r3, [data];", 4, 1},
    {"ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [data];", 16, 1},
    {"atom.shared.add.u32 %r3, [data], 1;", 4, 1},
    {"atom.shared.max.u32 %r3, [data], 1;", 4, 1},
    {"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r2];", 16, 32},
    {"cp.async.bulk.global.shared::cta.bulk_group [%d1], [data], 16;", 16, 1},
    {"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r3,%r4,%r5,%r6,%r7,%r8,%r9,%r10}, "
     "[data], 16;",
     512, 32},
};

/* What writes `bytes` bytes at AT of global memory, and reads none of it. */
static const struct form writes[] = {
    {"st.global.u8 [%d1+1024], %r1;", 1, 1},
    {"st.global.u32 [%d1+1024], %r1;", 4, 1},
    {"st.u32 [%d1+1024], %r1;", 4, 1},
    {"st.volatile.global.u32 [%d1+1024], %r1;", 4, 1},
    {"st.release.gpu.global.u32 [%d1+1024], %r1;", 4, 1},
    {"st.global.v4.u32 [%d1+1024], {%r1, %r1, %r1, %r1};", 16, 1},
    {"shl.b32 %r4, %r29, 2; cvt.u64.u32 %d6, %r4; add.u64 %d6, %d6, %d1;"
     "st.global.u32 [%d6+1024], %r1;",
     128, 32},
    {"atom.global.exch.b32 %r3, [%d1+1024], %r1;", 4, 1},
    {"st.shared.v4.u32 [data], {%r1, %r1, %r1, %r1};"
     "cp.async.bulk.global.shared::cta.bulk_group [%d1+1024], [data], 16;",
     16, 1},
    {"mov.b32 %r3, 0; wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%d1+1024], "
     "{%r3,%r3,%r3,%r3}, 16;",
     512, 32},
};

/* What writes the first `bytes` bytes of data[] without a read. */
static const struct form shared_writes[] = {
    {"st.shared.u16 [data], %h1;", 2, 1},
    {"st.shared.u32 [%d2], %r1;", 4, 1},
    {"st.u32 [%d3], %r1;", 4, 1},
    {"atom.shared.exch.b32 %r3, [data], 1;", 4, 1},
    {"cp.async.cg.shared.global [data], [%d1], 16;", 16, 1},
    {"cp.async.cg.shared.global [data], [%d1], 16, %r21;", 16, 1},
    {INIT_BAR "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%d1], "
              "32, [bar];",
     32, 1},
    {"mov.b32 %r3, 0; shl.b32 %r4, %r29, 4; and.b32 %r4, %r4, 127; add.u32 %r4, %r4, %r2;"
     "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {%r3};",
     128, 32},
    {"mbarrier.init.shared.b64 [data], 1;", 8, 1},
};

#define EACH(form, forms)                                                                          \
    for (const struct form *form = forms; form < forms + sizeof forms / sizeof *forms; form++)

static void set_global(uint64_t at, uint64_t bytes)
{
    tow_bits_clear(bits, 0, MEMORY);
    tow_bits_set(bits, at, bytes);
}

static void reads_of_what_nobody_wrote_are_told(void **state)
{
    (void)state;
    EACH(form, reads)
    {
        begin(form->body);
        set_global(0, AT);
        tow_bits_set(bits, AT + form->bytes, MEMORY - AT - form->bytes);
        run(form->threads);
        if (told == 0) {
            fail_msg("not told: %s", form->body);
        }
        assert_int_equal(first.place, TOW_PTX_PLACE_GLOBAL);
        assert_int_equal(first.address, ARG(memory) + AT);
        assert_int_equal(first.thread[0], 0);
        machine_unload(&m);
    }
}

static void one_byte_is_enough_and_no_byte_is_not(void **state)
{
    (void)state;
    EACH(form, reads)
    {
        begin(form->body);
        set_global(AT, form->bytes);
        run(form->threads);
        if (told != 0) {
            fail_msg("told, though all of it was written: %s", form->body);
        }
        for (unsigned i = 0; i<form->bytes; i += form->bytes> 64 ? 37 : 1) {
            set_global(0, MEMORY);
            tow_bits_clear(bits, AT + i, 1);
            run(form->threads);
            if (told == 0) {
                fail_msg("byte %u is not missed: %s", i, form->body);
            }
        }
        machine_unload(&m);
    }
}

static void reads_of_shared_memory_are_told(void **state)
{
    char body[4096];
    (void)state;
    EACH(form, shared_reads)
    {
        begin(form->body);
        set_global(0, MEMORY);
        run(form->threads);
        if (told == 0) {
            fail_msg("not told: %s", form->body);
        }
        assert_int_equal(first.place, TOW_PTX_PLACE_SHARED);
        assert_int_equal(first.address, 0);
        run(form->threads); /* another block begins with nothing, too */
        assert_int_not_equal(told, 0);
        machine_unload(&m);
        for (unsigned lack = 0; lack < 2; lack++) {
            snprintf(body, sizeof body,
                     "mov.u32 %%r28, 0;\nfill: add.u32 %%r27, %%r2, %%r28;\n"
                     "st.shared.u8 [%%r27], 0; add.u32 %%r28, %%r28, 1;\n"
                     "setp.lt.u32 %%p3, %%r28, %u;\n@%%p3 bra fill;\nbar.sync 0;\n%s",
                     form->bytes - lack ? form->bytes - lack : 4096, form->body);
            begin(body);
            set_global(0, MEMORY);
            run(form->threads);
            if ((told != 0) != (lack && form->bytes > 1)) {
                fail_msg("told %u times with %u bytes missing: %s", told, lack, form->body);
            }
            machine_unload(&m);
        }
    }
}

static void writes_are_seen_and_are_no_reads(void **state)
{
    (void)state;
    EACH(form, writes)
    {
        begin(form->body);
        set_global(0, 0);
        run(form->threads);
        if (told != 0) {
            fail_msg("told of a write: %s", form->body);
        }
        bool all = tow_bits_all(bits, AT, form->bytes);
        tow_bits_clear(bits, AT, form->bytes);
        for (unsigned i = 0; i < MEMORY; i++) {
            if (!all || tow_bits_all(bits, i, 1)) {
                fail_msg("other bytes were written than by: %s", form->body);
            }
        }
        machine_unload(&m);
    }
}

static void writes_to_shared_memory_are_seen(void **state)
{
    char body[4096];
    (void)state;
    EACH(form, shared_writes)
    {
        for (unsigned more = 0; more < 2; more++) {
            snprintf(body, sizeof body,
                     "%s\nbar.sync 0; mov.u32 %%r28, 0;\nread: add.u32 %%r27, %%r2, %%r28;\n"
                     "ld.shared.u8 %%r26, [%%r27]; add.u32 %%r28, %%r28, 1;\n"
                     "setp.lt.u32 %%p3, %%r28, %u;\n@%%p3 bra read;\n",
                     form->body, form->bytes + more);
            begin(body);
            set_global(0, MEMORY);
            run(form->threads);
            if ((told != 0) != (more != 0)) {
                fail_msg("told %u times of %u bytes: %s", told, form->bytes + more, form->body);
            }
            machine_unload(&m);
        }
    }
}

static void threads_of_one_access_are_told_together(void **state)
{
    (void)state;
    begin("shl.b32 %r4, %r29, 2; cvt.u64.u32 %d6, %r4; add.u64 %d6, %d6, %d1;"
          "ld.global.u32 %r3, [%d6];");
    set_global(12, 4);
    tow_bits_set(bits, 0, 4);
    run(32);
    assert_int_equal(told, 1);
    assert_int_equal(first.thread[0], 1);
    assert_int_equal(first.more, 29);
    machine_unload(&m);
    /* Threads that do not take part are not looked at. */
    begin("setp.eq.u32 %p1, %r29, 5; shl.b32 %r4, %r29, 2; cvt.u64.u32 %d6, %r4;"
          "add.u64 %d6, %d6, %d1; @%p1 ld.global.u32 %r3, [%d6];");
    set_global(20, 4);
    run(32);
    assert_int_equal(told, 0);
    machine_unload(&m);
}

static void an_atomic_writes_for_those_behind_it(void **state)
{
    (void)state;
    begin("atom.global.add.u32 %r3, [%d1], 1; ld.global.u32 %r3, [%d1];");
    set_global(0, 0);
    run(32);
    assert_int_equal(told, 1);
    assert_int_equal(first.more, 0); /* the first lane's atomic */
    machine_unload(&m);
}

static void gaps_between_rows_of_a_matrix_may_hold_nothing(void **state)
{
    (void)state;
    begin("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
          "{%r3,%r4,%r5,%r6,%r7,%r8,%r9,%r10}, [%d1], 32;");
    set_global(0, 0);
    for (unsigned row = 0; row < 16; row++) {
        tow_bits_set(bits, row * 64, 32);
    }
    run(32);
    assert_int_equal(told, 0);
    machine_unload(&m);
}

static void shared_memory_of_another_block_is_known(void **state)
{
    /* Both blocks of a cluster write the other's memory, then read their own. */
    static const char body[] = "mov.u32 %r3, %cluster_ctarank; xor.b32 %r3, %r3, 1;"
                               "mapa.shared::cluster.u32 %r4, %r2, %r3;"
                               "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
                               "st.shared::cluster.u32 [%r4], %r1;"
                               "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
                               "ld.shared.u32 %r5, [data+OFFSET];";
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        char text[1024], *offset;
        snprintf(text, sizeof text, "%s", body);
        offset = strstr(text, "OFFSET");
        memcpy(offset, i ? "4]; //" : "0]; //", 6);
        begin(text);
        m.cluster[0] = 2;
        uint64_t args[1] = {ARG(memory)};
        told = 0;
        assert_int_equal(machine_run1(&m, "k", 4, 32, args, 1), 0);
        assert_int_equal(told, i ? 4 : 0);
        machine_unload(&m);
    }
}

/* The first block uses the second one's memory before that has begun, and there is more of it than
 * in the launch before. */
static void memory_of_a_block_that_comes_is_known(void **state)
{
    static const char body[] =
        "mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r3, 0; mov.u32 %r5, 1;"
        "ld.param.u64 %d6, [p1]; cvt.u32.u64 %r6, %d6; add.u32 %r7, %r2, %r6;"
        "mapa.shared::cluster.u32 %r4, %r7, %r5; @%p1 st.shared::cluster.u8 [%r4], %r1;"
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
        "@!%p1 ld.shared.u8 %r8, [%r7]; @%p1 ld.shared.u8 %r8, [%r7];";
    static const struct {
        uint32_t dynamic;
        uint64_t at;
    } launches[] = {{0, 0}, {60000, 60000}, {0, 4000}};
    (void)state;
    begin(body);
    m.cluster[0] = 2;
    for (unsigned i = 0; i < sizeof launches / sizeof *launches; i++) {
        uint64_t args[2] = {ARG(memory), launches[i].at};
        m.dynamic_shared = launches[i].dynamic;
        told = 0;
        assert_int_equal(machine_run1(&m, "k", 2, 32, args, 2), 0);
        assert_int_equal(told, 1);
        assert_int_equal(first.block[0], 0); /* nobody wrote to the first one's */
    }
    machine_unload(&m);
}

static size_t lacking; /* of so many bytes there are none */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return bytes && bytes == lacking ? NULL : __real_malloc(bytes);
}

/* More shared memory than in any launch before. */
static void blocks_without_memory_are_named(void **state)
{
    (void)state;
    begin("ld.shared.u32 %r3, [data];");
    m.dynamic_shared = 100000;
    for (unsigned lacks = 2; lacks-- > 0;) {
        lacking = lacks ? TOW_BITS_WORDS((4112 + 100000 + 127) & ~127) * sizeof(tow_bits) : 0;
        unseen = 0;
        run(1);
        lacking = 0;
        assert_int_equal(unseen, lacks);
        assert_int_equal(told, !lacks);
    }
    machine_unload(&m);
}

static void what_comes_from_another_block_is_written(void **state)
{
#define BEGIN_CLUSTER                                                                              \
    "mbarrier.init.shared.b64 [bar], 1; mov.u32 %r3, %cluster_ctarank;"                            \
    "setp.eq.u32 %p1, %r3, 0; mov.u32 %r5, 1; mov.u32 %r6, bar;"                                   \
    "mapa.shared::cluster.u32 %r4, %r2, %r5; mapa.shared::cluster.u32 %r7, %r6, %r5;"              \
    "mov.u32 %r10, data; cvt.u64.u32 %d7, %r10; cvta.shared.u64 %d7, %d7;"                         \
    "cvt.u64.u32 %d8, %r6; cvta.shared.u64 %d8, %d8;"                                              \
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
#define END_CLUSTER                                                                                \
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"                                \
    "@!%p1 ld.shared.u32 %r8, [data];"
    static const char *const forms[] = {
        "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r1, [%r7];",
        "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4], "
        "{%r1, %r1, %r1, %r1}, [%r7];",
        "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%d1], 16, "
        "[%r7];",
        "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[data], [%d1], 16, [bar], 3;",
        "@%p1 clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes."
        "multicast::cluster::all.b128 [%d7], [%d8];",
        "@!%p1 st.shared.u32 [data], 1; barrier.cluster.arrive.aligned;"
        "barrier.cluster.wait.aligned; @%p1 red.async.relaxed.cluster.shared::cluster."
        "mbarrier::complete_tx::bytes.add.u32 [%r4], 2, [%r7];",
        /* And these do not write it. */
        "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4+4], %r1, [%r7];",
        "@%p1 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
        "[%r4], 2, [%r7];",
    };
    enum { FORMS = sizeof forms / sizeof *forms };
    (void)state;
    for (unsigned i = 0; i < FORMS; i++) {
        char body[4096];
        snprintf(body, sizeof body, "%s%s%s", BEGIN_CLUSTER, forms[i], END_CLUSTER);
        begin(body);
        set_global(0, MEMORY);
        m.cluster[0] = 2;
        uint64_t args[1] = {ARG(memory)};
        told = 0;
        assert_int_equal(machine_run1(&m, "k", 2, 1, args, 1), 0);
        if (told != (i >= FORMS - 2)) {
            fail_msg("told %u times: %s", told, forms[i]);
        }
        machine_unload(&m);
    }
}

static void who_is_not_checked_is_not_looked_at(void **state)
{
    (void)state;
    begin("ld.global.u32 %r3, [%d1]; st.global.u32 [%d1], %r1;");
    m.checks = TOW_PTX_CHECK_MEMORY;
    set_global(0, 0);
    run(32);
    assert_int_equal(told, 0);
    assert_false(tow_bits_all(bits, 0, 1));
    machine_unload(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_of_what_nobody_wrote_are_told),
        cmocka_unit_test(one_byte_is_enough_and_no_byte_is_not),
        cmocka_unit_test(reads_of_shared_memory_are_told),
        cmocka_unit_test(writes_are_seen_and_are_no_reads),
        cmocka_unit_test(writes_to_shared_memory_are_seen),
        cmocka_unit_test(threads_of_one_access_are_told_together),
        cmocka_unit_test(an_atomic_writes_for_those_behind_it),
        cmocka_unit_test(gaps_between_rows_of_a_matrix_may_hold_nothing),
        cmocka_unit_test(shared_memory_of_another_block_is_known),
        cmocka_unit_test(memory_of_a_block_that_comes_is_known),
        cmocka_unit_test(blocks_without_memory_are_named),
        cmocka_unit_test(what_comes_from_another_block_is_written),
        cmocka_unit_test(who_is_not_checked_is_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
