/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of a session's GPU memory, the mappings beside it, and what modules' variables take.
 */
#include "cmocka_all.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/worker/image_globals.h"
#include "server/worker/ledger.h"
#include "server/worker/mappings.h"

enum { QUOTA = 1 << 20, THREADS = 64, ROUNDS = 2000 };

static struct tows_ledger ledger;
static _Atomic uint64_t total, most, charged[TOW_LEDGER_GPUS_MAX];

static int setup(void **state)
{
    (void)state;
    tows_ledger_init(&ledger, &total, &most, charged);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tows_ledger_fini(&ledger);
    total = most = 0;
    memset((void *)charged, 0, sizeof charged);
    return 0;
}

static bool reserve(unsigned device, uint64_t size)
{
    return tows_ledger_reserve(&ledger, device, size, TOW_LEDGER_PLAIN, NULL) == TOW_LEDGER_FITS;
}

static bool take(uint64_t key, unsigned device, uint64_t size, enum tows_ledger_kind kind)
{
    if (tows_ledger_reserve(&ledger, device, size, kind, NULL) != TOW_LEDGER_FITS) {
        return false;
    }
    tows_ledger_book(&ledger, &(struct tows_ledger_entry){
                                  .key = key, .size = size, .device = device, .kind = kind});
    return true;
}

static void without_a_quota_all_is_counted_and_nothing_refused(void **state)
{
    (void)state;
    assert_true(take(16, 0, UINT64_C(1) << 50, TOW_LEDGER_PLAIN));
    assert_true(take(32, 3, 100, TOW_LEDGER_PLAIN));
    assert_true(total == (UINT64_C(1) << 50) + 100);
    assert_true(charged[3] == TOW_LEDGER_UNIT);
    assert_true(tows_ledger_left(&ledger, 0) == UINT64_MAX);
    tows_ledger_drop(&ledger, 16);
    tows_ledger_drop(&ledger, 16);
    tows_ledger_drop(&ledger, 32);
    assert_true(total == 0 && charged[0] == 0 && charged[3] == 0);
    assert_true(most == (UINT64_C(1) << 50) + 100);
}

static void each_gpu_has_the_quota(void **state)
{
    (void)state;
    ledger.quota = QUOTA;
    assert_true(take(16, 0, QUOTA - 1, TOW_LEDGER_PLAIN));
    assert_false(take(32, 0, 1, TOW_LEDGER_PLAIN)); /* nothing is given out in less than units */
    assert_true(take(48, 1, QUOTA, TOW_LEDGER_PLAIN));
    assert_int_equal(tows_ledger_left(&ledger, 0), 0);
    assert_false(reserve(2, QUOTA + 1));
    assert_false(reserve(2, UINT64_MAX));
    assert_true(reserve(2, QUOTA));
    assert_int_equal(tows_ledger_left(&ledger, 2), 0);
    tows_ledger_give_back(&ledger, 2, QUOTA, TOW_LEDGER_PLAIN);
    assert_int_equal(tows_ledger_left(&ledger, 2), QUOTA);
    tows_ledger_drop(&ledger, 16);
    assert_int_equal(tows_ledger_left(&ledger, 0), QUOTA);
}

static void what_is_in_a_context_goes_with_it(void **state)
{
    (void)state;
    int one, other;
    ledger.quota = QUOTA;
    for (uint64_t i = 1; i <= 1000; i++) {
        assert_true(reserve(0, 1));
        tows_ledger_book(&ledger,
                         &(struct tows_ledger_entry){
                             .key = i * 16, .size = 1, .context = i % 2 == 0 ? &one : &other});
    }
    int name;
    tows_ledger_rename_context(&ledger, &one, &name);
    tows_ledger_drop_context(&ledger, &one); /* a new one with that handle has nothing */
    assert_int_equal(total, 1000);
    tows_ledger_drop_context(&ledger, &name);
    assert_int_equal(total, 500);
    tows_ledger_drop_context(&ledger, NULL);
    assert_int_equal(total, 500);
    tows_ledger_drop_context(&ledger, &other);
    assert_int_equal(total, 0);
    assert_int_equal(tows_ledger_left(&ledger, 0), QUOTA);
}

