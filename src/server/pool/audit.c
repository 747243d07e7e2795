/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the last line of a session, in the area `audit`. */
#include "server/pool/audit.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_line.h"
#include "server/pool/worker_pool.h"
#include "server/worker/worker_msg.h"

/* What the listener has decided comes before what the process says. */
void tows_audit_end(const struct tows_worker *worker, int status, char *ret_text, size_t size)
{
    if (worker->why[0] != '\0') {
        snprintf(ret_text, size, "the server ended it: %s", worker->why);
    } else if (status == TOW_AUDIT_STAYS) {
        snprintf(ret_text, size, "its worker does not end");
    } else if (status == TOW_AUDIT_UNKNOWN) {
        snprintf(ret_text, size, "its worker, of the server before this one, has ended");
    } else if (WIFSIGNALED(status)) {
        snprintf(ret_text, size, "its worker was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        static const char *const texts[] = {
            [TOW_WORKER_END_LEFT] = "its program left",
            [TOW_WORKER_END_LOST] = "its program's connection ended",
            [TOW_WORKER_END_BROKE] = "its program broke the protocol",
            [TOW_WORKER_END_TOLD] = "its worker ended it, and its lines say why",
        };
        unsigned code = (unsigned)WEXITSTATUS(status);
        const char *text = code < sizeof texts / sizeof *texts ? texts[code] : NULL;
        snprintf(ret_text, size, "%s", text != NULL ? text : "its worker failed");
    }
}

void tows_audit_tell(const struct tows_worker *worker, int status)
{
    char tenant[TOW_WHO_TEXT_MAX], began[TOW_LOG_STAMP_MAX], end[TOW_AUDIT_END_MAX];
    const char *class = worker->who.class[0] != '\0' ? worker->who.class : "-";
    char user[TOW_WHO_TEXT_MAX], called[TOW_WHO_TEXT_MAX + 4] = "";
    double seconds = (double)(tow_time_now_ns() - worker->since_ns) / (double)TOW_TIME_S;
    const struct tows_session_stats *stats = worker->stats;
    char program[sizeof stats->client + 1] = "";
    uint64_t calls = stats->calls;
    /* Written by the worker at any moment: copied once and ended by ourselves. */
    if (stats->started_ns != 0) {
        memcpy(program, stats->client, sizeof stats->client);
    }
    tow_log_stamp(worker->began_ns, began);
    tows_audit_end(worker, status, end, sizeof end);
    tows_who_name(&worker->who, user);
    if (worker->who.kind == TOW_WHO_USER && user[0] != '\0') {
        snprintf(called, sizeof called, " (%s)", user);
    }
    const struct tow_log_field fields[] = {
        {.name = "user", .text = user},
        {.name = "class", .text = worker->who.class},
        {.name = "began", .text = began},
        {.name = "seconds", .number = seconds},
        {.name = "program", .text = program},
        {.name = "calls", .is_whole = true, .whole = calls},
        {.name = "bytes_in", .is_whole = true, .whole = stats->bytes_in},
        {.name = "bytes_out", .is_whole = true, .whole = stats->bytes_out},
        {.name = "gpu_memory", .is_whole = true, .whole = stats->memory_most},
        {.name = "host_memory", .is_whole = true, .whole = worker->usage.most},
        {.name = "ended", .text = end},
        {0},
    };
    struct tow_log_about about = tows_worker_about(worker, tenant);
    about.fields = fields;
    tow_log_about(
        TOW_AREA_AUDIT, TOW_LOG_INFO, &about,
        "session %llu of %s%s, class %s, from %s, began %s, lasted %.1f s, %llu calls: %s",
        (unsigned long long)worker->session, about.tenant, called, class, worker->peer, began,
        seconds, (unsigned long long)calls, end);
}
