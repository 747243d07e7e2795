/* SPDX-License-Identifier: Apache-2.0 */
/* cuLogs*: failed calls are told to callbacks, kept, and dumped from where an iterator stands. */
#include "api.h"

#include <pthread.h>
#include <stdatomic.h>

static int told, nested;

static void on_log(void *user, CUlogLevel level, char *message, size_t length)
{
    TRUE(user == &told && level == CU_LOG_LEVEL_ERROR);
    TRUE(message != NULL && length > 0 && strlen(message) >= length);
    told++;
}

/* What fails in a callback is a call like any other, and does not call it again. */
static void fails_itself(void *user, CUlogLevel level, char *message, size_t length)
{
    (void)user, (void)level, (void)message, (void)length;
    nested++;
    if (nested < 10) {
        EQUAL(cuMemAlloc(NULL, 4), CUDA_ERROR_INVALID_VALUE);
    }
}

static void make_a_mistake(void)
{
    size_t size = 10;
    EQUAL(cuLogsDumpToMemory(NULL, NULL, &size, 0), CUDA_ERROR_INVALID_VALUE);
}

static void callbacks_are_told_until_they_are_unregistered(void)
{
    CUlogsCallbackHandle handle = NULL;
    EQUAL(cuLogsRegisterCallback(NULL, NULL, &handle), CUDA_ERROR_INVALID_VALUE);
    OK(cuLogsRegisterCallback(on_log, &told, &handle));
    TRUE(handle != NULL);
    make_a_mistake();
    TRUE(told > 0);
    int before = told;
    OK(cuCtxSynchronize()); /* what succeeds is not told */
    EQUAL(told, before);
    OK(cuLogsUnregisterCallback(handle));
    make_a_mistake();
    EQUAL(told, before);
}

static void a_callback_may_fail_itself(void)
{
    CUlogsCallbackHandle handle = NULL;
    if (!api_is_remote()) {
        return; /* whether NVIDIA's bears it is not written anywhere */
    }
    OK(cuLogsRegisterCallback(fails_itself, NULL, &handle));
    make_a_mistake();
    EQUAL(nested, 1);
    OK(cuLogsUnregisterCallback(handle));
    EQUAL(cuLogsUnregisterCallback(handle), CUDA_ERROR_INVALID_VALUE);
}

static void is_alive(void *user, CUlogLevel level, char *message, size_t length)
{
    (void)level, (void)message, (void)length;
    atomic_int *alive = user;
    if (atomic_load(alive) != 1) {
        api_fail(__FILE__, __LINE__, "a callback's data", atomic_load(alive), 1);
    }
}

static void *make_mistakes(void *user)
{
    while (!atomic_load((atomic_bool *)user)) {
        make_a_mistake();
    }
    return NULL;
}

