/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, and how flags, files and defaults fill it. */
#include "server/config/config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/size.h"
#include "transport/lanes.h"

enum kind {
    KIND_TEXT,
    KIND_LIST,
    KIND_WORDS, /* a list in one text; what stands several times is put together */
    KIND_COUNT,
    KIND_WEIGHT,   /* at least 1 */
    KIND_PATIENCE, /* seconds: 0 for ever, else PATIENCE_MIN and more */
    KIND_SIZE,
    KIND_MODE,
    KIND_CAPABILITY,
    KIND_YES,   /* 0 or 1; a flag without a value is 1 */
    KIND_TIME,  /* seconds, or with s, m, h or d */
    KIND_WORD,  /* one of the words of `value`: its place there */
    KIND_RANGE, /* FIRST:COUNT; 0: none */
    KIND_SWITCH
};

#define PATIENCE_MIN 5
#define USERS_MIN 10000 /* more than there can be sessions */

enum {
    FOR_WORKER = 1, /* handed on to workers */
    FLAG_ONLY = 2,  /* not in the config file */
    NOT_SHOWN = 4,  /* not in --help */
};

struct option_entry {
    const char *name;
    char letter; /* 0: none */
    enum kind kind;
    unsigned use;
    size_t at; /* offset in struct tows_config */
    uint64_t max;
    const char *value; /* word for the value in --help */
    const char *help;
};

#define AT(field) offsetof(struct tows_config, field)

