/* What machine code says of its kernels: cubins made by hand, whole and odd ones. Those of a real
 * assembler are in tests/system/test_layouts.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/cubin.h"
#include "server/layouts.h"

enum { PIECE = 1 << 16 };

/* A cubin of one kernel k: sections 1 .shstrtab (all names), 2 .symtab, 3 .text.k, 4 .nv.info.k,
 * 5 .nv.shared.k, 6 .nv.info. */
struct made {
    uint8_t bytes[PIECE];
    size_t size;
    Elf64_Ehdr *head;
    Elf64_Shdr *sections;
    Elf64_Sym *symbols;
    uint8_t *info; /* records of k, to be filled */
};

static const char names[] = "\0.text.k\0.nv.info.k\0.nv.shared.k\0.nv.info\0k\0other";
enum { N_TEXT = 1, N_INFO = 9, N_SHARED = 20, N_ALL = 33, N_K = 42, N_OTHER = 44 };

static void put_record(struct made *m, unsigned format, unsigned what, unsigned value,
                       const void *content)
{
    uint8_t *at = m->info + m->sections[4].sh_size;
    at[0] = (uint8_t)format;
    at[1] = (uint8_t)what;
    memcpy(at + 2, &value, 2);
    if (format == 4) {
        memcpy(at + 4, content, value);
    }
    m->sections[4].sh_size += 4 + (format == 4 ? value : 0);
}

static void put_param(struct made *m, unsigned ordinal, unsigned offset, unsigned size)
{
    uint32_t words[3] = {0, ordinal | offset << 16, size << 18 | 0x1f000};
    put_record(m, 4, 0x17, 12, words);
}

static void put_size(struct made *m, unsigned size)
{
    uint32_t bank[2] = {0, 0x210 | size << 16};
    put_record(m, 3, 0x19, size, NULL);
    put_record(m, 4, 0x0a, 8, bank);
}

static struct made *make(void)
{
    struct made *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->head = (Elf64_Ehdr *)m->bytes;
    memcpy(m->head->e_ident, ELFMAG, SELFMAG);
    m->head->e_ident[EI_CLASS] = ELFCLASS64;
    m->head->e_ident[EI_DATA] = ELFDATA2LSB;
    m->head->e_type = ET_EXEC;
    m->head->e_machine = 190;
    m->head->e_shoff = sizeof *m->head;
    m->head->e_shentsize = sizeof(Elf64_Shdr);
    m->head->e_shnum = 7;
    m->head->e_shstrndx = 1;
    m->sections = (Elf64_Shdr *)(m->bytes + sizeof *m->head);
    size_t at = sizeof *m->head + 8 * sizeof(Elf64_Shdr);
    m->symbols = (Elf64_Sym *)(m->bytes + at);
    m->sections[2] = (Elf64_Shdr){
        .sh_type = SHT_SYMTAB, .sh_offset = at, .sh_size = 3 * sizeof(Elf64_Sym), .sh_link = 1};
    m->symbols[1] = (Elf64_Sym){.st_name = N_K,
                                .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                .st_other = 0x10,
                                .st_shndx = 3};
    m->symbols[2] = (Elf64_Sym){.st_name = N_OTHER, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC)};
    at += 3 * sizeof(Elf64_Sym);
    uint32_t registers[2][3] = {{0x00082f04, 1, 40}, {0x00082f04, 2, 8}};
    memcpy(m->bytes + at, registers, sizeof registers);
    m->sections[6] = (Elf64_Shdr){
        .sh_name = N_ALL, .sh_type = 0x70000000, .sh_offset = at, .sh_size = sizeof registers};
    at += sizeof registers;
    memcpy(m->bytes + at, names, sizeof names);
    m->sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = sizeof names};
    at += sizeof names;
    m->sections[3] = (Elf64_Shdr){
        .sh_name = N_TEXT, .sh_type = SHT_PROGBITS, .sh_offset = at, .sh_size = 16, .sh_info = 1};
    at += 16;
    m->info = m->bytes + at;
    m->sections[4] =
        (Elf64_Shdr){.sh_name = N_INFO, .sh_type = 0x70000000, .sh_offset = at, .sh_info = 3};
    m->sections[5] =
        (Elf64_Shdr){.sh_name = N_SHARED, .sh_type = SHT_NOBITS, .sh_size = 2048, .sh_info = 3};
    m->size = at + 8192;
    return m;
}