enum { LARGE = 4 * TOW_LEDGER_ROUNDING };

static enum tows_ledger_answer ask(uint64_t size, enum tows_ledger_kind kind, uint64_t pools,
                                   bool is_reused)
{
    const struct tows_ledger_held held = {.bytes = {0, pools, 0}, .is_reused = is_reused};
    return tows_ledger_reserve(&ledger, 0, size, kind, &held);
}

static void pools_are_asked_before_others_are_refused(void **state)
{
    (void)state;
    ledger.quota = LARGE;
    assert_true(take(16, 0, LARGE / 2, TOW_LEDGER_POOL));
    assert_true(take(32, 0, LARGE / 2, TOW_LEDGER_PLAIN)); /* nothing was freed yet */
    tows_ledger_drop(&ledger, 32);
    tows_ledger_drop(&ledger, 16);
    assert_int_equal(tows_ledger_reserve(&ledger, 0, LARGE, TOW_LEDGER_PLAIN, NULL),
                     TOW_LEDGER_ASK);
    assert_int_equal(tows_ledger_reserve(&ledger, 0, LARGE, TOW_LEDGER_POOL, NULL), TOW_LEDGER_ASK);
    assert_true(reserve(1, LARGE));
    /* What they hold counts, but for what they round up. */
    assert_int_equal(ask(LARGE, TOW_LEDGER_PLAIN, LARGE / 2, true), TOW_LEDGER_ASK);
    assert_int_equal(ask(LARGE, TOW_LEDGER_POOL, LARGE / 2, false), TOW_LEDGER_ASK);
    assert_int_equal(charged[0], 0);
    assert_int_equal(ask(LARGE, TOW_LEDGER_PLAIN, TOW_LEDGER_ROUNDING, false), TOW_LEDGER_FITS);
    tows_ledger_give_back(&ledger, 0, LARGE, TOW_LEDGER_PLAIN);
    /* Whoever gets what they have free needs no more. */
    assert_int_equal(ask(LARGE, TOW_LEDGER_POOL, LARGE, true), TOW_LEDGER_FITS);
    assert_int_equal(charged[0], LARGE);
    tows_ledger_book(
        &ledger, &(struct tows_ledger_entry){.key = 16, .size = LARGE, .kind = TOW_LEDGER_POOL});
    assert_int_equal(ask(1, TOW_LEDGER_PLAIN, LARGE + LARGE / 2, true), TOW_LEDGER_FULL);
}

static void what_pools_hold_adds_up_until_they_are_asked(void **state)
{
    (void)state;
    ledger.quota = LARGE;
    for (uint64_t i = 0; i < 4; i++) { /* each time it may be another pool */
        assert_true(take(16, 0, LARGE / 4, TOW_LEDGER_POOL));
        tows_ledger_drop(&ledger, 16);
    }
    assert_int_equal(tows_ledger_reserve(&ledger, 0, 1, TOW_LEDGER_PLAIN, NULL), TOW_LEDGER_ASK);
    assert_int_equal(ask(LARGE / 4, TOW_LEDGER_POOL, LARGE / 4, true), TOW_LEDGER_FITS);
    assert_true(reserve(0, LARGE / 2));
}

static void what_pools_may_hold_needs_room(void **state)
{
    (void)state;
    ledger.quota = QUOTA;
    assert_true(take(16, 0, QUOTA / 4, TOW_LEDGER_PLAIN));
    assert_true(take(32, 0, QUOTA / 4, TOW_LEDGER_POOL));
    assert_int_equal(tows_ledger_holds(&ledger, 0), QUOTA / 2);
    tows_ledger_drop(&ledger, 32);
    assert_int_equal(tows_ledger_holds(&ledger, 0), QUOTA / 2); /* it may have kept it */
    struct tows_ledger_held held = {.bytes = {[TOW_LEDGER_POOL] = 1024}};
    tows_ledger_learn(&ledger, 0, &held);
    assert_int_equal(tows_ledger_holds(&ledger, 0), QUOTA / 4 + 1024);
    assert_int_equal(tows_ledger_holds(&ledger, 1), 0);
}