static const struct option_entry entries[] = {
    {"listen", 'l', KIND_LIST, 0, AT(listen), 0, "ADDRESS",
     "Where to listen; may be given several times: unix:///PATH (or /PATH), tcp://HOST:PORT\n"
     "(or HOST:PORT; tcp://0.0.0.0:4837 is every network this machine is on, and needs\n"
     "--allow-anyone or --require-token), tls://HOST:PORT (encrypted). Without it: the default\n"
     "socket and tcp://127.0.0.1:4837."},
    {"device", 0, KIND_TEXT, FOR_WORKER, AT(device), 0, "cuda|soft|dry|PATH",
     "cuda: the machine's own driver. soft: the software GPU. dry: a GPU whose kernels\n"
     "do nothing, to count what a program calls. PATH: a driver library to open.\n"
     "Without it: the real driver if it works, else the software GPU."},
    {"cupti", 0, KIND_TEXT, FOR_WORKER, AT(cupti), 0, "PATH|none",
     "NVIDIA's CUPTI library, by which timelines have kernels of the real driver. none: they have\n"
     "none. Without it: that of a CUDA toolkit, if there is one."},
    {"soft-devices", 0, KIND_COUNT, FOR_WORKER, AT(soft_devices), 16, "N",
     "How many software GPUs there are (1)."},
    {"soft-memory", 0, KIND_SIZE, FOR_WORKER, AT(soft_memory), UINT64_C(1) << 40, "SIZE",
     "Memory of each, for example 4G (half of the machine's, at most 16G)."},
    {"soft-capability", 0, KIND_CAPABILITY, FOR_WORKER, AT(soft_capability), 0, "X.Y",
     "Compute capability that they report (12.1)."},
    {"soft-threads", 0, KIND_COUNT, FOR_WORKER, AT(soft_threads), 1024, "N",
     "Threads that run their kernels (all cores)."},
    {"soft-fair", 0, KIND_COUNT, 0, AT(soft_fair), 1, "0|1",
     "1: where several peers have programs, each further program of a peer has less of the\n"
     "cores: the second half of the first's, the third a third (1)."},
    {"soft-strict", 0, KIND_COUNT, FOR_WORKER, AT(soft_strict), 1, "0|1",
     "1: they make callers wait wherever NVIDIA's driver may; for tests (0)."},
    {"soft-suspend", 0, KIND_COUNT, FOR_WORKER, AT(soft_suspend), 1000000, "N",
     "Their memory is put out and taken in again in front of every N-th command, as by towline\n"
     "suspend and resume; for tests (0: never)."},
    {"soft-record", 0, KIND_COUNT, FOR_WORKER, AT(soft_record), 1000000, "N",
     "What a session makes is recorded, and the record compared with it after every N-th call\n"
     "that is recorded; for tests (0: never)."},
    {"idle-workers", 0, KIND_COUNT, 0, AT(idle_workers), 64, "N",
     "Workers kept ready, so that a program starts faster (1). On a real GPU each\n"
     "holds some hundred MiB of its memory."},
    {"max-sessions", 0, KIND_COUNT, 0, AT(max_sessions), 4096, "N",
     "Programs served at once; more wait in line, or are refused with a sentence (256)."},
    {"sessions-per-peer", 0, KIND_COUNT, 0, AT(sessions_per_peer), 4096, "N",
     "Programs served at once of one peer: of one user on a unix socket, of one address on a\n"
     "network (three quarters of max-sessions)."},
    {"places", 0, KIND_COUNT, 0, AT(places), 65536, "N",
     "Connections at once of which no program is served yet (1024). Whoever comes then takes\n"
     "the place of one that was answered, or of the peer that has most."},
    {"places-per-peer", 0, KIND_COUNT, 0, AT(places_per_peer), 65536, "N",
     "How many of these places one peer may have (64; 0: all)."},
    {"connections-per-second", 0, KIND_COUNT, 0, AT(connections_per_second), 1000000, "N",
     "Connections that one peer may make in a second, two seconds' worth at once (1000; 0: any\n"
     "number). More wait their turn; those that would wait for more than 4 s are closed."},
    {"session-memory", 0, KIND_SIZE, FOR_WORKER, AT(session_memory), UINT64_C(1) << 44, "SIZE",
     "Host memory that the worker of a program may hold, beside that of a software GPU (half of\n"
     "the machine's, at least 4G). Beyond, calls fail, or the session ends."},
    {"memory", 0, KIND_SIZE, 0, AT(memory), UINT64_C(1) << 44, "SIZE",
     "Host memory that all workers together may hold, with that of software GPUs (four fifths of\n"
     "the machine's). Beyond, the youngest session of a peer that holds at least half of an equal\n"
     "part ends."},
    {"memory-per-peer", 0, KIND_SIZE, 0, AT(memory_per_peer), UINT64_C(1) << 44, "SIZE",
     "The same for one peer (three quarters of memory)."},
    {"gpu-memory", 0, KIND_SIZE, 0, AT(gpu_memory), UINT64_C(1) << 44, "SIZE",
     "Memory that a program may have of each GPU. It sees a GPU of that size (0: all of it)."},
    {"session-idle", 0, KIND_PATIENCE, 0, AT(session_idle), 31536000, "SECONDS",
     "How long a program may send no command and wait for none before its session ends (0: for\n"
     "ever; at least 5). One that waits over shared memory sends none: take more than a kernel's\n"
     "longest time."},
    {"priority", 0, KIND_WORD, 0, AT(priority), 0, "low|normal|high",
     "Where programs wait in line: each step counts as half an hour of waiting (normal)."},
    {"exclusive", 0, KIND_WORD, 0, AT(exclusive), 0, "no|may|always",
     "Whether a program has the GPUs to itself: never, if it asks for it, or always (no; one's "
     "own\n"
     "private server: may)."},
    {"wait", 0, KIND_TIME, 0, AT(wait), 31536000, "TIME",
     "How long a program may wait in line when there is no room for it, as 90, 10m, 2h or 1d (1d;\n"
     "0: it is refused at once)."},
    {"lease", 0, KIND_TIME, 0, AT(lease), 31536000, "TIME",
     "After which a session ends as soon as somebody waits for what it has (0: it does not)."},
    {"scheduler", 0, KIND_WORD, FOR_WORKER, AT(scheduler), 0, "none|time|mps",
     "none: programs compute at the same time, as the GPU does it. time: they take turns, by\n"
     "share, priority and compute. mps: their kernels run beside each other, by NVIDIA's MPS\n"
     "(none)."},
    {"mps-shared", 0, KIND_WORD, 0, AT(mps_shared), 0, "no|yes",
     "yes: with scheduler = mps all programs may share one user, and a fault of one end all (no)."},
    {"share", 0, KIND_WEIGHT, 0, AT(share), 1000, "N",
     "With scheduler = time: how much of the GPU's time a program gets while others compute, too:\n"
     "twice as much as one with half of that (100)."},
    {"compute", 0, KIND_COUNT, 0, AT(compute), 100, "PERCENT",
     "With scheduler = time: of a GPU's time a program gets no more, even if nobody else wants "
     "it;\n"
     "with mps: of a GPU's processors (0: all of it)."},
    {"overcommit", 0, KIND_WORD, 0, AT(overcommit), 0, "no|yes|swap",
     "no: programs wait in line until the GPUs have all memory that they may have, and those\n"
     "without a quota get what is left. swap: where there is not enough, the memory of idle\n"
     "programs is put out into host memory, and comes back when they need it (yes)."},
    {"swap-quantum", 0, KIND_WEIGHT, 0, AT(swap_quantum), 3600, "SECONDS",
     "With overcommit = swap: how long a program that works keeps its GPU memory while others\n"
     "wait for it (10). One that wants nothing for a tenth of that is idle."},
    {"swap-memory", 0, KIND_SIZE, 0, AT(swap_memory), UINT64_C(1) << 44, "SIZE",
     "With overcommit = swap: host memory for what is put out (half of the machine's)."},
    {"context-memory", 0, KIND_SIZE, 0, AT(context_memory), UINT64_C(1) << 40, "SIZE",
     "Unless overcommit = yes: what a program takes of a GPU beside its quota, for its context\n"
     "(560M; software GPU: 0)."},
    {"reconnect", 0, KIND_COUNT, 0, AT(reconnect), 86400, "SECONDS",
     "How long the session of a program is kept whose connection over a network was cut, and the\n"
     "program connects again (60; 0: it ends with the connection)."},
    {"session-threads", 0, KIND_COUNT, FOR_WORKER, AT(session_threads), 65536, "N",
     "Threads that a program can make its worker start: one for each of its own that waits, one\n"
     "for each link (512). Beyond, the session ends, or the link fails."},
    {"session-commands", 0, KIND_WEIGHT, FOR_WORKER, AT(session_commands), 1 << 30, "N",
     "Commands of a program that wait in its streams: of the software GPU all, of a driver, which\n"
     "has its caller wait, host functions (65536). Beyond, a call fails."},
    {"threads", 0, KIND_COUNT, 0, AT(threads), 1 << 22, "N",
     "Threads of all workers together (half of those that the machine allows). A session may\n"
     "always have 64."},
    {"session-descriptors", 0, KIND_COUNT, 0, AT(session_files), 1 << 20, "N",
     "Descriptors that a worker may have (as many as this server was given, see ulimit -n)."},
    {"lanes", 0, KIND_COUNT, FOR_WORKER, AT(lanes), TOW_LANES_MAX, "N",
     "Further connections for large copies that a program may open (7; 0: none)."},
    {"code-cache", 0, KIND_SIZE, FOR_WORKER, AT(code_cache), UINT64_C(1) << 44, "SIZE",
     "Disk for code that clients sent, so that it travels once (4G; 0: none)."},
    {"code-cache-per-peer", 0, KIND_SIZE, 0, AT(code_cache_per_peer), UINT64_C(1) << 44, "SIZE",
     "What one peer's code may take of it (three quarters of code-cache)."},
    {"log-lines", 0, KIND_WEIGHT, 0, AT(log_lines), 1000000, "N",
     "Lines that the log takes at once, and a hundredth of them in a second from then on (1000).\n"
     "What is left out is counted. The audit and details are not limited."},
    {"session-log-lines", 0, KIND_WEIGHT, 0, AT(session_log_lines), 1000000, "N",
     "Of these, what the worker of one program may write at once (50)."},
    {"cache-dir", 0, KIND_TEXT, FOR_WORKER, AT(cache_dir), 0, "FOLDER",
     "Where (/var/cache/towline as root, otherwise ~/.cache/towline)."},
    {"socket-mode", 0, KIND_MODE, 0, AT(socket_mode), 0777, "MODE",
     "Permissions of unix sockets, octal (0666 as root, otherwise 0600)."},
    {"allow-users", 0, KIND_WORDS, 0, AT(allow_users), 0, "USERS",
     "Who may use the server through its unix sockets: names or numbers, with commas between\n"
     "them (whoever can open a socket). With this or allow-groups nobody may over TCP, unless\n"
     "anyone may. Root and the user who runs the server always may."},
    {"allow-groups", 0, KIND_WORDS, 0, AT(allow_groups), 0, "GROUPS",
     "The same, for the members of groups."},
    {"admin-users", 0, KIND_WORDS, 0, AT(admin_users), 0, "USERS",
     "Who else may see and end all sessions and drain the server, through its unix sockets: names\n"
     "or numbers (root and the user who runs the server)."},
    {"allow-anyone", 0, KIND_YES, 0, AT(allow_anyone), 1, NULL,
     "Whoever reaches a TCP port may use the GPU and run code on it. Without it towlined listens\n"
     "on unix sockets and on the loopback only."},
    {"require-token", 0, KIND_YES, 0, AT(require_token), 1, NULL,
     "Whoever comes over TCP must have a token; see towlined token --help."},
    {"token-file", 0, KIND_TEXT, 0, AT(token_file), 0, "FILE",
     "Where tokens are kept (/var/lib/towline/tokens as root, otherwise\n"
     "~/.local/state/towline/tokens)."},
    {"tls-certificate", 0, KIND_TEXT, 0, AT(tls_certificate), 0, "FILE",
     "The server's certificate for tls:// addresses, in PEM, and those that vouch for it\n"
     "(tls.pem beside the tokens: with a key and a certificate of its own, made at the first\n"
     "start)."},
    {"tls-key", 0, KIND_TEXT, 0, AT(tls_key), 0, "FILE",
     "The certificate's key, in PEM; without it, it is in the same file."},
    {"tls-client-ca", 0, KIND_TEXT, 0, AT(tls_client_ca), 0, "FILE",
     "Authorities, in PEM, that vouch for users: over tls:// a client with a certificate of "
     "theirs\n"
     "has logged in as the user that its common name says. Nobody else may there but with a token\n"
     "(require-token), or where anyone may (allow-anyone)."},
    {"http", 0, KIND_TEXT, 0, AT(http), 0, "ADDRESS",
     "PORT, HOST (port 9837) or HOST:PORT for a page, metrics and JSON about this server, by HTTP\n"
     "(none). A port alone is of this machine only. Sessions are shown to those with a token "
     "(towlined token)."},
    {"http-name", 0, KIND_WORDS, 0, AT(http_name), 0, "NAMES",
     "How people call this server there, with commas between the names, beside localhost, its\n"
     "numbers and this machine's name. Requests to other names are refused."},
    {"http-admins", 0, KIND_WORDS, 0, AT(http_admins), 0, "USERS",
     "Users of tokens (towlined token create --user) who see and end all sessions there (none)."},
    {"http-dcgm", 0, KIND_YES, 0, AT(http_dcgm), 1, NULL,
     "Metrics of GPUs under the names of NVIDIA's DCGM exporter, too."},
    {"heartbeat", 0, KIND_PATIENCE, FOR_WORKER, AT(heartbeat), 3600, "SECONDS",
     "How long a machine at the other end of a network may be silent before it is given up\n"
     "(20; at least 5; 0: for ever)."},
    {"watchdog", 0, KIND_PATIENCE, FOR_WORKER, AT(watchdog), 3600, "SECONDS",
     "How long a worker may stand still, stopped or asleep in the kernel, before its session is\n"
     "ended (20; at least 5; 0: for ever). A kernel or a call that takes long is none of it, nor\n"
     "one that a debugger has."},
    {"linger", 0, KIND_COUNT, 0, AT(linger), 3600, "SECONDS",
     "How long a worker may still be there when its program has gone (10). Then it is killed,\n"
     "whatever it does; one that a debugger has is not."},
    {"grace", 0, KIND_COUNT, 0, AT(grace), 86400, "SECONDS",
     "How long programs may go on when the server is told to end by SIGTERM (5; 0: not at all).\n"
     "No new ones are served meanwhile; a second SIGTERM ends them at once."},
    {"restart-dir", 0, KIND_TEXT, 0, AT(restart_dir), 0, "FOLDER",
     "A folder of this server's alone. With it programs go on when the server ends by accident\n"
     "or by SIGUSR2, and a server that is started again with the same folder serves them on\n"
     "(none: they end, too)."},
    {"restart-wait", 0, KIND_COUNT, 0, AT(restart_wait), 3600, "SECONDS",
     "How long a session waits there for the server to be started again (60); then it ends."},
    {"cgroups", 0, KIND_COUNT, 0, AT(cgroups), 1, "0|1",
     "1: each worker has a control group of its own, where the kernel has cgroup v2 and lets this\n"
     "server make some (1)."},
    {"walls", 0, KIND_COUNT, FOR_WORKER, AT(walls), 1, "0|1",
     "0: workers keep all rights of this server; to look for a fault, never for strangers (1)."},
    {"tenant-users", 0, KIND_RANGE, FOR_WORKER, AT(tenant_users), UINT32_MAX - 1, "FIRST:COUNT",
     "Where the server is root: users that nobody has, by number, of which each tenant's workers\n"
     "take one (1879048192:1000000; 0: workers keep the server's user, as NVIDIA's MPS needs it)."},
    {"user", 0, KIND_TEXT, 0, AT(user), 0, "USER",
     "Where the server is root: the user of the process that hears clients, by name or number\n"
     "(1879048191, which nobody has; root: it keeps root's, and what rights the server has)."},
    {"usage-file", 0, KIND_TEXT, 0, AT(usage_file), 0, "FILE",
     "Where a line of JSON is written for each session that has ended, for `towline usage` "
     "(none)."},
    {"usage-size", 0, KIND_SIZE, 0, AT(usage_size), UINT64_C(1) << 30, "SIZE",
     "How large that file grows; then FILE.1 gets what is in it (8M; 0: any size)."},
    {"log", 0, KIND_TEXT, FOR_WORKER, AT(log), 0, "SPEC",
     "What to log, as TOWLINE_LOG: warn, info, server=debug ... (info)."},
    {"log-format", 0, KIND_TEXT, FOR_WORKER, AT(log_format), 0, "text|json",
     "json: every line of the log is a JSON object (text)."},
    {"config", 'c', KIND_TEXT, FLAG_ONLY, AT(file), 0, "FILE",
     "The file that holds the same settings as `name = value` lines\n"
     "(" TOW_CONFIG_FILE ", if it is there)."},
    {"worker", 0, KIND_SWITCH, FLAG_ONLY | NOT_SHOWN, AT(worker), 0, NULL, NULL},
    {"tls", 0, KIND_SWITCH, FLAG_ONLY | NOT_SHOWN, AT(tls), 0, NULL, NULL},
    {"tls-make", 0, KIND_SWITCH, FLAG_ONLY | NOT_SHOWN, AT(tls_make), 0, NULL, NULL},
    {"shaker", 0, KIND_SWITCH, FLAG_ONLY | NOT_SHOWN, AT(shaker), 0, NULL, NULL},
    {"web", 0, KIND_SWITCH, FLAG_ONLY | NOT_SHOWN, AT(web), 0, NULL, NULL},
    {"become", 0, KIND_COUNT, FLAG_ONLY | NOT_SHOWN, AT(become), UINT32_MAX - 1, NULL, NULL},
    {"slot", 0, KIND_COUNT, FLAG_ONLY | NOT_SHOWN, AT(slot), 15, NULL, NULL},
    {"watch-pid", 0, KIND_COUNT, FLAG_ONLY | NOT_SHOWN, AT(watch_pid), INT32_MAX, NULL, NULL},
    {"ready-fd", 0, KIND_COUNT, FLAG_ONLY | NOT_SHOWN, AT(ready_fd), INT32_MAX, NULL, NULL},
    {"soft-check", 0, KIND_TEXT, FOR_WORKER | FLAG_ONLY | NOT_SHOWN, AT(soft_check), 0, NULL, NULL},
    {"private-dir", 0, KIND_TEXT, FLAG_ONLY | NOT_SHOWN, AT(private_dir), 0, NULL, NULL},
};
#define ENTRY_COUNT (sizeof entries / sizeof *entries)