/* How many layouts it has; the only kernel's is looked up. */
static int layouts_of(struct made *m, struct tow_kernel_layout *ret_layout,
                      struct tow_layout_param *ret_params)
{
    struct tow_buf layouts;
    tow_buf_init(&layouts, TOW_KERNEL_LAYOUTS_MAX);
    int count = tow_layouts_read(m->bytes, m->size, &layouts);
    const uint8_t *bytes;
    if (count == 1) {
        assert_true(tow_kernel_layout_find(layouts.data, layouts.size, "k", ret_layout, &bytes));
        memcpy(ret_params, bytes, ret_layout->params * sizeof *ret_params);
        assert_false(tow_kernel_layout_find(layouts.data, layouts.size, "kk", ret_layout, &bytes));
    }
    tow_buf_fini(&layouts);
    return count;
}

static int count_of(struct made *m)
{
    struct tow_kernel_layout layout;
    struct tow_layout_param params[TOW_LAYOUT_PARAMS_MAX];
    int count = layouts_of(m, &layout, params);
    free(m);
    return count;
}

static void a_kernel_is_read(void **state)
{
    struct made *m = make();
    struct tow_kernel_layout layout;
    struct tow_layout_param params[TOW_LAYOUT_PARAMS_MAX];
    uint32_t threads[3] = {8, 8, 4}, large[3] = {0, 2 | 32 << 16, 0x05000000 | 8000};
    put_record(m, 4, 0x45, 12, large); /* the other form, and in any order */
    put_param(m, 1, 16, 3);
    put_param(m, 0, 0, 8);
    put_record(m, 2, 0x4c, 1, NULL);
    put_record(m, 4, 0x05, 12, threads);
    put_size(m, 8032);
    assert_int_equal(layouts_of(m, &layout, params), 1);
    assert_int_equal(layout.params, 3);
    assert_int_equal(params[0].offset, 0);
    assert_int_equal(params[0].size, 8);
    assert_int_equal(params[1].offset, 16);
    assert_int_equal(params[1].size, 3);
    assert_int_equal(params[2].offset, 32);
    assert_int_equal(params[2].size, 8000);
    assert_int_equal(layout.threads, 256);
    assert_int_equal(layout.shared, (48 << 10) - 2048 - 1024);
    free(m);
    assert_int_equal(count_of(make()), 1); /* no parameters at all */
}

static void registers_bound_a_block(void **state)
{
    static const struct {
        uint32_t own, called, threads;
    } cases[] = {{40, 8, 1024}, {64, 8, 1024}, {65, 8, 896},   {128, 8, 512},  {168, 8, 384},
                 {255, 8, 256}, {0, 8, 256},   {32, 128, 512}, {70000, 8, 256}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made *m = make();
        struct tow_kernel_layout layout;
        struct tow_layout_param params[1];
        uint32_t *records = (uint32_t *)(m->bytes + m->sections[6].sh_offset);
        records[2] = cases[i].own;
        records[5] = cases[i].called;
        assert_int_equal(layouts_of(m, &layout, params), 1);
        assert_int_equal(layout.threads, cases[i].threads);
        free(m);
    }
}

static void what_is_odd_is_left_out(void **state)
{
    struct made *m = make();
    put_param(m, 1, 8, 8); /* no first */
    put_size(m, 16);
    assert_int_equal(count_of(m), 0);
    m = make();
    put_param(m, 0, 0, 8);
    put_param(m, 0, 0, 8); /* twice */
    put_size(m, 8);
    assert_int_equal(count_of(m), 0);
    m = make();
    put_param(m, 0, 0, 8);
    put_param(m, 1, 4, 8); /* overlaps */
    put_size(m, 12);
    assert_int_equal(count_of(m), 0);
    m = make();
    put_param(m, 0, 0, 0); /* has no size */
    assert_int_equal(count_of(m), 0);
    m = make();
    put_param(m, 0, 0, 8);
    put_size(m, 16); /* something is missing */
    assert_int_equal(count_of(m), 0);
    m = make();
    put_param(m, 0, 0, 8); /* and nothing says how much there is */
    assert_int_equal(count_of(m), 0);
    m = make();
    put_param(m, TOW_LAYOUT_PARAMS_MAX, 0, 8);
    put_size(m, 8);
    assert_int_equal(count_of(m), 0);
    m = make();
    put_record(m, 9, 0x4c, 0, NULL); /* a format that is none */
    assert_int_equal(count_of(m), 0);
    m = make();
    put_record(m, 3, 0x4c, 0, NULL);
    m->sections[4].sh_size -= 1;
    assert_int_equal(count_of(m), 0);
    m = make();
    uint32_t words[3] = {0, 0, 8 << 18};
    put_record(m, 4, 0x17, 8, words); /* too short */
    assert_int_equal(count_of(m), 0);
}

