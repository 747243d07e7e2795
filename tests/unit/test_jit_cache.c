/* SPDX-License-Identifier: Apache-2.0 */
/* The compile cache: keys, disk, limits. */
#include "cmocka_all.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/code/jit_cache.h"

static char folder[64];
static const char ptx[] = "//\n.version 8.8\n.target sm_121\n.address_size 64\n";
static const char cubin[] = "\177ELF not really";
static const char bitcode[] = "BC bitcode";

static void *key_of(int kind, const char *input, const char *options)
{
    void *key = NULL;
    assert_int_equal(towc_jit_cache_key(&key, kind, input, strlen(input), options), CUDA_SUCCESS);
    return key;
}

static CUresult find(int kind, const char *input, const char *options, const char *want)
{
    void *key = key_of(kind, input, options), *data = NULL;
    uint32_t size = 0;
    CUresult status = towc_jit_cache_find(key, 0, &data, &size);
    if (status == CUDA_SUCCESS) {
        assert_int_equal(size, strlen(want));
        assert_memory_equal(data, want, size);
        towc_jit_cache_free_data(data);
    }
    towc_jit_cache_free_key(key);
    return status;
}

static void store(int kind, const char *input, const char *options, const char *data)
{
    void *key = key_of(kind, input, options);
    assert_int_equal(towc_jit_cache_store(key, 0, data, (uint32_t)strlen(data)), CUDA_SUCCESS);
    towc_jit_cache_free_key(key);
}

/* A file with a section .text.NAME of 64 bytes for each letter of `functions`, filled with `fill`,
 * and with constants if it is a capital: a kernel. Instruction 2 of each is what the linker fills
 * in. */
static size_t make_elf(uint8_t *file, unsigned type, const char *functions, uint8_t fill)
{
    char names[1024] = "";
    Elf64_Shdr sections[64] = {{0}};
    size_t end = sizeof(Elf64_Ehdr), names_end = 1;
    unsigned count = 1;
    for (const char *f = functions; *f; f++) {
        char name[3][32];
        snprintf(name[0], sizeof name[0], ".text.%c", *f);
        snprintf(name[1], sizeof name[1], ".rela.text.%c", *f);
        snprintf(name[2], sizeof name[2], ".nv.constant0.%c", *f);
        for (unsigned i = 0; i < 3; i++) {
            if ((i == 1 && type != ET_REL) || (i == 2 && *f >= 'a')) {
                continue;
            }
            sections[count++] = (Elf64_Shdr){.sh_name = (Elf64_Word)names_end,
                                             .sh_type = i == 1 ? SHT_RELA : SHT_PROGBITS,
                                             .sh_offset = end,
                                             .sh_size = i == 1 ? sizeof(Elf64_Rela) : 64};
            memcpy(names + names_end, name[i], strlen(name[i]) + 1);
            names_end += strlen(name[i]) + 1;
            memset(file + end, i == 0 ? fill + *f : 0, 64);
            if (i == 0) {
                memset(file + end + 32, type, 16);
            } else if (i == 1) {
                file[end] = 40; /* within the third instruction */
            }
            end += 64;
        }
    }
    sections[count++] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = end, .sh_size = names_end};
    memcpy(file + end, names, names_end);
    end += names_end;
    Elf64_Ehdr head = {.e_type = (Elf64_Half)type,
                       .e_shoff = end,
                       .e_shnum = (Elf64_Half)count,
                       .e_shentsize = sizeof(Elf64_Shdr),
                       .e_shstrndx = (Elf64_Half)(count - 1)};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    memcpy(file, &head, sizeof head);
    memcpy(file + end, sections, count * sizeof sections[0]);
    return end + count * sizeof sections[0];
}

/* The compiler makes an object of a PTX of its own. */
static void compile_object(const char *text, const char *functions, uint8_t fill)
{
    uint8_t file[8192];
    size_t size = make_elf(file, ET_REL, functions, fill);
    void *key = key_of(TOW_JIT_CUBIN, text, "");
    assert_int_equal(towc_jit_cache_store(key, 0, file, (uint32_t)size), CUDA_SUCCESS);
    towc_jit_cache_free_key(key);
}