#define CLASS_AT(field) offsetof(struct tows_config_class, field)
#define CLASS_WORDS(field) CLASS_AT(field), TOW_CONFIG_CLASS_WORDS_MAX, NULL, NULL

/* Of a class: whose sessions it is for, and settings that hold for these instead of those above. */
static const struct option_entry class_entries[] = {
    {"users", 0, KIND_WORDS, 0, CLASS_WORDS(users)},
    {"groups", 0, KIND_WORDS, 0, CLASS_WORDS(groups)},
    {"certificates", 0, KIND_WORDS, 0, CLASS_WORDS(certificates)},
    {"networks", 0, KIND_WORDS, 0, CLASS_WORDS(networks)},
    {"gpu-memory", 0, KIND_SIZE, 0, CLASS_AT(gpu_memory), UINT64_C(1) << 44, NULL, NULL},
    {"max-sessions", 0, KIND_COUNT, 0, CLASS_AT(max_sessions), 4096, NULL, NULL},
    {"sessions-per-peer", 0, KIND_COUNT, 0, CLASS_AT(sessions_per_peer), 4096, NULL, NULL},
    {"session-memory", 0, KIND_SIZE, 0, CLASS_AT(session_memory), UINT64_C(1) << 44, NULL, NULL},
    {"session-idle", 0, KIND_PATIENCE, 0, CLASS_AT(session_idle), 31536000, NULL, NULL},
    {"priority", 0, KIND_WORD, 0, CLASS_AT(priority), 0, "low|normal|high", NULL},
    {"exclusive", 0, KIND_WORD, 0, CLASS_AT(exclusive), 0, "no|may|always", NULL},
    {"wait", 0, KIND_TIME, 0, CLASS_AT(wait), 31536000, NULL, NULL},
    {"lease", 0, KIND_TIME, 0, CLASS_AT(lease), 31536000, NULL, NULL},
    {"share", 0, KIND_WEIGHT, 0, CLASS_AT(share), 1000, NULL, NULL},
    {"compute", 0, KIND_COUNT, 0, CLASS_AT(compute), 100, NULL, NULL},
    {"reconnect", 0, KIND_COUNT, 0, CLASS_AT(reconnect), 86400, NULL, NULL},
};
#define CLASS_ENTRY_COUNT (sizeof class_entries / sizeof *class_entries)