static void parts_must_belong_together(void **state)
{
    struct made *m = make();
    m->sections[5] = m->sections[4]; /* records twice */
    assert_int_equal(count_of(m), 0);
    m = make();
    m->sections[4].sh_name = N_INFO + 1; /* not its records */
    assert_int_equal(count_of(m), 0);
    m = make();
    m->sections[5].sh_name = N_SHARED + 1; /* no shared memory, as far as one can see */
    assert_int_equal(count_of(m), 1);
    m = make();
    m->symbols[1].st_name = N_OTHER;
    assert_int_equal(count_of(m), 0);
    m = make();
    m->symbols[1].st_other = 0; /* not a kernel */
    assert_int_equal(count_of(m), 0);
    m = make();
    m->symbols[1].st_shndx = 4;
    assert_int_equal(count_of(m), 0);
    m = make();
    m->sections[3].sh_info = 77; /* no such symbol */
    assert_int_equal(count_of(m), 0);
    m = make();
    m->sections[4].sh_info = 1u << 31;
    assert_int_equal(count_of(m), 0);
    m = make();
    m->sections[3].sh_info = 40u << 24 | 1; /* as older assemblers write it */
    assert_int_equal(count_of(m), 1);
}

static void what_is_no_program_is_refused(void **state)
{
    struct made *m = make();
    m->head->e_type = ET_REL; /* to be linked yet */
    assert_true(count_of(m) < 0);
    m = make();
    m->head->e_machine = EM_X86_64;
    assert_true(count_of(m) < 0);
    m = make();
    m->head->e_shoff = UINT64_MAX - 8;
    assert_true(count_of(m) < 0);
    m = make();
    m->head->e_shnum = 0; /* then the first section says it */
    m->sections[0].sh_size = UINT64_MAX / 2;
    assert_true(count_of(m) < 0);
    m = make();
    m->sections[2].sh_size = UINT64_MAX;
    assert_true(count_of(m) < 0);
    m = make();
    m->sections[2].sh_link = 99;
    assert_true(count_of(m) < 0);
    m = make();
    m->sections[6] = m->sections[2]; /* two tables of symbols */
    assert_true(count_of(m) < 0);
    m = make();
    m->sections[1].sh_size = N_K + 1; /* names that do not end */
    assert_int_equal(count_of(m), 0);
}

/* Many sections share one long name: that may not cost their product. */
static void long_names_cost_no_more_than_the_image(void **state)
{
    enum { SECTIONS = 100000, NAME = 8 << 20 };
    size_t size = sizeof(Elf64_Ehdr) + SECTIONS * sizeof(Elf64_Shdr) + NAME;
    uint8_t *bytes = calloc(1, size);
    assert_non_null(bytes);
    struct made *m = make();
    memcpy(bytes, m->bytes, sizeof(Elf64_Ehdr));
    Elf64_Ehdr *head = (Elf64_Ehdr *)bytes;
    Elf64_Shdr *sections = (Elf64_Shdr *)(bytes + sizeof *head);
    size_t at = size - NAME;
    head->e_shnum = 0;
    sections[0].sh_size = SECTIONS;
    sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = NAME};
    sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB, .sh_offset = at, .sh_link = 1};
    memset(bytes + at, 'x', NAME - 1);
    memcpy(bytes + at, ".nv.info.", 9);
    for (unsigned i = 3; i < SECTIONS; i++) {
        sections[i] = (Elf64_Shdr){.sh_type = 0x70000000, .sh_offset = at, .sh_info = i};
    }
    struct tow_buf layouts;
    tow_buf_init(&layouts, TOW_KERNEL_LAYOUTS_MAX);
    clock_t begin = clock();
    assert_int_equal(tow_layouts_read(bytes, size, &layouts), 0);
    /* Their product would be 800 GB. */
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
    tow_buf_fini(&layouts);
    free(m);
    free(bytes);
}

/* ---- which machine code is taken ---- */

