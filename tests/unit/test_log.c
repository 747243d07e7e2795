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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_of_others_stays_within_its_line),
        cmocka_unit_test(a_flood_of_lines_is_cut),
    };
    unsetenv("TOWLINE_LOG");
    unsetenv("TOWLINE_LOG_FILE");
    file = memfd_create("log", MFD_CLOEXEC);
    fcntl(file, F_SETFL, O_APPEND);
    tow_log_move(file);
    return file < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