static int config_complain(char *why, size_t size, int error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int config_complain(char *why, size_t size, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return error;
}

bool tows_config_wants_soft(const struct tows_config *config)
{
    return strcmp(config->device, "soft") == 0 || strcmp(config->device, "dry") == 0;
}

void tows_config_defaults(struct tows_config *config)
{
    memset(config, 0, offsetof(struct tows_config, classes));
    config->soft_devices = 1;
    config->soft_fair = 1;
    config->idle_workers = 1;
    config->max_sessions = 256;
    config->places = 1024;
    config->places_per_peer = 64;
    config->connections_per_second = 1000;
    config->lanes = 7;
    config->session_threads = 512;
    config->session_commands = 65536;
    config->priority = TOW_CONFIG_NORMAL;
    config->usage_size = UINT64_C(8) << 20;
    config->wait = 86400;
    config->share = 100;
    config->overcommit = TOW_CONFIG_PROMISES;
    config->swap_quantum = 10;
    config->context_memory = TOW_CONFIG_UNSAID;
    config->code_cache = UINT64_C(4) << 30;
    config->walls = 1;
    config->cgroups = 1;
    config->grace = 5;
    config->restart_wait = 60;
    config->tenant_users = (struct tows_config_range){0x70000000, 1000000};
    config->heartbeat = 20;
    config->reconnect = 60;
    config->log_lines = TOW_LOG_LINES;
    config->session_log_lines = 50;
    config->watchdog = 20;
    config->linger = 10;
    config->socket_mode = geteuid() == 0 ? 0666 : 0600;
}

/* The place of a word in "no|may|always". */
static int parse_word(const char *words, const char *text, uint64_t *ret_place)
{
    size_t length = strlen(text);
    for (uint64_t place = 0; *words != '\0'; place++) {
        size_t n = strcspn(words, "|");
        if (n == length && memcmp(words, text, n) == 0) {
            *ret_place = place;
            return 0;
        }
        words += n + (words[n] == '|');
    }
    return -EINVAL;
}

int tows_config_parse_size(const char *text, uint64_t *ret_size)
{
    return tow_size_parse(text, ret_size);
}

int tows_config_parse_capability(const char *text, uint64_t *ret_capability)
{
    uint64_t major, minor = 0;
    const char *rest;
    if (tow_number_parse(text, 10, &major, &rest) < 0) {
        return -EINVAL;
    }
    if (*rest == '.' && tow_number_parse(rest + 1, 10, &minor, &rest) < 0) {
        return -EINVAL;
    }
    if (*rest != '\0' || major < 1 || major > 99 || minor > 9) {
        return -EINVAL;
    }
    *ret_capability = major * 10 + minor;
    return 0;
}

/* Users: root is none of them, nor is the number that stands for none. */
static int parse_range(const char *text, uint64_t last, struct tows_config_range *ret_range)
{
    struct tows_config_range range = {0, 0};
    const char *rest;
    if (strcmp(text, "0") == 0) {
        *ret_range = range;
        return 0;
    }
    if (tow_number_parse(text, 10, &range.first, &rest) < 0 || *rest != ':' ||
        tow_number_parse(rest + 1, 10, &range.count, &rest) < 0 || *rest != '\0' ||
        range.first == 0 || range.count < USERS_MIN || range.first > last ||
        range.count > last - range.first + 1) {
        return -EINVAL;
    }
    *ret_range = range;
    return 0;
}

static const struct option_entry *find_in(const struct option_entry *table, size_t count,
                                          const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static const struct option_entry *find_entry(const char *name, size_t length)
{
    return find_in(entries, ENTRY_COUNT, name, length);
}

/* What is kept as text. Lists are the settings' alone. */
static int config_set_text(void *base, const struct option_entry *entry, const char *value,
                           const char *where, char *why, size_t why_size)
{
    struct tows_config *config = base;
    char *at = (char *)base + entry->at;
    if (entry->kind == KIND_WORDS) {
        size_t room = entry->max != 0 ? (size_t)entry->max : TOW_CONFIG_WORDS_MAX;
        if (strlen(at) + strlen(value) + 2 > room) {
            return config_complain(why, why_size, -EINVAL, "%s: the values of %s are too long",
                                   where, entry->name);
        }
        snprintf(at + strlen(at), room - strlen(at), "%s,", value);
        return 0;
    }
    if (strlen(value) >= TOW_CONFIG_TEXT_MAX) {
        return config_complain(why, why_size, -EINVAL, "%s: the value of %s is too long", where,
                               entry->name);
    }
    if (entry->kind == KIND_LIST) {
        if (config->listen_count == TOW_CONFIG_LISTEN_MAX) {
            return config_complain(why, why_size, -EINVAL,
                                   "%s: at most %d addresses can be listened on", where,
                                   TOW_CONFIG_LISTEN_MAX);
        }
        at = config->listen[config->listen_count++];
    }
    snprintf(at, TOW_CONFIG_TEXT_MAX, "%s", value);
    return 0;
}

/* The number that a value stands for. */
static int config_read_number(const struct option_entry *entry, const char *value,
                              const char *where, uint64_t *ret_number, char *why, size_t why_size)
{
    const char *rest = "";
    int error = 0;
    if (entry->kind == KIND_TIME) {
        return tow_duration_parse(value, ret_number) == 0
                   ? 0
                   : config_complain(why, why_size, -EINVAL,
                                     "%s: %s = %s is no time; write seconds, or 10m, 2h or 1d",
                                     where, entry->name, value);
    }
    if (entry->kind == KIND_WORD) {
        return parse_word(entry->value, value, ret_number) == 0
                   ? 0
                   : config_complain(why, why_size, -EINVAL,
                                     "%s: %s = %s cannot be; write one of %s", where, entry->name,
                                     value, entry->value);
    }
    if (entry->kind == KIND_SIZE) {
        error = tows_config_parse_size(value, ret_number);
    } else if (entry->kind == KIND_CAPABILITY) {
        error = tows_config_parse_capability(value, ret_number);
    } else {
        error = tow_number_parse(value, entry->kind == KIND_MODE ? 8 : 10, ret_number, &rest);
    }
    if (error < 0 || *rest != '\0') {
        return config_complain(why, why_size, -EINVAL,
                               "%s: %s = %s cannot be understood; see towlined --help", where,
                               entry->name, value);
    }
    return 0;
}

/* Into `base`: the struct that the entry's table is of. */
static int config_set(void *base, const struct option_entry *entry, const char *value,
                      const char *where, char *why, size_t why_size)
{
    char *at = (char *)base + entry->at;
    uint64_t number = 0;
    switch (entry->kind) {
    case KIND_SWITCH:
        *(bool *)(void *)at = true;
        return 0;
    case KIND_TEXT:
    case KIND_LIST:
    case KIND_WORDS:
        return config_set_text(base, entry, value, where, why, why_size);
    case KIND_RANGE:
        if (parse_range(value, entry->max, (struct tows_config_range *)(void *)at) < 0) {
            return config_complain(why, why_size, -EINVAL,
                                   "%s: %s = %s is no FIRST:COUNT of numbers from 1 to %llu, at "
                                   "least %d of them; 0 stands for none",
                                   where, entry->name, value, (unsigned long long)entry->max,
                                   USERS_MIN);
        }
        return 0;
    default:
        break;
    }
    if (config_read_number(entry, value, where, &number, why, why_size) < 0) {
        return -EINVAL;
    }
    if (entry->max != 0 && number > entry->max) {
        return config_complain(why, why_size, -EINVAL, "%s: %s = %s is too large; the most is %llu",
                               where, entry->name, value, (unsigned long long)entry->max);
    }
    if (entry->kind == KIND_PATIENCE && number > 0 && number < PATIENCE_MIN) {
        return config_complain(why, why_size, -EINVAL,
                               "%s: %s = %s is too small; the least is %d, or 0: for ever", where,
                               entry->name, value, PATIENCE_MIN);
    }
    if (entry->kind == KIND_WEIGHT && number == 0) {
        return config_complain(why, why_size, -EINVAL,
                               "%s: %s = %s is too small; write a number from 1 to %llu", where,
                               entry->name, value, (unsigned long long)entry->max);
    }
    memcpy(at, &number, sizeof number);
    return 0;
}

static char *config_trim(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        text[--length] = '\0';
    }
    return text;
}

/* ---- sections ---- */

/* What a class may be called: as a token's class. */
static bool is_class_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= TOW_CONFIG_CLASS_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-") ==
               length;
}