static size_t put_entry(uint8_t *at, unsigned kind, unsigned sm, const char *payload)
{
    uint32_t header = 64;
    uint64_t padded = 8;
    memset(at, 0, 72);
    memcpy(at, &kind, 2);
    memcpy(at + 4, &header, 4);
    memcpy(at + 8, &padded, 8);
    memcpy(at + 28, &sm, 4);
    memcpy(at + 64, payload, strlen(payload));
    return 72;
}

static void only_code_that_is_certain_is_read(void **state)
{
    static const struct {
        unsigned capability;
        struct {
            unsigned kind, sm;
        } entries[4];
        int taken; /* index of the entry; -1: none */
    } cases[] = {
        {90, {{2, 80}, {2, 90}, {1, 90}}, 1}, {90, {{2, 90}, {2, 90}}, -1}, /* sm_90 and sm_90a,
                                                                               perhaps */
        {90, {{2, 80}, {1, 90}}, -1},                                       /* to be compiled */
        {86, {{2, 80}, {2, 86}, {2, 89}}, 1}, /* the newest that runs */
        {86, {{2, 80}, {1, 80}}, 0},          /* runs on all that follow */
        {103, {{2, 100}, {1, 100}}, -1},      /* sm_100a does not */
        {103, {{2, 100}, {2, 90}}, 0},        /* but there is nothing else */
        {103, {{2, 100}, {8, 100}}, -1},      {120, {{2, 110}, {2, 121}}, -1}, {52, {{2, 52}}, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t image[16 + 4 * 72] = {0};
        size_t size = 16;
        image[6] = 16;
        for (unsigned k = 0; k < 4 && cases[i].entries[k].kind != 0; k++) {
            char payload[2] = {(char)('0' + k)};
            size +=
                put_entry(image + size, cases[i].entries[k].kind, cases[i].entries[k].sm, payload);
        }
        const uint8_t *code = NULL;
        uint8_t *owned = NULL;
        size_t code_size = 0;
        int taken = tow_layouts_code(image, size, TOW_IMAGE_FATBIN, cases[i].capability, &code,
                                     &code_size, &owned);
        assert_int_equal(taken, cases[i].taken >= 0);
        assert_null(owned);
        if (taken > 0) {
            assert_int_equal(*code, '0' + cases[i].taken);
        }
    }
}

/* ---- on the wire ---- */

static void layouts_are_found_again(void **state)
{
    uint64_t room[64];
    uint8_t *bytes = (uint8_t *)room;
    const struct tow_layout_param params[3] = {{0, 4}, {8, 8}, {16, 100}};
    struct tow_enc enc = tow_enc_init(room, sizeof room);
    struct tow_kernel_layout layout = {.params = 3, .threads = 7, .shared = 9}, found;
    const uint8_t *content;
    assert_true(tow_kernel_layout_write(&enc, "three", &layout, params));
    layout.params = 0;
    assert_true(tow_kernel_layout_write(&enc, "none", &layout, params));
    assert_true(tow_kernel_layout_write(&enc, "twice", &layout, params));
    assert_true(tow_kernel_layout_write(&enc, "twice", &layout, params));
    size_t size = (size_t)(enc.at - bytes);
    assert_true(tow_kernel_layout_find(bytes, size, "three", &found, &content));
    assert_int_equal(found.params, 3);
    assert_int_equal(found.threads, 7);
    assert_int_equal(found.shared, 9);
    assert_memory_equal(content, params, sizeof params);
    assert_true(tow_kernel_layout_find(bytes, size, "none", &found, &content));
    assert_int_equal(found.params, 0);
    assert_false(tow_kernel_layout_find(bytes, size, "twice", &found, &content));
    assert_false(tow_kernel_layout_find(bytes, size, "", &found, &content));
    /* A peer that cuts it, or says that there is more than there is. */
    for (size_t cut = 1; cut < size; cut++) {
        if (tow_kernel_layout_find(bytes, cut, "three", &found, &content)) {
            assert_true(content + sizeof params <= bytes + cut);
        }
    }
    uint16_t many = 60000;
    memcpy(bytes + 16, &many, 2);
    assert_false(tow_kernel_layout_find(bytes, size, "three", &found, &content));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_is_read),
        cmocka_unit_test(registers_bound_a_block),
        cmocka_unit_test(what_is_odd_is_left_out),
        cmocka_unit_test(parts_must_belong_together),
        cmocka_unit_test(what_is_no_program_is_refused),
        cmocka_unit_test(long_names_cost_no_more_than_the_image),
        cmocka_unit_test(only_code_that_is_certain_is_read),
        cmocka_unit_test(layouts_are_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
