/* SPDX-License-Identifier: Apache-2.0 */
/* What lines look like, and how many there can be. */
#include "cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/log_line.h"

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

/* The first of all: nothing was written yet. */
static void their_number_is_a_setting(void **state)
{
    size_t size, lines = 0;
    tow_log_set_limit(20); /* one in five seconds */
    for (int i = 0; i < 50; i++) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "line %d", i);
    }
    char *text = written(&size);
    for (size_t i = 0; i < size; i++) {
        lines += text[i] == '\n';
    }
    free(text);
    assert_in_range(lines, 18, 40); /* between them is told what was left out */
    assert_in_range(tow_log_used(), 19, 20);
    assert_in_range(tow_log_take(30), 0, 1);
    tow_log_set_limit(TOW_LOG_LINES); /* what was used is used, and what is new is there at once */
    assert_in_range(tow_log_used(), 18, 21);
    assert_in_range(tow_log_take(2000), 975, 982);
    tow_log_give_back(980);
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "this tells what was left out");
    free(written(&size));
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

static void stamps_are_rfc_3339(void **state)
{
    static const struct {
        int64_t s;
        const char *text;
    } known[] = {
        {0, "1970-01-01T00:00:00.123456Z"},          {951782399, "2000-02-28T23:59:59.123456Z"},
        {951782400, "2000-02-29T00:00:00.123456Z"},  {951868800, "2000-03-01T00:00:00.123456Z"},
        {1709164800, "2024-02-29T00:00:00.123456Z"}, {1735689599, "2024-12-31T23:59:59.123456Z"},
        {1735689600, "2025-01-01T00:00:00.123456Z"}, {4107542400, "2100-03-01T00:00:00.123456Z"},
    };
    char stamp[TOW_LOG_STAMP_MAX];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tow_log_stamp(known[i].s * 1000000000 + 123456789, stamp);
        assert_string_equal(stamp, known[i].text);
    }
}

static void a_line_says_when_and_whose(void **state)
{
    size_t size;
    static const struct tow_log_about all = {.session = 7}, other = {.session = 9, .peer = "p"};
    unsigned year, pid;
    char rest[200] = "";
    tow_log_set_about(&all);
    tow_log_set_format(TOW_LOG_TEXT);
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "why");
    char *text = written(&size);
    assert_int_equal(sscanf(text, "%4u-%*2u-%*2uT%*2u:%*2u:%*2u.%*6uZ %199[^\n]", &year, rest), 2);
    assert_in_range(year, 2020, 2200);
    assert_string_equal(rest, "towline: session 7: why");
    free(text);
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &other, "session 9: why");
    text = written(&size);
    assert_non_null(strstr(text, "Z towline: session 9: why\n"));
    free(text);
    tow_log_configure("info");
    tow_log(TOW_AREA_SOFT, TOW_LOG_INFO, "what");
    text = written(&size);
    assert_int_equal(sscanf(text, "%*s towline[%u] %199[^\n]", &pid, rest), 2);
    assert_int_equal(pid, getpid());
    assert_string_equal(rest, "soft info: session 7: what");
    free(text);
    tow_log_set_format(TOW_LOG_JOURNAL);
    tow_log(TOW_AREA_SOFT, TOW_LOG_INFO, "what");
    tow_log(TOW_AREA_SOFT, TOW_LOG_WARN, "why\n<0>forged");
    text = written(&size);
    assert_string_equal(text, "<6>soft: session 7: what\n<4>session 7: why <0>forged\n");
    free(text);
    tow_log_set_format(TOW_LOG_PLAIN);
    tow_log(TOW_AREA_SOFT, TOW_LOG_WARN, "why");
    text = written(&size);
    assert_string_equal(text, "towline: why\n");
    free(text);
    tow_log_configure("warn");
    tow_log_set_about(NULL);
}

static void json_has_one_object_a_line(void **state)
{
    size_t size;
    static const struct tow_log_about about = {.session = 12, .peer = "a \"peer\"", .tenant = "t"};
    tow_log_set_format(TOW_LOG_JSON);
    tow_log_set_about(&about);
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "x\n\"y\\ \x1b\x7f \xff \xc3\xa4 \xed\xa0\x80");
    tow_log_set_about(NULL);
    char *text = written(&size), wanted[300];
    assert_ptr_equal(strchr(text, '\n'), text + size - 1);
    snprintf(wanted, sizeof wanted,
             "Z\",\"level\":\"warn\",\"area\":\"server\",\"pid\":%d,\"session\":12,"
             "\"peer\":\"a \\\"peer\\\"\",\"tenant\":\"t\",\"message\":\"x\\n\\\"y\\\\ "
             "\\u001b\\u007f \xef\xbf\xbd \xc3\xa4 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"}\n",
             (int)getpid());
    assert_memory_equal(text, "{\"time\":\"", 9);
    assert_non_null(strstr(text, wanted));
    free(text);
    /* However long, and whatever it takes: one whole line that a pipe takes in one piece. */
    static char much[9000];
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i + 3 < sizeof much; i += 3) {
            memcpy(much + i, kind == 0 ? "\x01\x01\x01" : kind == 1 ? "\xe2\x82\xac" : "abc", 4);
        }
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s", much);
        text = written(&size);
        assert_in_range(size, 3000, TOW_LOG_LINE_MAX);
        assert_ptr_equal(strchr(text, '\n'), text + size - 1);
        assert_string_equal(text + size - 3, "\"}\n");
        assert_null(strstr(text, "\xef\xbf\xbd"));
        free(text);
    }
    tow_log_set_format(TOW_LOG_PLAIN);
}