/* "[class NAME]", without the brackets. */
static int begin_class(struct tows_config *config, char *text, const char *where, unsigned line,
                       char *why, size_t why_size)
{
    text = config_trim(text);
    size_t word = strcspn(text, " \t");
    char *name = config_trim(text + word);
    if (word != 5 || memcmp(text, "class", 5) != 0) {
        return config_complain(why, why_size, -EINVAL,
                               "%s: there is no section [%s]; write [class NAME]", where, text);
    }
    if (!is_class_name(name)) {
        return config_complain(why, why_size, -EINVAL,
                               "%s: a class cannot be called \"%.64s\"; write [class NAME] with 1 "
                               "to %d letters, digits and ._@-",
                               where, name, TOW_CONFIG_CLASS_NAME_MAX);
    }
    for (unsigned i = 0; i < config->class_count; i++) {
        if (strcmp(config->classes[i].name, name) == 0) {
            return config_complain(why, why_size, -EINVAL,
                                   "%s: class %s begins in line %u already; write all of it there",
                                   where, name, config->classes[i].line);
        }
    }
    if (config->class_count == TOW_CONFIG_CLASSES_MAX) {
        return config_complain(why, why_size, -EINVAL, "%s: there may be %d classes at most", where,
                               TOW_CONFIG_CLASSES_MAX);
    }
    struct tows_config_class *class = &config->classes[config->class_count++];
    memset(class, 0, sizeof *class);
    snprintf(class->name, sizeof class->name, "%s", name);
    class->line = line;
    class->gpu_memory = class->max_sessions = class->sessions_per_peer = TOW_CONFIG_UNSAID;
    class->session_memory = class->session_idle = class->reconnect = TOW_CONFIG_UNSAID;
    class->priority = class->exclusive = class->wait = class->lease = TOW_CONFIG_UNSAID;
    class->share = class->compute = TOW_CONFIG_UNSAID;
    return 0;
}

