/* SPDX-License-Identifier: Apache-2.0 */
/* The last failed calls, without a lock: a failing call may come from any thread, from within a
 * callback, and from a child after a fork. A line is made of its entry when somebody wants to read
 * it.
 *
 * The lines here say which call of the program failed, and how. Why, the server knows, where it
 * does: that goes to CUDA_LOG_FILE only, since a callback may not be called while a reply is
 * awaited. */
#include "client/edge/logs.h"

#include "base/clock.h"
#include "base/thread.h"
#include "client/session/state.h"
#include "gen/core_client.h"
#include "gen/functions.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ENTRIES = 128, /* as many lines as 25,600 bytes hold, which is what NVIDIA's keeps */
    CALLBACKS = 64,
    LINE_MAX_SIZE = 256,
    TEXT_LINE_MAX = 1024,
};

static const char cut[] = "[earlier lines were left out: too many, or no room for them]\n";

struct entry {
    _Atomic uint32_t number; /* of the line, from 1; 0 while it is being written */
    _Atomic uint32_t thread, fn, result;
    _Atomic int64_t time_ms; /* since 1970 */
};

struct CUlogsCallbackEntry_st {
    _Atomic(CUlogsCallback) function; /* NULL: nobody is to be told */
    void *_Atomic user;
    atomic_bool taken;
    atomic_uint callers; /* that may be calling it */
};

/* Process-wide: cuLogs* have one log, and name no context. */
static struct entry entries[ENTRIES];
static _Atomic uint32_t last; /* number of the newest line */
static struct CUlogsCallbackEntry_st callbacks[CALLBACKS];
static atomic_uint registered;     /* of them */
static _Thread_local bool telling; /* a callback runs: what fails in it is not told again */
static _Atomic long east_s;        /* of Greenwich, as it was when CUDA was initialised */

/* What is no mistake: an answer, or a question whether something exists. */
static bool is_answer(unsigned fn, CUresult result)
{
    return result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_NOT_INITIALIZED ||
           result == CUDA_ERROR_DEINITIALIZED || fn == TOW_FN_cuGetProcAddress ||
           fn == TOW_FN_cuGetProcAddress_v2 || fn == TOW_FN_cuGetExportTable;
}

void towc_logs_begin(void)
{
    time_t now = time(NULL);
    struct tm local = {0};
    if (localtime_r(&now, &local) != NULL) {
        atomic_store(&east_s, local.tm_gmtoff);
    }
}

/* Returns the length of what was written. */
static size_t say_what(char *text, size_t size, unsigned fn, CUresult result)
{
    const char *name = NULL, *words = NULL;
    const struct tow_fn_info *info = tow_fn_info(fn);
    towc_cuGetErrorName(result, &name);
    towc_cuGetErrorString(result, &words);
    int length = snprintf(text, size, "[%s] %s (%s)", info != NULL ? info->name : "?",
                          words != NULL ? words : "an error without a name",
                          name != NULL ? name : "unknown");
    return length < 0 ? 0 : (size_t)length < size ? (size_t)length : size - 1;
}

/* How a line begins. Without the C library's clock, whose lock another thread may have held when
 * this process was forked. */
static size_t write_head(char *line, size_t size, int64_t time_ms, uint32_t thread, char level)
{
    int64_t day_ms = (time_ms + atomic_load(&east_s) * 1000) % (24 * 3600 * 1000);
    return (size_t)snprintf(line, size, "[%02d:%02d:%02d.%03d][%u][CUDA][%c]",
                            (int)(day_ms / 3600000), (int)(day_ms / 60000 % 60),
                            (int)(day_ms / 1000 % 60), (int)(day_ms % 1000), thread, level);
}

/* A line, with its end. */
static size_t write_line(char line[LINE_MAX_SIZE], int64_t time_ms, uint32_t thread, unsigned fn,
                         CUresult result)
{
    size_t head = write_head(line, LINE_MAX_SIZE, time_ms, thread, 'E');
    size_t length = head + say_what(line + head, LINE_MAX_SIZE - head - 1, fn, result);
    line[length++] = '\n';
    line[length] = '\0';
    return length;
}