static void expect_linked(const char *functions, uint8_t fill, const char *want)
{
    uint8_t file[8192];
    size_t size = make_elf(file, ET_EXEC, functions, fill);
    struct tow_buf ptx_found;
    tow_buf_init(&ptx_found, 1 << 20);
    int error = towc_jit_cache_ptx_of(file, size, &ptx_found);
    assert_int_equal(error, want != NULL ? 0 : -ENOENT);
    if (want != NULL) {
        assert_int_equal(ptx_found.size, strlen(want));
        assert_memory_equal(ptx_found.data, want, ptx_found.size);
    }
    tow_buf_fini(&ptx_found);
    for (size_t cut = 0; cut < size; cut++) { /* damaged files are looked at, too */
        uint8_t *part = malloc(cut + 1);
        memcpy(part, file, cut);
        tow_buf_init(&ptx_found, 1 << 20);
        assert_true(towc_jit_cache_ptx_of(part, cut, &ptx_found) <= 0);
        tow_buf_fini(&ptx_found);
        free(part);
    }
    for (size_t at = SELFMAG; at < size; at++) {
        file[at] ^= 0xff;
        tow_buf_init(&ptx_found, 1 << 20);
        assert_true(towc_jit_cache_ptx_of(file, size, &ptx_found) <= 0);
        tow_buf_fini(&ptx_found);
        file[at] ^= 0xff;
    }
}