/* Once it is unregistered nobody calls it any more. */
static void a_callback_has_ended_when_it_is_unregistered(void)
{
    enum { THREADS = 2 };
    pthread_t threads[THREADS];
    atomic_bool end = false;
    if (!api_is_remote()) {
        return; /* not promised anywhere */
    }
    for (int i = 0; i < THREADS; i++) {
        TRUE(pthread_create(&threads[i], NULL, make_mistakes, &end) == 0);
    }
    for (int i = 0; i < 3000; i++) {
        CUlogsCallbackHandle one = NULL, other = NULL;
        static atomic_int data[2];
        atomic_store(&data[0], 1);
        atomic_store(&data[1], 1);
        OK(cuLogsRegisterCallback(is_alive, &data[0], &one));
        OK(cuLogsRegisterCallback(is_alive, &data[1], &other));
        OK(cuLogsUnregisterCallback(one));
        atomic_store(&data[0], 0);
        OK(cuLogsUnregisterCallback(other));
        atomic_store(&data[1], 0);
    }
    atomic_store(&end, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void an_iterator_goes_on_where_it_was(void)
{
    CUlogIterator at = 0, same = 0;
    char text[4096] = "x", all[25600], tiny[8] = "y";
    size_t size = sizeof text;
    OK(cuLogsCurrent(&at, 0));
    OK(cuLogsCurrent(&at, 1)); /* flags are looked at in the dumps only */
    OK(cuLogsCurrent(&at, 0));
    OK(cuLogsDumpToMemory(&at, text, &size, 0));
    EQUAL(size, 0); /* nothing yet */
    make_a_mistake();
    same = at;
    size = sizeof text;
    OK(cuLogsDumpToMemory(&at, text, &size, 0));
    TRUE(size > 0 && size == strlen(text) && text[size - 1] == '\n');
    TRUE(strstr(text, "[CUDA][E]") != NULL && strstr(text, "cuLogsDumpToMemory") != NULL);
    size = sizeof text;
    OK(cuLogsDumpToMemory(&at, text, &size, 0));
    EQUAL(size, 0); /* it has been read */
    size = sizeof tiny;
    EQUAL(cuLogsDumpToMemory(&same, tiny, &size, 0), CUDA_ERROR_INVALID_VALUE);
    EQUAL(size, 0); /* no room for a line */
    size = sizeof all;
    OK(cuLogsDumpToMemory(NULL, all, &size, 0));
    TRUE(size > 0 && strstr(all, "cuLogsDumpToMemory") != NULL);
}

static void many_lines_leave_the_newest(void)
{
    char text[600];
    size_t size = sizeof text;
    CUlogIterator at = 0;
    if (!api_is_remote()) {
        return; /* how NVIDIA's says it is its own affair */
    }
    for (int i = 0; i < 1000; i++) {
        make_a_mistake();
    }
    EQUAL(cuMemAlloc(NULL, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuLogsDumpToMemory(&at, text, &size, 0));
    TRUE(size > 300 && size < sizeof text && strstr(text, "left out") != NULL);
    TRUE(strstr(text, "[CUDA][E][cuMemAlloc_v2] ") != NULL);
    TRUE(strstr(text, "(CUDA_ERROR_INVALID_VALUE)\n") != NULL);
}

static void a_file_gets_them(void)
{
    char path[] = "/tmp/towline-logs-XXXXXX", line[256] = "";
    int fd = mkstemp(path);
    make_a_mistake();
    OK(cuLogsDumpToFile(NULL, path, 0));
    FILE *file = fdopen(fd, "r");
    TRUE(file != NULL && fgets(line, sizeof line, file) != NULL && line[0] == '[');
    EQUAL(cuLogsDumpToFile(NULL, "/nowhere/at/all", 0), CUDA_ERROR_INVALID_VALUE);
    fclose(file);
    unlink(path);
}

/* As with CUDA_LOG_FILE=PATH in the shell. */
static void the_file_of_the_environment_gets_them(const char *path)
{
    char line[256] = "";
    if (!api_is_remote()) {
        return; /* it may have read the environment before main */
    }
    FILE *file = fopen(path, "r");
    TRUE(file != NULL);
    TRUE(file != NULL && fgets(line, sizeof line, file) != NULL);
    TRUE(strstr(line, "[CUDA][E][cuLogsRegisterCallback] ") != NULL);
    if (file != NULL) {
        fclose(file);
    }
}

int main(void)
{
    struct api api;
    char path[] = "/tmp/towline-log-file-XXXXXX";
    close(mkstemp(path));
    setenv("CUDA_LOG_FILE", path, 1);
    api_begin(&api);
    callbacks_are_told_until_they_are_unregistered();
    a_callback_may_fail_itself();
    a_callback_has_ended_when_it_is_unregistered();
    an_iterator_goes_on_where_it_was();
    many_lines_leave_the_newest();
    a_file_gets_them();
    the_file_of_the_environment_gets_them(path);
    unlink(path);
    return api_end(&api);
}