/* The line of an entry; 0 if there is none of this number (any more). */
static size_t line_of(uint32_t number, char line[LINE_MAX_SIZE])
{
    struct entry *entry = &entries[number % ENTRIES];
    if (atomic_load(&entry->number) != number) {
        return 0;
    }
    uint32_t thread = atomic_load(&entry->thread), fn = atomic_load(&entry->fn);
    CUresult result = (CUresult)atomic_load(&entry->result);
    int64_t time_ms = atomic_load(&entry->time_ms);
    return atomic_load(&entry->number) == number ? write_line(line, time_ms, thread, fn, result)
                                                 : 0;
}

/* Where CUDA_LOG_FILE says; -1 if nowhere. Opened with the first line. */
static int log_file(void)
{
    enum { UNTRIED = INT_MIN };
    /* Process-wide: CUDA_LOG_FILE is the environment's. */
    static _Atomic int known = UNTRIED;
    int fd = atomic_load(&known);
    if (fd != UNTRIED) {
        return fd;
    }
    const char *path = secure_getenv("CUDA_LOG_FILE");
    fd = path == NULL || path[0] == '\0' ? -1
         : strcmp(path, "stdout") == 0   ? STDOUT_FILENO
         : strcmp(path, "stderr") == 0
             ? STDERR_FILENO
             : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int untried = UNTRIED;
    if (!atomic_compare_exchange_strong(&known, &untried, fd)) {
        if (fd > STDERR_FILENO) {
            close(fd);
        }
        return untried;
    }
    return fd;
}

void towc_logs_text(const char *text)
{
    int fd = log_file();
    if (fd >= 0) {
        char line[TEXT_LINE_MAX];
        size_t length = write_head(line, sizeof line, tow_time_real_ns() / TOW_TIME_MS,
                                   (uint32_t)tow_thread_id(), 'W');
        snprintf(line + length, sizeof line - length - 1, " %s", text);
        length = strlen(line);
        line[length++] = '\n';
        ssize_t written = write(fd, line, length);
        (void)written;
    }
}

/* Who unregisters one waits until nobody calls it: what it was given may go then. */
static void logs_tell(unsigned fn, CUresult result)
{
    char text[LINE_MAX_SIZE];
    size_t size = say_what(text, sizeof text, fn, result);
    telling = true;
    for (unsigned i = 0; i < CALLBACKS; i++) {
        struct CUlogsCallbackEntry_st *callback = &callbacks[i];
        atomic_fetch_add(&callback->callers, 1);
        CUlogsCallback function = atomic_load(&callback->function);
        if (function != NULL) {
            function(atomic_load(&callback->user), CU_LOG_LEVEL_ERROR, text, size);
        }
        atomic_fetch_sub(&callback->callers, 1);
    }
    telling = false;
}

CUresult towc_logs_failed(unsigned fn, CUresult result)
{
    if (is_answer(fn, result)) {
        return result;
    }
    int64_t time_ms = tow_time_real_ns() / TOW_TIME_MS;
    uint32_t thread = (uint32_t)tow_thread_id(), number = atomic_fetch_add(&last, 1) + 1;
    struct entry *entry = &entries[number % ENTRIES];
    atomic_store(&entry->number, 0);
    atomic_store(&entry->thread, thread);
    atomic_store(&entry->fn, fn);
    atomic_store(&entry->result, (uint32_t)result);
    atomic_store(&entry->time_ms, time_ms);
    atomic_store(&entry->number, number);

    int fd = log_file();
    if (fd >= 0) {
        char line[LINE_MAX_SIZE];
        ssize_t written = write(fd, line, write_line(line, time_ms, thread, fn, result));
        (void)written;
    }
    if (atomic_load(&registered) > 0 && !telling) {
        logs_tell(fn, result);
    }
    return result;
}