static void more_of_ones_own_waits_for_nobody(void **state)
{
    (void)state;
    ledger.quota = QUOTA;
    assert_true(reserve(0, QUOTA / 2));
    assert_false(tows_ledger_reserve_more(&ledger, 0, QUOTA));
    assert_false(tows_ledger_reserve_more(&ledger, 0, QUOTA / 2 + 1));
    assert_true(tows_ledger_reserve_more(&ledger, 0, QUOTA / 2));
    tows_ledger_book(&ledger, &(struct tows_ledger_entry){.key = 16, .size = QUOTA});
    assert_int_equal(ledger.reserved[0], 0);
    tows_ledger_drop(&ledger, 16);
    assert_int_equal(charged[0], 0);
}

static void *drop_later(void *user)
{
    tow_time_sleep(50 * TOW_TIME_MS);
    tows_ledger_drop(&ledger, 16);
    return user;
}

static void what_is_freed_wakes_who_waits(void **state)
{
    pthread_t thread;
    (void)state;
    ledger.quota = QUOTA;
    assert_true(take(16, 0, QUOTA / 2, TOW_LEDGER_PLAIN));
    assert_true(reserve(0, QUOTA / 2)); /* and is never given back */
    assert_int_equal(pthread_create(&thread, NULL, drop_later, NULL), 0);
    assert_true(take(32, 0, QUOTA / 2, TOW_LEDGER_PLAIN));
    pthread_join(thread, NULL);
}

/* ---- threads ---- */

static void *refuse_later(void *user)
{
    tow_time_sleep(50 * TOW_TIME_MS);
    tows_ledger_give_back(&ledger, 0, QUOTA, TOW_LEDGER_PLAIN);
    return user;
}

static void nobody_is_refused_for_what_nobody_gets(void **state)
{
    (void)state;
    pthread_t thread;
    ledger.quota = QUOTA;
    assert_true(reserve(0, QUOTA));
    assert_int_equal(pthread_create(&thread, NULL, refuse_later, NULL), 0);
    assert_true(take(16, 0, QUOTA, TOW_LEDGER_PLAIN)); /* it waits for the other's end */
    pthread_join(thread, NULL);
    assert_false(take(32, 0, 1, TOW_LEDGER_PLAIN));
}

static atomic_uint above;

static void *run_thread(void *user)
{
    uint64_t number = (uint64_t)(uintptr_t)user;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t size = QUOTA / (1 + (number + i) % 7), key = (number * ROUNDS + i + 1) * 16;
        bool fails = (number + i) % 3 == 0; /* the driver has no room */
        if (!reserve(0, size)) {
            continue;
        }
        above += charged[0] > QUOTA;
        if (fails) {
            tows_ledger_give_back(&ledger, 0, size, TOW_LEDGER_PLAIN);
        } else {
            tows_ledger_book(&ledger, &(struct tows_ledger_entry){.key = key, .size = size});
            tows_ledger_drop(&ledger, key);
        }
    }
    return NULL;
}

static void threads_at_the_limit_never_pass_it(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    ledger.quota = QUOTA;
    for (uint64_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, (void *)(uintptr_t)i), 0);
    }
    for (uint64_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(above, 0);
    assert_int_equal(charged[0], 0);
    assert_int_equal(total, 0);
}

/* ---- mappings ---- */

static uint64_t gone[8];
static unsigned gone_count;

static void note_gone(void *user, uint64_t key)
{
    (void)user;
    gone[gone_count++] = key;
}

static void unmap_now(struct tows_mappings *mappings, uint64_t base, uint64_t size)
{
    tows_mappings_unmapped(mappings, base, size, tows_mappings_unmap(mappings, base, size), true);
}

