/* SPDX-License-Identifier: Apache-2.0 */
/* `towline status`: a server, its workers and its sessions. */
#include "cli/cli.h"

#include <stdio.h>

#include "wire/report.h"

/* "3.1 MiB of 64.0 MiB", or "3 of 512": what is used of a limit. */
static const char *status_use(const struct tow_json_doc *doc, const struct tow_json_value *limits,
                              const char *name, bool bytes, char ret_text[48])
{
    const struct tow_json_value *limit = tow_json_member(doc, limits, name);
    if (limit == NULL) { /* an older server */
        return "-";
    }
    double used = tow_json_number(doc, limit, "used"), most = tow_json_number(doc, limit, "limit");
    char left[16], right[16];
    if (bytes) {
        tow_cli_bytes(used, left);
        tow_cli_bytes(most, right);
    } else {
        snprintf(left, sizeof left, "%.0f", used);
        snprintf(right, sizeof right, "%.0f", most);
    }
    snprintf(ret_text, 48, "%s of %s", left, right);
    return ret_text;
}

/* "-": there is none, or an older server does not say it. */
static const char *status_word(const struct tow_json_doc *doc, const struct tow_json_value *session,
                               const char *name)
{
    const char *text = tow_json_text(doc, session, name);
    return text[0] != '\0' ? text : "-";
}

/* What is used of each GPU. */
static void status_gpus(const struct tow_json_doc *doc, unsigned first_gpu)
{
    struct tow_report_gpu gpu;
    for (unsigned i = 0; tow_report_gpu(doc, i, &gpu); i++) {
        char used[16], memory[16], busy[24] = "";
        if (gpu.busy >= 0) {
            snprintf(busy, sizeof busy, ", %d %% busy", gpu.busy);
        }
        printf("GPU %u, %s: %s of %s in use%s\n", first_gpu + i, gpu.name,
               tow_cli_bytes(gpu.used, used), tow_cli_bytes(gpu.memory, memory), busy);
    }
}

/* Who waits in line, and for what. */
static void status_line(const struct tow_json_doc *doc)
{
    const struct tow_json_value *line = tow_json_member(doc, doc->values, "line"), *one = NULL;
    bool head = false;
    while ((one = tow_json_next(doc, line, one)) != NULL) {
        char memory[16] = "-", age[16];
        if (!head) {
            printf("\n%s%8s  %-20s %-10s %-8s %10s %9s %8s  %s%s\n",
                   tow_cli_colour(stdout, TOW_BOLD), "IN LINE", "TENANT", "CLASS", "PRIORITY",
                   "MEMORY", "EXCLUSIVE", "WAITED", "WAITS FOR", tow_cli_colour(stdout, TOW_PLAIN));
            head = true;
        }
        double bytes = tow_json_number(doc, one, "gpu-memory");
        printf("%8.0f  %-20.48s %-10.32s %-8.8s %10s %9s %8s  %s\n",
               tow_json_number(doc, one, "place"), status_word(doc, one, "tenant"),
               status_word(doc, one, "class"), tow_json_text(doc, one, "priority"),
               bytes > 0 ? tow_cli_bytes(bytes, memory) : memory,
               tow_json_number(doc, one, "exclusive") != 0 ? "yes" : "no",
               tow_cli_age(tow_json_number(doc, one, "waited_s"), age),
               tow_json_text(doc, one, "for"));
    }
}

