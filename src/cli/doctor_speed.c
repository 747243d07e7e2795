/* SPDX-License-Identifier: Apache-2.0 */
/* `towline doctor`: runs a trial program (towline-measure) as any program would be run, reads what
 * it measured, and what the client's log says of the way that was taken. */
#include "cli/doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json_read.h"

enum { TRIAL_S = 120 };

/* From here on a launch and its end take long enough that people ask. */
#define FAR_US 2000

static void speed_prepare(const void *user)
{
    (void)user;
    setenv("TOWLINE_LOG", "warn,client=info", 1);
    unsetenv("TOWLINE_LOG_FORMAT");
    unsetenv("TOWLINE_LOG_FILE");
    unsetenv("TOWLINE_TRACE");
    unsetenv("TOWLINE_STATS");
}

static void speed_take_figure(struct tow_doctor *doctor, const char *line, size_t length)
{
    struct tow_json_doc doc;
    if (tow_json_doc_parse(line, length, &doc) < 0) {
        return;
    }
    const char *name = tow_json_text(&doc, doc.values, "name");
    double value = tow_json_number(&doc, doc.values, "value");
    if (strcmp(name, "trial_launch") == 0) {
        doctor->figures.launch_us = value;
    } else if (strcmp(name, "trial_up") == 0) {
        doctor->figures.up_gb = value;
    } else if (strcmp(name, "trial_down") == 0) {
        doctor->figures.down_gb = value;
    }
    tow_json_doc_fini(&doc);
}

/* Lines of the client's log: "... connected to unix:///run/towline.sock over shm". */
static void speed_take_way(struct tow_doctor *doctor, const char *line, const char *reason)
{
    static const char over[] = " over ";
    const char *address = strstr(line, "connected to unix://");
    const char *kind = address != NULL ? strstr(address, over) : NULL;
    if (kind == NULL) {
        return;
    }
    kind += strlen(over);
    const char *wish = getenv("TOWLINE_TRANSPORT");
    if (strncmp(kind, "shm", 3) == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "way", "the way is shared memory, the fastest");
    } else if (wish != NULL && strcmp(wish, "unix") == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "way",
                       "the way is the socket, since TOWLINE_TRANSPORT=unix forbids shared "
                       "memory, which is faster");
        tow_doctor_mend(doctor, "unset TOWLINE_TRANSPORT");
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "way",
                       "the way is the socket, since the server gives no shared memory: %s",
                       reason[0] != '\0' ? reason : "it does not say why");
        tow_doctor_mend(doctor, "TOWLINE_TRANSPORT=shm towline run -- PROGRAM shows the error");
    }
}

/* The last line that a person can read: what the trial program, or its client, complained of. */
static void speed_say_failure(struct tow_doctor *doctor, int status, const char *last)
{
    if (status == -ETIMEDOUT) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "trial", "a trial program did not end within %d s",
                       TRIAL_S);
    } else if (status >= 0 && WIFSIGNALED(status)) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "trial",
                       "a trial program was ended by signal %d: %s", WTERMSIG(status), last);
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "trial", "a trial program failed: %s", last);
    }
    tow_doctor_mend(doctor, "TOWLINE_LOG=info towline run -- PROGRAM shows more, and so does the "
                            "server's log");
}

static void speed_judge(struct tow_doctor *doctor)
{
    const struct tow_doctor_figures *figures = &doctor->figures;
    tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "trial",
                   "a trial program ran: a launch and its end take %.3g us, copies of 16 MiB go at "
                   "%.3g GB/s there and %.3g GB/s back",
                   figures->launch_us, figures->up_gb, figures->down_gb);
    if (figures->launch_us > FAR_US) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "far",
                       "the server is far: what waits for the GPU often is slow");
        tow_doctor_mend(doctor, "towline bench shows what it costs; a server in the same room "
                                "needs 100 us");
    }
}

void tow_doctor_speed(struct tow_doctor *doctor)
{
    char measure[PATH_MAX + 64], self[PATH_MAX + 16], last[512] = "it said nothing";
    char reason[512] = "";
    if (!doctor->served || !doctor->installed) {
        return;
    }
    tow_doctor_group(doctor, "A trial");
    snprintf(self, sizeof self, "%s/towline", doctor->bin_dir);
    snprintf(measure, sizeof measure, "%s/towline-measure", doctor->lib_dir);
    if (access(measure, X_OK) != 0) {
        snprintf(measure, sizeof measure, "%s/../bench/towline-measure", doctor->bin_dir);
    }
    const char *args[] = {self, "run",   "-q",      "--no-check",  "-s",       doctor->servers,
                          "--", measure, "--quick", "--max-bytes", "16777216", "trial",
                          NULL};
    struct tow_buf said;
    int status = tow_doctor_run(args, speed_prepare, NULL, TRIAL_S, &said);
    char *rest = status >= 0 ? (char *)said.data : NULL, *line;
    while (rest != NULL && (line = strsep(&rest, "\n")) != NULL) {
        static const char refused[] = "the socket is used instead: ";
        const char *because = strstr(line, refused);
        if (line[0] == '{') {
            speed_take_figure(doctor, line, strlen(line));
        } else if (because != NULL) {
            snprintf(reason, sizeof reason, "%s", because + strlen(refused));
        } else if (strstr(line, "connected to ") != NULL) {
            speed_take_way(doctor, line, reason);
        } else if (line[0] != '\0') {
            snprintf(last, sizeof last, "%s", line);
        }
    }
    bool ran = status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ran && doctor->figures.launch_us > 0) {
        speed_judge(doctor);
    } else {
        speed_say_failure(doctor, status, last);
    }
    tow_buf_fini(&said);
}