/* Each test runs in a process of its own: the environment is read once. */
static void in_a_child(void (*test)(void))
{
    pid_t child = fork();
    if (child == 0) {
        test();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void linked(void)
{
    compile_object(".version 8.0 // A, b", "Ab", 1);
    compile_object(".version 8.0 // C", "C", 1);
    compile_object(".version 8.0 // another C", "C", 2);
    expect_linked("A", 1, ".version 8.0 // A, b");
    expect_linked("C", 1, ".version 8.0 // C");
    expect_linked("C", 2, ".version 8.0 // another C");
    expect_linked("C", 3, NULL); /* of that name, but none of these */
    expect_linked("CbA", 1, "// towline linked 17 20\n.version 8.0 // C.version 8.0 // A, b");
    expect_linked("Az", 1, ".version 8.0 // A, b"); /* z is of a library */
    expect_linked("AZ", 1, NULL);                   /* a kernel that nobody knows */
    expect_linked("z", 1, NULL);
    compile_object(".version 8.0 // C", "C", 3);
    expect_linked("C", 3, ".version 8.0 // C");
}

static void what_a_linker_made_is_known_by_its_code(void **state)
{
    (void)state;
    in_a_child(linked);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static bool knows_ptx(const char *of)
{
    struct tow_buf text;
    tow_buf_init(&text, 1 << 20);
    int error = towc_jit_cache_ptx_of(of, strlen(of), &text);
    bool knows = error == 0 && text.size == strlen(ptx) && memcmp(text.data, ptx, text.size) == 0;
    CHECK(error == 0 || error == -ENOENT);
    tow_buf_fini(&text);
    return knows;
}

static int files(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(dir);
    return count;
}

static void compile(void)
{
    CHECK(find(TOW_JIT_PTX, bitcode, "-arch=compute_121", ptx) == CUDA_ERROR_NOT_FOUND);
    store(TOW_JIT_PTX, bitcode, "-arch=compute_121", ptx);
    CHECK(find(TOW_JIT_CUBIN, bitcode, "-arch=sm_121", cubin) == CUDA_ERROR_NOT_FOUND);
    store(TOW_JIT_CUBIN, bitcode, "-arch=sm_121", cubin);
    CHECK(find(TOW_JIT_CUBIN, bitcode, "-arch=sm_121", cubin) == CUDA_SUCCESS);
    CHECK(find(TOW_JIT_CUBIN, bitcode, "-arch=sm_90", cubin) == CUDA_ERROR_NOT_FOUND);
    CHECK(knows_ptx(cubin));
    CHECK(!knows_ptx("\177ELF another"));
}

static void find_again(void)
{
    CHECK(find(TOW_JIT_PTX, bitcode, "-arch=compute_121", ptx) == CUDA_SUCCESS);
    CHECK(find(TOW_JIT_CUBIN, bitcode, "-arch=sm_121", cubin) == CUDA_SUCCESS);
    CHECK(knows_ptx(cubin));
}

static void compilations_outlive_the_process(void **state)
{
    in_a_child(compile);
    in_a_child(find_again);
}

static void lose_ptx(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm %s/*.ptx", folder);
    CHECK(system(command) == 0);
    CHECK(find(TOW_JIT_CUBIN, bitcode, "-arch=sm_121", cubin) == CUDA_ERROR_NOT_FOUND);
    CHECK(find(TOW_JIT_PTX, bitcode, "-arch=compute_121", ptx) == CUDA_SUCCESS);
    store(TOW_JIT_CUBIN, bitcode, "-arch=sm_121", cubin);
    CHECK(knows_ptx(cubin));
}

static void a_cubin_without_its_ptx_is_compiled_again(void **state)
{
    in_a_child(lose_ptx);
    in_a_child(find_again);
}

static void link_ptx(void)
{
    store(TOW_JIT_CUBIN, ptx, "-arch=sm_121", "\177ELF linked");
    CHECK(knows_ptx("\177ELF linked"));
}

static void ptx_that_is_the_input_is_known_too(void **state)
{
    in_a_child(link_ptx);
}

static void damage(void)
{
    char command[256];
    snprintf(command, sizeof command,
             "for f in %s/*; do printf x | dd of=$f bs=1 seek=50 conv=notrunc 2>/dev/null; done",
             folder);
    CHECK(system(command) == 0);
    CHECK(find(TOW_JIT_PTX, bitcode, "-arch=compute_121", ptx) == CUDA_ERROR_NOT_FOUND);
    CHECK(!knows_ptx(cubin));
}

static void a_damaged_file_is_as_good_as_none(void **state)
{
    in_a_child(damage);
}

static void without_disk(void)
{
    int before = files();
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    store(TOW_JIT_PTX, "other", "", ptx);
    store(TOW_JIT_CUBIN, "other", "", "\177ELF other");
    CHECK(find(TOW_JIT_PTX, "other", "", ptx) == CUDA_ERROR_NOT_FOUND);
    CHECK(knows_ptx("\177ELF other")); /* this process compiled it */
    CHECK(files() == before);
}

static void disabling_leaves_the_disk_alone(void **state)
{
    in_a_child(without_disk);
}

static void fill(void)
{
    char big[3000], input[16];
    setenv("CUDA_CACHE_MAXSIZE", "20000", 1);
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    for (int i = 0; i < 20; i++) {
        snprintf(input, sizeof input, "input %d", i);
        store(TOW_JIT_PTX, input, "", big);
        struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
    }
    CHECK(files() <= 6);
    CHECK(find(TOW_JIT_PTX, "input 19", "", big) == CUDA_SUCCESS);
    CHECK(find(TOW_JIT_PTX, "input 0", "", big) == CUDA_ERROR_NOT_FOUND);
}

static void the_oldest_go_when_the_folder_is_full(void **state)
{
    in_a_child(fill);
}

/* PTX of `size` bytes that differs by `seed`. */
static char *long_ptx(char seed, size_t size)
{
    char *text = malloc(size + 1);
    memset(text, ' ', size);
    memcpy(text, ptx, strlen(ptx));
    text[size - 1] = seed;
    text[size] = '\0';
    return text;
}

static size_t ptx_size_of(const char *of)
{
    struct tow_buf text;
    tow_buf_init(&text, 64 << 20);
    size_t size = towc_jit_cache_ptx_of(of, strlen(of), &text) == 0 ? text.size : 0;
    tow_buf_fini(&text);
    return size;
}

/* 64 MiB are kept in the process: four of these. */
static void remember_much(void)
{
    enum { SIZE = 15 << 20 };
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    for (char seed = 'a'; seed <= 'e'; seed++) {
        char *text = long_ptx(seed, SIZE), name[] = "\177ELF of x";
        name[strlen(name) - 1] = seed;
        store(TOW_JIT_CUBIN, text, "", name);
        free(text);
    }
    CHECK(ptx_size_of("\177ELF of a") == 0);
    CHECK(ptx_size_of("\177ELF of b") == SIZE);
    CHECK(ptx_size_of("\177ELF of e") == SIZE);
    store(TOW_JIT_CUBIN, ptx, "", "\177ELF of b"); /* instead of what it was */
    CHECK(knows_ptx("\177ELF of b"));
    char *text = long_ptx('f', SIZE);
    store(TOW_JIT_CUBIN, text, "", "\177ELF of f");
    free(text);
    CHECK(ptx_size_of("\177ELF of c") == SIZE);
    CHECK(knows_ptx("\177ELF of b"));
}

static void memory_of_ptx_has_a_limit(void **state)
{
    in_a_child(remember_much);
}

static int setup(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/towline-test-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    unsetenv("CUDA_CACHE_DISABLE");
    unsetenv("CUDA_CACHE_MAXSIZE");
    return setenv("CUDA_CACHE_PATH", folder, 1);
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compilations_outlive_the_process),
        cmocka_unit_test(a_cubin_without_its_ptx_is_compiled_again),
        cmocka_unit_test(ptx_that_is_the_input_is_known_too),
        cmocka_unit_test(a_damaged_file_is_as_good_as_none),
        cmocka_unit_test(disabling_leaves_the_disk_alone),
        cmocka_unit_test(the_oldest_go_when_the_folder_is_full),
        cmocka_unit_test(what_a_linker_made_is_known_by_its_code),
        cmocka_unit_test(memory_of_ptx_has_a_limit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