static int complain_of_class(const char *key, const char *where, char *why, size_t why_size)
{
    char names[512] = "";
    for (size_t i = 0; i < CLASS_ENTRY_COUNT; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
                 class_entries[i].name);
    }
    const struct option_entry *entry = find_entry(key, strlen(key));
    return config_complain(why, why_size, -EINVAL,
                           entry != NULL && (entry->use & FLAG_ONLY) == 0
                               ? "%s: \"%s\" is no setting of a class; write it above the first "
                                 "section; a class has %s"
                               : "%s: there is no setting \"%s\" of a class; a class has %s",
                           where, key, names);
}

/* `line_number` is 0 where there are no sections. */
static int read_line(struct tows_config *config, char *line, const char *where,
                     unsigned line_number, char *why, size_t why_size)
{
    char *comment = line;
    /* A # begins a comment only at the start or after a space: it may be part of a path. */
    while ((comment = strchr(comment, '#')) != NULL) {
        if (comment == line || isspace((unsigned char)comment[-1])) {
            *comment = '\0';
            break;
        }
        comment++;
    }
    char *key = config_trim(line);
    if (*key == '\0') {
        return 0;
    }
    size_t length = strlen(key);
    if (line_number > 0 && key[0] == '[' && key[length - 1] == ']') {
        key[length - 1] = '\0';
        return begin_class(config, key + 1, where, line_number, why, why_size);
    }
    char *equals = strchr(key, '=');
    if (equals == NULL) {
        return config_complain(why, why_size, -EINVAL, "%s: \"%s\" is not of the form name = value",
                               where, key);
    }
    *equals = '\0';
    char *value = config_trim(equals + 1);
    key = config_trim(key);
    if (line_number > 0 && config->class_count > 0) {
        const struct option_entry *own =
            find_in(class_entries, CLASS_ENTRY_COUNT, key, strlen(key));
        return own == NULL ? complain_of_class(key, where, why, why_size)
                           : config_set(&config->classes[config->class_count - 1], own, value,
                                        where, why, why_size);
    }
    const struct option_entry *entry = find_entry(key, strlen(key));
    if (entry == NULL || (entry->use & FLAG_ONLY) != 0) {
        return config_complain(why, why_size, -EINVAL,
                               "%s: there is no setting \"%s\"; towlined --help lists the names",
                               where, key);
    }
    return config_set(config, entry, value, where, why, why_size);
}

