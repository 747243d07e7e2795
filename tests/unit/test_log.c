/* SPDX-License-Identifier: Apache-2.0 */
/* What lines look like, and how many there can be. */
#include "cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

static int file = -1;

/* What was written since the last call, which the caller frees. */
static char *written(size_t *ret_size)
{
    static off_t at;
    off_t end = lseek(file, 0, SEEK_END);
    char *text = calloc(1, (size_t)(end - at) + 1);
    assert_non_null(text);
    assert_int_equal(pread(file, text, (size_t)(end - at), at), end - at);
    *ret_size = (size_t)(end - at);
    at = end;
    return text;
}

static void a_text_of_others_stays_within_its_line(void **state)
{
    size_t size;
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a client: %s",
            "x\ntowlined: all is well\x1b[2J\r\x7f!");
    char *text = written(&size);
    assert_string_equal(text, "towline: a client: x towlined: all is well [2J  !\n");
    free(text);
}

/* How many lines of the flood a text has or tells of. */
static unsigned long long lines_told(const char *text)
{
    unsigned long long told = 0, missing;
    for (const char *at = text; at != NULL && *at != '\0'; at = strchr(at, '\n')) {
        at += *at == '\n';
        told += strncmp(at, "towline: line ", 14) == 0;
        told += sscanf(at, "towline: %llu lines were left out here", &missing) == 1 ? missing : 0;
    }
    return told;
}

static void a_flood_of_lines_is_cut(void **state)
{
    size_t size, lines = 0;
    unsigned long long told;
    for (int i = 0; i < 20000; i++) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "line %d", i);
    }
    char *text = written(&size);
    for (size_t i = 0; i < size; i++) {
        lines += text[i] == '\n';
    }
    told = lines_told(text);
    free(text);
    assert_in_range(lines, 900, 1500);
    usleep(300000); /* one line is due again, and tells */
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the next");
    text = written(&size);
    assert_non_null(strstr(text, " lines were left out"));
    assert_non_null(strstr(text, "towline: the next\n"));
    assert_int_equal(told + lines_told(text), 20000);
    free(text);
}

static void lines_are_shared_out(void **state)
{
    size_t size;
    tow_log_take(1000); /* all that were left */
    tow_log_give_back(500);
    assert_in_range(tow_log_take(1000), 500, 1000); /* some come with time */
    assert_in_range(tow_log_take(2000), 0, 1000);
    static _Atomic uint32_t lines = 2;
    tow_log_allow(&lines);
    for (int i = 0; i < 5; i++) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "allowed %d", i);
    }
    char *text = written(&size);
    assert_non_null(strstr(text, "allowed 1\n"));
    assert_null(strstr(text, "allowed 2\n"));
    free(text);
    lines = 200;
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "again");
    text = written(&size);
    assert_non_null(strstr(text, "3 lines were left out here"));
    assert_int_equal(lines, 199);
    free(text);
}

static void a_line_that_comes_again_is_counted(void **state)
{
    size_t size;
    bool counted = false;
    tow_log_fold();
    /* They must come within a second, which this thread may sleep through. */
    for (int try = 0; try < 20 && !counted; try++) {
        for (int i = 0; i < 13; i++) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the same");
        }
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "another");
        char *text = written(&size);
        counted = strstr(text, "towline: the same\ntowline: the line above came 3 more times\n"
                               "towline: another\n") != NULL;
        free(text);
    }
    assert_true(counted);
}

/* However long it takes, the count is told: by the line that may be written, or by who asks. */
static void a_count_is_not_lost(void **state)
{
    static _Atomic uint32_t lines;
    size_t size;
    bool kept = false, told = false;
    tow_log_fold();
    tow_log_allow(&lines);
    for (int try = 0; try < 20 && !(kept && told); try++) {
        lines = 200;
        for (int i = 0; i < 13; i++) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "much");
        }
        lines = 0;
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "not to be written");
        lines = 200;
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "to be written");
        char *text = written(&size);
        kept |= strstr(text, "the line above came 3 more times\n") != NULL;
        free(text);
        for (int i = 0; i < 14; i++) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "more");
        }
        tow_log_flush(true);
        tow_log_flush(true);
        text = written(&size);
        const char *count = strstr(text, "the line above came 4 more times\n");
        told |= count != NULL && strstr(count + 20, "the line above") == NULL;
        free(text);
    }
    tow_log_allow(NULL);
    assert_true(kept);
    assert_true(told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_of_others_stays_within_its_line),
        cmocka_unit_test(a_flood_of_lines_is_cut),
        cmocka_unit_test(lines_are_shared_out),
        cmocka_unit_test(a_line_that_comes_again_is_counted),
        cmocka_unit_test(a_count_is_not_lost),
    };
    unsetenv("TOWLINE_LOG");
    unsetenv("TOWLINE_LOG_FILE");
    file = memfd_create("log", MFD_CLOEXEC);
    fcntl(file, F_SETFL, O_APPEND);
    tow_log_move(file);
    return file < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