static void memory_lives_while_a_handle_or_an_address_leads_to_it(void **state)
{
    (void)state;
    struct tows_mappings mappings;
    tows_mappings_init(&mappings, note_gone, NULL);
    gone_count = 0;
    assert_true(tows_mappings_create(&mappings, 100, 1));
    assert_true(tows_mappings_map(&mappings, 0x3000, 0x1000, 100));
    assert_true(tows_mappings_map(&mappings, 0x1000, 0x1000, 100));
    tows_mappings_release(&mappings, 100);
    /* The driver gives the number out once more. */
    assert_true(tows_mappings_create(&mappings, 100, 2));
    assert_true(tows_mappings_map(&mappings, 0x2000, 0x1000, 100));
    assert_true(tows_mappings_map(&mappings, 0x2000, 0x1000, 100)); /* the driver refuses that */
    tows_mappings_undo(&mappings, 0x2000, 100);
    tows_mappings_release(&mappings, 100);
    assert_int_equal(gone_count, 0);
    uint64_t failing = tows_mappings_unmap(&mappings, 0x1000, 0x2000);
    assert_null(tows_mappings_hold(&mappings, 0x1000)); /* it is being unmapped */
    tows_mappings_unmapped(&mappings, 0x1000, 0x2000, failing, false);
    assert_int_equal(gone_count, 0);
    uint64_t unmapping = tows_mappings_unmap(&mappings, 0x1000, 0x2000);
    /* Others map there before this one has heard from the driver. */
    assert_true(tows_mappings_create(&mappings, 500, 4));
    assert_true(tows_mappings_map(&mappings, 0x1000, 0x1000, 500));
    tows_mappings_release(&mappings, 500);
    tows_mappings_unmapped(&mappings, 0x1000, 0x2000, unmapping, true);
    assert_int_equal(gone_count, 1);
    assert_int_equal(gone[0], 2);
    unmap_now(&mappings, 0x1000, 0x1000);
    assert_int_equal(gone_count, 2);
    assert_int_equal(gone[1], 4);
    const uint64_t handle = 200;
    struct tows_block *held = tows_mappings_hold(&mappings, 0x3fff);
    assert_non_null(held);
    assert_null(tows_mappings_hold(&mappings, 0x4000));
    unmap_now(&mappings, 0x3000, 0x1000);
    assert_int_equal(gone_count, 2); /* the driver has not answered yet */
    tows_mappings_held(&mappings, held, &handle);
    tows_mappings_release(&mappings, 300);
    assert_int_equal(gone_count, 2);
    tows_mappings_release(&mappings, 200);
    assert_int_equal(gone_count, 3);
    assert_int_equal(gone[2], 1);
    /* One that arrays have does not go. */
    assert_true(tows_mappings_create(&mappings, 400, 3));
    tows_mappings_keep(&mappings, 400);
    tows_mappings_release(&mappings, 400);
    assert_int_equal(gone_count, 3);
    assert_true(tows_mappings_map(&mappings, 0x9000, 0x1000, 999)); /* another session's */
    unmap_now(&mappings, 0x9000, 0x1000);
    tows_mappings_fini(&mappings);
}

/* ---- modules' variables ---- */