int tows_config_apply(struct tows_config *config, const char *list, const char *where, char *why,
                      size_t why_size)
{
    int error = 0;
    while (error == 0 && *list != '\0') {
        size_t length = strcspn(list, ",");
        char line[TOW_CONFIG_LINE_MAX];
        if (length >= sizeof line) {
            return config_complain(why, why_size, -EINVAL, "%s: a setting is too long", where);
        }
        memcpy(line, list, length);
        line[length] = '\0';
        error = read_line(config, line, where, 0, why, why_size);
        list += length + (list[length] == ',');
    }
    return error;
}

int tows_config_read_file(struct tows_config *config, const char *path, char *why, size_t why_size)
{
    struct tow_buf text;
    tow_buf_init(&text, TOW_CONFIG_FILE_MAX);
    int error = tow_file_read(path, &text);
    if (error == 0) {
        error = tow_buf_append(&text, "", 1);
    }
    if (error < 0) {
        tow_buf_fini(&text);
        return config_complain(why, why_size, error, "%s cannot be read: %s", path,
                               strerror(-error));
    }
    char *next = (char *)text.data;
    for (unsigned number = 1; error == 0 && next != NULL; number++) {
        char *line = next;
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        char where[TOW_CONFIG_TEXT_MAX + 16];
        snprintf(where, sizeof where, "%s:%u", path, number);
        if (strlen(line) > TOW_CONFIG_LINE_MAX) {
            error = config_complain(why, why_size, -EINVAL, "%s: the line is too long", where);
        } else {
            error = read_line(config, line, where, number, why, why_size);
        }
    }
    tow_buf_fini(&text);
    return error;
}

/* Flags replace what the file says. */
static void forget_list(struct tows_config *config, const struct option_entry *entry)
{
    if (entry->kind == KIND_LIST) {
        config->listen_count = 0;
    } else if (entry->kind == KIND_WORDS) {
        *((char *)config + entry->at) = '\0';
    }
}

/* Applies the flags: --config and switches alone, or all others. Stops at the first error. */
static int walk_flags(int argc, char **argv, struct tows_config *config, bool only_config,
                      char *why, size_t why_size)
{
    bool given[ENTRY_COUNT] = {false};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            return TOW_CONFIG_HELP;
        }
        if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
            return TOW_CONFIG_VERSION;
        }
        const struct option_entry *entry = NULL;
        const char *value = NULL;
        if (word[0] == '-' && word[1] == '-') {
            size_t length = strcspn(word + 2, "=");
            entry = find_entry(word + 2, length);
            value = word[2 + length] == '=' ? word + 2 + length + 1 : NULL;
        } else if (word[0] == '-' && word[1] != '\0') {
            for (size_t e = 0; e < ENTRY_COUNT && entry == NULL; e++) {
                entry = entries[e].letter == word[1] ? &entries[e] : NULL;
            }
            value = word[2] != '\0' ? word + 2 : NULL;
        }
        if (entry == NULL) {
            return config_complain(why, why_size, -EINVAL,
                                   "there is no flag %s; towlined --help lists them", word);
        }
        if (entry->kind == KIND_YES && value == NULL) {
            value = "1";
        }
        if (entry->kind != KIND_SWITCH && value == NULL) {
            if (i + 1 == argc) {
                return config_complain(why, why_size, -EINVAL,
                                       "--%s needs a value; see towlined --help", entry->name);
            }
            value = argv[++i];
        }
        bool is_config = entry->at == AT(file);
        if (is_config != only_config && !(entry->kind == KIND_SWITCH && only_config)) {
            continue;
        }
        if (!given[entry - entries]) {
            given[entry - entries] = true;
            forget_list(config, entry);
        }
        int error = config_set(config, entry, value, "command line", why, why_size);
        if (error < 0) {
            return error;
        }
    }
    return TOW_CONFIG_GO;
}

int tows_config_load(int argc, char **argv, struct tows_config *ret_config, char *why,
                     size_t why_size)
{
    struct tows_config config;
    tows_config_defaults(&config);
    int outcome = walk_flags(argc, argv, &config, true, why, why_size);
    if (outcome != TOW_CONFIG_GO) {
        return outcome;
    }
    bool named = config.file[0] != '\0';
    if (!named) {
        snprintf(config.file, sizeof config.file, "%s", TOW_CONFIG_FILE);
    }
    /* They get everything from their listener. */
    if (!config.worker && !config.shaker && !config.web) {
        int error = tows_config_read_file(&config, config.file, why, why_size);
        if (error == -ENOENT && !named) {
            config.file[0] = '\0';
        } else if (error < 0) {
            return error;
        }
    }
    outcome = walk_flags(argc, argv, &config, false, why, why_size);
    if (outcome == TOW_CONFIG_GO && config.soft_check[0] != '\0' && !config.worker &&
        config.private_dir[0] == '\0') {
        return config_complain(
            why, why_size, -EINVAL,
            "--soft-check is for the private server of `towline check`; a server "
            "for others does not check their programs");
    }
    if (outcome == TOW_CONFIG_GO) {
        memcpy(ret_config, &config,
               offsetof(struct tows_config, classes) + config.class_count * sizeof *config.classes);
    }
    return outcome;
}

