/* What a driver prints to stdout, by stdio or by the descriptor, reaches the session's print
 * function. Without cmocka, which prints to stdout itself. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/output.h"

static char got[256];
static atomic_size_t got_size;

static void take(void *user, const char *text, size_t length)
{
    size_t at = atomic_load(&got_size);
    if (user == got && at + length < sizeof got) {
        memcpy(got + at, text, length);
        atomic_store(&got_size, at + length);
    }
}

static int expect(const char *wanted, const char *what)
{
    if (atomic_load(&got_size) == strlen(wanted) && memcmp(got, wanted, strlen(wanted)) == 0) {
        return 0;
    }
    fprintf(stderr, "%s: got \"%.*s\", wanted \"%s\"\n", what, (int)got_size, got, wanted);
    return 1;
}

int main(void)
{
    struct tow_backend backend = {.name = "cuda"};
    int failures = 0;
    if (tow_output_capture(&backend) < 0 || backend.print == NULL) {
        fprintf(stderr, "no capture\n");
        return 1;
    }
    printf("nobody listens yet\n");
    *backend.print_user = got;
    *backend.print = take;
    printf("one %d\n", 1);
    failures += expect("one 1\n", "stdio arrives at once");
    if (write(STDOUT_FILENO, "two\n", 4) != 4) {
        failures++;
    }
    for (int i = 0; i < 200 && atomic_load(&got_size) < 10; i++) {
        tow_time_sleep(10 * TOW_TIME_MS);
    }
    failures += expect("one 1\ntwo\n", "the descriptor arrives soon");
    struct tow_backend printing = {.print = backend.print};
    if (tow_output_capture(&printing) != 0 || printing.print_user != NULL) {
        fprintf(stderr, "a backend that prints by itself was touched\n");
        failures++;
    }
    return failures;
}