CUresult towc_cuLogsRegisterCallback(CUlogsCallback callbackFunc, void *userData,
                                     CUlogsCallbackHandle *callback_out)
{
    if (callbackFunc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < CALLBACKS; i++) {
        if (!atomic_exchange(&callbacks[i].taken, true)) {
            atomic_store(&callbacks[i].user, userData);
            atomic_store(&callbacks[i].function, callbackFunc);
            atomic_fetch_add(&registered, 1);
            if (callback_out != NULL) {
                *callback_out = &callbacks[i];
            }
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult towc_cuLogsUnregisterCallback(CUlogsCallbackHandle callback)
{
    for (unsigned i = 0; i < CALLBACKS; i++) {
        if (callback == &callbacks[i] && atomic_exchange(&callbacks[i].function, NULL) != NULL) {
            atomic_fetch_sub(&registered, 1);
            /* Not from within one; nor in a forked child, where the callers are not. */
            while (!telling && towc_client_state() == CUDA_SUCCESS &&
                   atomic_load(&callbacks[i].callers) > 0) {
                sched_yield();
            }
            atomic_store(&callbacks[i].taken, telling); /* from within one: its place stays taken */
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult towc_cuLogsCurrent(CUlogIterator *iterator_out, unsigned int flags)
{
    (void)flags; /* NVIDIA's driver looks at them in the dumps only */
    if (iterator_out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *iterator_out = atomic_load(&last) + 1;
    return CUDA_SUCCESS;
}

/* The lines from `first` (0: all) to `*ret_end`, where the next one will be; *ret_cut if some of
 * them are gone. To be freed; NULL without memory. */
static char *lines_from(uint32_t first, uint32_t *ret_end, bool *ret_cut)
{
    uint32_t end = atomic_load(&last) + 1, held = end - 1 < ENTRIES ? end - 1 : ENTRIES;
    uint32_t oldest = end - held;
    *ret_cut = first == 0 ? oldest > 1 : end - first > held;
    *ret_end = end;
    char *text = malloc((size_t)held * LINE_MAX_SIZE + 1);
    size_t length = 0;
    for (uint32_t n = first == 0 || *ret_cut ? oldest : first; text != NULL && n != end; n++) {
        length += line_of(n, text + length);
    }
    if (text != NULL) {
        text[length] = '\0';
    }
    return text;
}

CUresult towc_cuLogsDumpToFile(CUlogIterator *iterator, const char *pathToFile, unsigned int flags)
{
    if (pathToFile == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    FILE *file = fopen(pathToFile, "we");
    if (file == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t end;
    bool gone;
    char *text = lines_from(iterator != NULL ? *iterator : 0, &end, &gone);
    bool good = text != NULL && fprintf(file, "%s%s", gone ? cut : "", text) >= 0;
    good = fclose(file) == 0 && good;
    free(text);
    if (good && iterator != NULL) {
        *iterator = end;
    }
    return good ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult towc_cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size,
                                 unsigned int flags)
{
    if (buffer == NULL || size == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t end;
    bool gone;
    char *text = lines_from(iterator != NULL ? *iterator : 0, &end, &gone);
    if (text == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* The newest lines that fit, behind one that says so. */
    const char *from = text;
    size_t room = *size, head = gone ? strlen(cut) : 0;
    while (*from != '\0' && head + strlen(from) + 1 > room) {
        from = strchr(from, '\n') + 1;
        head = strlen(cut);
    }
    bool some = *from != '\0', none_at_all = *text == '\0';
    *size = 0;
    if (some) {
        *size = (size_t)snprintf(buffer, room, "%s%s", head > 0 ? cut : "", from);
    } else if (room > 0) {
        buffer[0] = '\0';
    }
    free(text);
    if (!some && !none_at_all) {
        return CUDA_ERROR_INVALID_VALUE; /* no room for any of them: they stay */
    }
    if (iterator != NULL) {
        *iterator = end;
    }
    return CUDA_SUCCESS;
}
