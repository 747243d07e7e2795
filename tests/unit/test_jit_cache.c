/* SPDX-License-Identifier: Apache-2.0 */
/* The compile cache: keys, disk, limits. */
#include "cmocka_all.h"

#include <dirent.h>
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
        cmocka_unit_test(memory_of_ptx_has_a_limit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
