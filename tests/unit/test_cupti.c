/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines of NVIDIA's driver: CUPTI's records become spans with who gave them, and a machine
 * without CUPTI has none. */
#include "cmocka_all.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/cupti.h"
#include "backend/spans.h"
#include "base/clock.h"
#include "fake_cupti.h"

/* There is one CUPTI in a process: what its beginning says in a child, with such a library. */
static int begins(const char *path, const char *variable)
{
    pid_t child = fork();
    if (child == 0) {
        struct tow_backend_timeline_how how;
        if (variable != NULL) {
            setenv(variable, "1", 1);
        }
        tow_backend_cuda_cupti(path);
        int first = tow_cupti_ops.begin(&how);
        _exit(first == tow_cupti_ops.begin(&how) ? -first : 255);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void without_cupti_nothing_is_known(void **state)
{
    (void)state;
    assert_int_equal(begins("none", NULL), -ENOTSUP);
    assert_int_equal(begins("/nonexistent/libcupti.so", NULL), -ENOTSUP);
    assert_int_equal(begins("libm.so.6", NULL), -ENOTSUP); /* it has other functions */
    assert_int_equal(begins(FAKE_CUPTI, "FAKE_CUPTI_TAKEN"), -ENOTSUP);
    assert_int_equal(begins(FAKE_CUPTI, NULL), 0);
}

static void give(uint32_t correlation, uint64_t command)
{
    tow_spans_command = command;
    fake_cupti_call(TOW_CUPTI_API_ENTER, correlation);
    fake_cupti_call(1, correlation); /* its exit says nothing new */
    tow_spans_command = 0;
}

static void records_become_spans(void **state)
{
    (void)state;
    struct tow_backend_timeline_how how = {.stays = false};
    struct tow_backend_span spans[8];
    uint64_t lost = 0;
    tow_backend_cuda_cupti(FAKE_CUPTI);
    assert_int_equal(tow_cupti_ops.begin(&how), 0);
    assert_true(how.stays);
    assert_int_equal(fake_cupti_kinds(), 1u << 1 | 1u << 2 | 1u << 10 | 1u << 22);
    assert_true(fake_cupti_functions() > 25);
    uint64_t before = (uint64_t)tow_time_now_ns();
    uint64_t now = fake_cupti_now(); /* times are of our clock */
    assert_in_range(now, before, (uint64_t)tow_time_now_ns());

    give(7, 41);
    give(8, 42);
    uint64_t after = fake_cupti_now() + 1000000;
    fake_cupti_record(&(struct tow_cupti_kernel){.kind = TOW_CUPTI_CONCURRENT_KERNEL,
                                                 .start = after,
                                                 .end = after + 500,
                                                 .stream = 13,
                                                 .correlation = 7,
                                                 .name = "matmul"},
                      sizeof(struct tow_cupti_kernel));
    fake_cupti_record(&(struct tow_cupti_memcpy){.kind = TOW_CUPTI_MEMCPY,
                                                 .copy = 2,
                                                 .bytes = 4096,
                                                 .start = after + 500,
                                                 .end = after + 700,
                                                 .stream = 7,
                                                 .correlation = 8},
                      sizeof(struct tow_cupti_memcpy));
    fake_cupti_record(&(struct tow_cupti_memcpy2){.kind = TOW_CUPTI_MEMCPY2,
                                                  .copy = 10,
                                                  .bytes = 64,
                                                  .start = 5000,
                                                  .end = 6000,
                                                  .correlation = 9}, /* nobody's */
                      sizeof(struct tow_cupti_memcpy2));
    fake_cupti_record(&(struct tow_cupti_memset){.kind = TOW_CUPTI_MEMSET,
                                                 .bytes = 100,
                                                 .start = after,
                                                 .end = after + 1,
                                                 .correlation = 7 + (1u << 15)}, /* too old */
                      sizeof(struct tow_cupti_memset));
    fake_cupti_record(&(struct tow_cupti_memset){.kind = TOW_CUPTI_MEMSET}, /* no times */
                      sizeof(struct tow_cupti_memset));
    fake_cupti_record(&(struct tow_cupti_memset){.kind = 17}, sizeof(struct tow_cupti_memset));
    fake_cupti_drop(5);

    assert_int_equal(tow_cupti_ops.take(spans, 8, &lost), 4);
    assert_int_equal(lost, 6);
    assert_int_equal(spans[0].kind, TOW_BACKEND_KERNEL);
    assert_string_equal(tow_cupti_ops.name(spans[0].name), "matmul");
    assert_int_equal(spans[0].command, 41);
    assert_int_equal(spans[0].stream, 13);
    assert_int_equal(spans[0].ended_ns - spans[0].began_ns, 500);
    assert_in_range(spans[0].given_ns, before, spans[0].began_ns - 1);
    assert_int_equal(spans[1].kind, TOW_BACKEND_COPY_OUT);
    assert_int_equal(spans[1].command, 42);
    assert_int_equal(spans[1].bytes, 4096);
    assert_int_equal(spans[2].kind, TOW_BACKEND_COPY_DEVICE);
    assert_int_equal(spans[2].command, 0);
    assert_int_equal(spans[2].given_ns, 5000);
    assert_int_equal(spans[3].kind, TOW_BACKEND_FILL);
    assert_int_equal(spans[3].command, 0);
    assert_int_equal(tow_cupti_ops.take(spans, 8, &lost), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_cupti_nothing_is_known),
        cmocka_unit_test(records_become_spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