static void json_folds_and_counts_too(void **state)
{
    static _Atomic uint32_t lines;
    size_t size;
    bool counted = false;
    tow_log_fold();
    tow_log_set_format(TOW_LOG_JSON);
    tow_log_allow(&lines);
    for (int try = 0; try < 20 && !counted; try++) {
        lines = 200;
        for (int i = 0; i < 13; i++) {
            tow_log(TOW_AREA_SOFT, TOW_LOG_WARN, "the same");
        }
        tow_log_flush(true);
        char *text = written(&size);
        counted = strstr(text, "\"area\":\"soft\"") != NULL &&
                  strstr(text, "\"message\":\"the line above came 3 more times\"}\n") != NULL;
        free(text);
    }
    assert_true(counted);
    lines = 0;
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "not written");
    lines = 10;
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "written");
    tow_log_allow(NULL);
    char *text = written(&size);
    assert_non_null(strstr(text, "1 lines were left out here: too many at once\"}\n"));
    free(text);
    tow_log_set_format(TOW_LOG_PLAIN);
}

static void an_audit_cannot_be_silenced(void **state)
{
    static _Atomic uint32_t lines;
    static const struct tow_log_field fields[] = {
        {.name = "class", .text = "a\"b"}, {.name = "seconds", .number = 2.5}, {0}};
    static const struct tow_log_about about = {.session = 3, .tenant = "t", .fields = fields};
    size_t size;
    tow_log_configure("audit=info");
    tow_log_set_format(TOW_LOG_JSON);
    tow_log_allow(&lines);
    for (int i = 0; i < 50; i++) {
        tow_log_about(TOW_AREA_AUDIT, TOW_LOG_INFO, &about, "the same");
    }
    tow_log_allow(NULL);
    char *text = written(&size);
    unsigned found = 0;
    for (const char *at = text; (at = strstr(at, "\"area\":\"audit\"")) != NULL; at++) {
        found++;
    }
    assert_int_equal(found, 50);
    assert_non_null(strstr(text,
                           "\"session\":3,\"tenant\":\"t\",\"class\":\"a\\\"b\",\"seconds\":2.5,"
                           "\"message\":\"the same\"}\n"));
    free(text);
    tow_log_set_format(TOW_LOG_PLAIN);
    tow_log_configure("warn");
}

static void a_journal_is_recognised(void **state)
{
    struct stat stat;
    char stream[64];
    assert_false(tow_log_goes_to_journal());
    assert_int_equal(fstat(file, &stat), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)stat.st_dev,
             (unsigned long long)stat.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    assert_true(tow_log_goes_to_journal());
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)stat.st_dev,
             (unsigned long long)stat.st_ino + 1);
    setenv("JOURNAL_STREAM", stream, 1);
    assert_false(tow_log_goes_to_journal());
    unsetenv("JOURNAL_STREAM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(their_number_is_a_setting),
        cmocka_unit_test(stamps_are_rfc_3339),
        cmocka_unit_test(a_line_says_when_and_whose),
        cmocka_unit_test(json_has_one_object_a_line),
        cmocka_unit_test(a_journal_is_recognised),
        cmocka_unit_test(a_text_of_others_stays_within_its_line),
        cmocka_unit_test(a_flood_of_lines_is_cut),
        cmocka_unit_test(lines_are_shared_out),
        cmocka_unit_test(a_line_that_comes_again_is_counted),
        cmocka_unit_test(a_count_is_not_lost),
        cmocka_unit_test(json_folds_and_counts_too),
        cmocka_unit_test(an_audit_cannot_be_silenced),
    };
    unsetenv("TOWLINE_LOG");
    unsetenv("TOWLINE_LOG_FILE");
    unsetenv("TOWLINE_LOG_FORMAT");
    unsetenv("JOURNAL_STREAM");
    file = memfd_create("log", MFD_CLOEXEC);
    fcntl(file, F_SETFL, O_APPEND);
    tow_log_move(file);
    return file < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
