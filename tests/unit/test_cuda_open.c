/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the real driver: what is refused, and with which sentence. */
#include "cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/cuda/space.h"

static void towlines_own_library_is_refused(void **state)
{
    (void)state;
    struct tow_backend backend;
    char why[512] = "";
    assert_int_equal(tow_backend_cuda_open(TOW_OUR_LIBRARY, 0, &backend, why, sizeof why), -ELOOP);
    assert_non_null(strstr(why, "Towline's own"));
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    struct tow_backend backend;
    char why[512] = "";
    assert_int_equal(
        tow_backend_cuda_open("/nonexistent/libcuda.so.1", 0, &backend, why, sizeof why), -ENOENT);
    assert_non_null(strstr(why, "/nonexistent/libcuda.so.1"));
}

static void a_library_without_a_driver_is_refused(void **state)
{
    (void)state;
    struct tow_backend backend;
    char why[512] = "";
    assert_int_equal(tow_backend_cuda_open("libm.so.6", 0, &backend, why, sizeof why), -ENOENT);
    assert_non_null(strstr(why, "cuInit"));
}

static bool is_inside(const void *at, size_t size, const struct tow_backend_range *range)
{
    return (uintptr_t)at >= range->base && (uintptr_t)at + size <= range->base + range->size;
}

/* In a process with the bottom-up layout: what is mapped after slot 0 was filled lies in slot 1. */
static int live_in_slot_one(void)
{
    struct tow_backend_range first[2], second[2];
    tow_space_fill(1);
    if (tow_space_ranges(0, first) != 2 || tow_space_ranges(1, second) != 2) {
        return 2;
    }
    for (size_t size = 4096; size <= (size_t)1 << 34; size <<= 2) {
        void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED || !is_inside(at, size, &second[1]) ||
            is_inside(at, size, &first[1])) {
            return 3;
        }
    }
    void *pool = mmap((void *)(uintptr_t)(first[0].base + ((uint64_t)1 << 36)), 4096, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return pool == MAP_FAILED ? 0 : 4;
}

static void slots_do_not_overlap(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("the sanitizer's own memory lies where the driver's would");
#endif
    pid_t child = fork();
    if (child == 0) {
        personality(ADDR_COMPAT_LAYOUT);
        execl("/proc/self/exe", "test", "slot", (char *)NULL);
        _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "slot") == 0) {
        return live_in_slot_one();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_do_not_overlap),
        cmocka_unit_test(towlines_own_library_is_refused),
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(a_library_without_a_driver_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