static void status_show(const char *address, const struct tow_json_doc *doc, unsigned first_gpu)
{
    const struct tow_json_value *root = doc->values;
    const struct tow_json_value *workers = tow_json_member(doc, root, "workers");
    const struct tow_json_value *sessions = tow_json_member(doc, root, "sessions");
    const char *failure = tow_json_text(doc, root, "failure");
    char age[16];
    printf("%s%s%s: towlined %s, up %s, %s (%s)\n", tow_cli_colour(stdout, TOW_BOLD), address,
           tow_cli_colour(stdout, TOW_PLAIN), tow_json_text(doc, root, "version"),
           tow_cli_age(tow_json_number(doc, root, "uptime_s"), age),
           tow_json_text(doc, root, "description"), tow_json_text(doc, root, "backend"));
    if (failure[0] != '\0') {
        printf("its workers do not start: %s\n", failure);
    }
    printf("%.0f of at most %.0f sessions, %.0f waiting; %.0f idle workers\n",
           tow_json_number(doc, workers, "busy"), tow_json_number(doc, root, "max_sessions"),
           tow_json_number(doc, root, "waiting"), tow_json_number(doc, workers, "idle"));
    const struct tow_json_value *limits = tow_json_member(doc, root, "limits");
    char use[48], own[48], threads[48];
    if (limits != NULL) {
        printf("host memory: %s; yours: %s; threads: %s\n",
               status_use(doc, limits, "memory", true, use),
               status_use(doc, limits, "memory-per-peer", true, own),
               status_use(doc, limits, "threads", false, threads));
        printf("sessions of yours: %s", status_use(doc, limits, "sessions-per-peer", false, own));
        printf("; code cache: %s", status_use(doc, limits, "code-cache", true, use));
        if (tow_json_member(doc, limits, "code-cache-per-peer") != NULL) {
            printf("; yours: %s", status_use(doc, limits, "code-cache-per-peer", true, own));
        }
        putchar('\n');
        if (tow_json_number(doc, tow_json_member(doc, limits, "gpu-memory"), "limit") != 0) {
            printf("GPU memory of a session of yours: %s\n",
                   status_use(doc, limits, "gpu-memory", true, use));
        }
    }
    status_gpus(doc, first_gpu);
    if (tow_json_number(doc, root, "draining") != 0) {
        printf("it is being drained: it serves no new programs and ends with its last session\n");
    }
    const struct tow_json_value *session = NULL;
    bool head = false;
    while ((session = tow_json_next(doc, sessions, session)) != NULL) {
        if (!head) {
            printf("\n%s%8s  %-20s %8s  %-20s %-10s %-24s %4s %10s %10s %10s %10s %8s %12s  %s%s\n",
                   tow_cli_colour(stdout, TOW_BOLD), "SESSION", "CLIENT", "PID", "TENANT", "CLASS",
                   "FROM", "GPU", "MEMORY", "CALLS", "IN", "OUT", "AGE", "THREADS", "HOST MEMORY",
                   tow_cli_colour(stdout, TOW_PLAIN));
            head = true;
        }
        char memory[16], in[16], out[16], gpu[16] = "-";
        limits = tow_json_member(doc, session, "limits");
        int64_t device = tow_json_whole(tow_json_member(doc, session, "gpu"));
        if (device >= 0) {
            snprintf(gpu, sizeof gpu, "%lld", (long long)first_gpu + device);
        }
        printf("%8.0f  %-20.40s %8.0f  %-20.48s %-10.32s %-24.40s %4s %10s %10.0f %10s %10s %8s "
               "%12s  %s\n",
               tow_json_number(doc, session, "id"), tow_json_text(doc, session, "client"),
               tow_json_number(doc, session, "client_pid"), status_word(doc, session, "tenant"),
               status_word(doc, session, "class"), tow_json_text(doc, session, "peer"), gpu,
               tow_cli_bytes(tow_json_number(doc, session, "memory"), memory),
               tow_json_number(doc, session, "calls"),
               tow_cli_bytes(tow_json_number(doc, session, "bytes_in"), in),
               tow_cli_bytes(tow_json_number(doc, session, "bytes_out"), out),
               tow_cli_age(tow_json_number(doc, session, "age_s"), age),
               status_use(doc, limits, "session-threads", false, threads),
               status_use(doc, limits, "session-memory", true, use));
        if (tow_json_member(doc, session, "suspended_s") != NULL) {
            printf("%8s  suspended for %s: %s; %s are kept for it\n", "",
                   tow_cli_age(tow_json_number(doc, session, "suspended_s"), age),
                   tow_json_text(doc, session, "suspended_by"),
                   tow_cli_bytes(tow_json_number(doc, session, "saved"), memory));
        }
        if (tow_json_member(doc, session, "detached_s") != NULL) {
            printf("%8s  detached for %s: its connection was cut, and its program may come "
                   "again\n",
                   "", tow_cli_age(tow_json_number(doc, session, "detached_s"), age));
        }
    }
    status_line(doc);
    const struct tow_json_value *others = tow_json_member(doc, root, "others");
    if (others != NULL) {
        printf("\n%.0f sessions of others are not shown: the server's own user, root and its "
               "admin-users, on its machine and through its unix socket, see all\n",
               tow_json_number(doc, others, "sessions"));
    }
}

static int status_main(int argc, char **argv)
{
    return tow_ask_main(&tow_command_status, argc, argv, status_show);
}

const struct tow_command tow_command_status = {
    .name = "status",
    .summary = "show what a server is doing, and for whom",
    .help =
        "towline status [-s ADDRESS] [--json] [--watch]: shows what a server is doing, and for "
        "whom.\n"
        "\n"
        "  towline status -s tcp://gpuhost:4837\n"
        "\n"
        "What is used of each GPU, and one line per session: the client's program, its process "
        "number there, whose it is, the class of its token, where "
        "it runs, the\n"
        "GPU it uses, the GPU memory it holds, its calls, the bytes that came in and went out, "
        "its age, and of\n"
        "the server's own threads and memory what it uses beside the most that it may. --json "
        "prints\n"
        "everything, as one array with an element per server. --watch shows it anew every 2 s; "
        "towline top is\n"
        "for the whole screen.\n"
        "You see your own sessions: those of your user on a unix socket, of your token's user, "
        "or of your\n"
        "machine's address on a network. Root, the user who runs the server and its admin-users "
        "see all,\n"
        "through a unix socket.\n"
        "Without -s: TOWLINE_SERVER, then the config file, then this machine's own socket.\n",
    .flags = tow_ask_flags,
    .run = status_main,
};