bool tows_config_keep(struct tows_config *config, const struct tows_config *running)
{
    bool other = config->listen_count != running->listen_count ||
                 memcmp(config->listen, running->listen, sizeof config->listen) != 0 ||
                 config->socket_mode != running->socket_mode || config->walls != running->walls ||
                 strcmp(config->user, running->user) != 0 ||
                 strcmp(config->http, running->http) != 0 ||
                 strcmp(config->http_name, running->http_name) != 0 ||
                 config->http_dcgm != running->http_dcgm ||
                 strcmp(config->restart_dir, running->restart_dir) != 0 ||
                 strcmp(config->usage_file, running->usage_file) != 0;
    memcpy(config->listen, running->listen, sizeof config->listen);
    config->listen_count = running->listen_count;
    config->socket_mode = running->socket_mode;
    snprintf(config->user, sizeof config->user, "%s", running->user);
    snprintf(config->usage_file, sizeof config->usage_file, "%s", running->usage_file);
    snprintf(config->restart_dir, sizeof config->restart_dir, "%s", running->restart_dir);
    config->usage_size = running->usage_size;
    snprintf(config->http, sizeof config->http, "%s", running->http);
    snprintf(config->http_name, sizeof config->http_name, "%s", running->http_name);
    config->http_dcgm = running->http_dcgm;
    config->tls = running->tls;
    config->walls = running->walls;               /* which rights there are was decided by it */
    config->tenant_users = running->tenant_users; /* as tried at the start */
    config->ready_fd = running->ready_fd;         /* closed once it was told */
    return other;
}

int tows_config_worker_args(const struct tows_config *config, char *ret_text, size_t size,
                            char *ret_args[TOW_CONFIG_ARGS_MAX])
{
    size_t used = 0;
    int count = 0;
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        const struct option_entry *entry = &entries[i];
        if ((entry->use & FOR_WORKER) == 0) {
            continue;
        }
        const char *at = (const char *)config + entry->at;
        uint64_t number = 0;
        int n;
        if (entry->kind == KIND_TEXT) {
            if (*at == '\0') {
                continue;
            }
            n = snprintf(ret_text + used, size - used, "--%s=%s", entry->name, at);
        } else if (entry->kind == KIND_RANGE) {
            struct tows_config_range range;
            memcpy(&range, at, sizeof range);
            n = snprintf(ret_text + used, size - used,
                         range.count != 0 ? "--%s=%llu:%llu" : "--%s=0", entry->name,
                         (unsigned long long)range.first, (unsigned long long)range.count);
        } else if (entry->kind == KIND_WORD) {
            memcpy(&number, at, sizeof number);
            const char *word = entry->value;
            for (; number > 0; number--) {
                word += strcspn(word, "|") + 1;
            }
            n = snprintf(ret_text + used, size - used, "--%s=%.*s", entry->name,
                         (int)strcspn(word, "|"), word);
        } else {
            memcpy(&number, at, sizeof number);
            if (entry->kind == KIND_CAPABILITY && number == 0) {
                continue;
            }
            n = entry->kind == KIND_CAPABILITY
                    ? snprintf(ret_text + used, size - used, "--%s=%u.%u", entry->name,
                               (unsigned)number / 10, (unsigned)number % 10)
                    : snprintf(ret_text + used, size - used, "--%s=%llu", entry->name,
                               (unsigned long long)number);
        }
        if (n < 0 || (size_t)n >= size - used || count == TOW_CONFIG_ARGS_MAX) {
            return -E2BIG;
        }
        ret_args[count++] = ret_text + used;
        used += (size_t)n + 1;
    }
    return count;
}

void tows_config_print_help(void)
{
    printf("towlined: lets programs on this and other machines use this machine's GPUs.\n"
           "\n"
           "  towlined                                serve this machine only\n"
           "  towlined -l tcp://0.0.0.0:4837 --allow-anyone\n"
           "                                          serve whoever reaches this machine\n"
           "  towlined --device soft                  the software GPU: no hardware needed\n"
           "\n"
           "Then, on the machine without a GPU:\n"
           "\n"
           "  towline run -s tcp://THIS-HOST:4837 -- python3 train.py\n"
           "\n"
           "Flags, with the default in brackets:\n");
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        const struct option_entry *entry = &entries[i];
        if ((entry->use & NOT_SHOWN) != 0) {
            continue;
        }
        if (entry->letter != 0) {
            printf("\n  -%c, --%s %s\n", entry->letter, entry->name, entry->value);
        } else {
            printf("\n  --%s%s%s\n", entry->name, entry->value == NULL ? "" : " ",
                   entry->value == NULL ? "" : entry->value);
        }
        for (const char *line = entry->help; line != NULL;) {
            size_t length = strcspn(line, "\n");
            printf("        %.*s\n", (int)length, line);
            line = line[length] == '\0' ? NULL : line + length + 1;
        }
    }
    printf("\n  -h, --help\n  -V, --version\n"
           "\n"
           "Every long name can stand in the config file too: `device = soft`. SIGHUP reads it "
           "again;\n"
           "SIGTERM ends the server, after `grace` seconds its sessions, too; `towlined drain`, "
           "with the flags\n"
           "of the server, has it serve no new programs and end with the last (so does SIGUSR1).\n"
           "`towline status` shows who is using what.\n"
           "Manual: man towlined, man towlined.conf.\n");
}
