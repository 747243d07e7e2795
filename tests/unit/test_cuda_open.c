/* Opening the real driver: what is refused, and with which sentence. */
#include "cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "backend/backend.h"

static void towlines_own_library_is_refused(void **state)
{
    (void)state;
    struct tow_backend backend;
    char why[512] = "";
    assert_int_equal(tow_backend_cuda_open(TOW_OUR_LIBRARY, &backend, why, sizeof why), -ELOOP);
    assert_non_null(strstr(why, "Towline's own"));
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    struct tow_backend backend;
    char why[512] = "";
    assert_int_equal(tow_backend_cuda_open("/nonexistent/libcuda.so.1", &backend, why, sizeof why),
                     -ENOENT);
    assert_non_null(strstr(why, "/nonexistent/libcuda.so.1"));
}

static void a_library_without_a_driver_is_refused(void **state)
{
    (void)state;
    struct tow_backend backend;
    char why[512] = "";
    assert_int_equal(tow_backend_cuda_open("libm.so.6", &backend, why, sizeof why), -ENOENT);
    assert_non_null(strstr(why, "cuInit"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(towlines_own_library_is_refused),
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(a_library_without_a_driver_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