static void variables_are_added_up(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {".global .u32 a;", 4},
        {".visible .global .align 16 .b8 a[1000];", 1000},
        {".global .v4 .f32 a[10][2];", 320},
        {".global .f64 a, b[3];", 32},
        {".global .s16 a[] = {1, 2, {3}};", 6},
        {".global .u64 p[2] = {a, b+8};", 16},
        {".extern .global .u32 a[100]; .weak .global .b16 b;", 2},
        {".const .u32 a[100]; .shared .u32 b[5];", 0},
        {"// .global .u32 a;\n/* .global .u32 b; */ .global .u8 c;", 1},
        {".entry f() { ld.global.u32 %r1, [a]; st.global.v4.u32 [a], {%r1,%r1,%r1,%r1}; }", 0},
        {".global .b8 a[0x10000];", 0x10000},
        {".global .b64 a[4294967295][4294967295][4294967295];", UINT64_MAX},
        {".global .b8 a[1<<30];", UINT64_MAX},
        {".global .b8 a[1024*1048576];", UINT64_MAX},
        {".global .b8 a[(4)];", UINT64_MAX},
        {".global .b8 a[0b100000000000000000000];", 1 << 20},
        {".global .b8 a[000000000000000000000000000000000000000100];", 64},
        {".global .b8 a[64U], b[ 1 ];", 65},
        {".global .b8 a[99999999999999999999999];", UINT64_MAX},
        {".global .b8 a[12x];", UINT64_MAX},
        {".entry f(.param .u64 .ptr .global .align 8 a, .param .b8 b[64]) { ret; }", 0},
        {".global .u32 a", 4},
        {".global", 0},
        {".file 1 \"a .global .u32 b;\"\n.global .bf16 a;", 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, ".version 7.0\n.target sm_70\n.address_size 64\n%s",
                 cases[i].text);
        if (tows_image_globals(text, 12) != cases[i].bytes) {
            fail_msg("%s has %llu", cases[i].text,
                     (unsigned long long)tows_image_globals(text, 12));
        }
    }
}

/* Three sections that look alike to the loader, and their names. */
static void make_cubin(uint8_t *bytes, bool extended)
{
    static const char names[] = "\0.nv.global\0.nv.global.init\0.nv.shared.f\0.nv.globals";
    static const struct {
        uint32_t name;
        uint64_t size, flags;
    } parts[] = {{1, 1000, SHF_ALLOC | SHF_WRITE},
                 {12, 100, 0},
                 {28, 70000, SHF_ALLOC | SHF_WRITE},
                 {41, 9000, SHF_ALLOC | SHF_WRITE}};
    enum { PARTS = sizeof parts / sizeof *parts, SECTIONS = PARTS + 2 };
    Elf64_Shdr sections[SECTIONS] = {{0}};
    Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1},
                       .e_machine = 190,
                       .e_shoff = sizeof head,
                       .e_shentsize = sizeof *sections,
                       .e_shnum = extended ? 0 : SECTIONS,
                       .e_shstrndx = extended ? SHN_XINDEX : SECTIONS - 1};
    for (size_t i = 0; i < PARTS; i++) {
        sections[i + 1] = (Elf64_Shdr){.sh_name = parts[i].name,
                                       .sh_type = SHT_NOBITS,
                                       .sh_flags = parts[i].flags,
                                       .sh_size = parts[i].size};
    }
    sections[0].sh_size = extended ? SECTIONS : 0;
    sections[0].sh_link = extended ? SECTIONS - 1 : 0;
    sections[SECTIONS - 1] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = sizeof head + sizeof sections, .sh_size = sizeof names};
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, sections, sizeof sections);
    memcpy(bytes + sizeof head + sizeof sections, names, sizeof names);
}

static void cubins_say_it_by_names_of_sections(void **state)
{
    uint8_t bytes[1024];
    (void)state;
    make_cubin(bytes, false);
    assert_int_equal(tows_image_globals(bytes, 9), 1100);
    make_cubin(bytes, true);
    assert_int_equal(tows_image_globals(bytes, 9), 1100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_quota_all_is_counted_and_nothing_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(each_gpu_has_the_quota, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_in_a_context_goes_with_it, setup, teardown),
        cmocka_unit_test_setup_teardown(pools_are_asked_before_others_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(what_pools_hold_adds_up_until_they_are_asked, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_pools_may_hold_needs_room, setup, teardown),
        cmocka_unit_test_setup_teardown(more_of_ones_own_waits_for_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_freed_wakes_who_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_is_refused_for_what_nobody_gets, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_at_the_limit_never_pass_it, setup, teardown),
        cmocka_unit_test(memory_lives_while_a_handle_or_an_address_leads_to_it),
        cmocka_unit_test(variables_are_added_up),
        cmocka_unit_test(cubins_say_it_by_names_of_sections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
