/* SPDX-License-Identifier: Apache-2.0 */
/* `towline top`: what servers do, on the whole screen, again and again. */
#include "cli/top.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "transport/address.h"

enum { INTERVAL_MAX_S = 3600, LINES_LEAST = 6, COLUMNS_LEAST = 40 };

/* One thread asks one server, so that nobody waits for one that does not answer. */
struct top_asker {
    struct top_run *run;
    unsigned server;
    char address[TOW_ADDRESS_MAX];
    unsigned looks; /* answers, and what was said in place of one; the lock's */
};

enum top_mode { TOP_WATCHING, TOP_FILTERING, TOP_ENDING };

static struct top_run {
    struct tow_mutex lock; /* guards `top` and how often servers were looked at */
    struct tow_top top;
    struct top_asker askers[TOW_TOP_SERVERS_MAX];
    int64_t interval_ns;
    int news; /* eventfd: a server was looked at */
    int now;  /* eventfd: whoever asks is to ask at once */
    /* The screen's; only the main thread's. */
    enum top_mode mode;
    struct tow_top_screen screen;
    char foot[512];
    struct {
        unsigned server;
        uint64_t session;
        char program[TOW_TOP_TEXT_MAX];
    } victim;
    bool over;
} the_run;

static const char top_keys[] =
    "q quit  arrows choose  s sort by the next column  r reverse  / filter  e end a session";

/* ---- asking ---- */

static void top_look(struct top_asker *asker)
{
    struct top_run *run = asker->run;
    struct tow_buf report;
    char why[TOW_WHY_MAX] = "";
    tow_buf_init(&report, TOW_FRAME_MAX);
    int error = tow_ask_report(asker->address, 0, &report, why, sizeof why);
    tow_mutex_lock(&run->lock);
    if (error == 0) {
        error = tow_top_take(&run->top, asker->server, (const char *)report.data, report.size,
                             tow_time_now_ns());
        if (error < 0) {
            snprintf(why, sizeof why, "%s sent a report that cannot be read",
                     run->top.servers[asker->server].address);
        }
    }
    if (error < 0) {
        tow_top_lose(&run->top, asker->server, why);
    }
    /* Its rows are of before. */
    free(run->top.rows);
    run->top.rows = NULL;
    run->top.row_count = 0;
    asker->looks++;
    tow_mutex_unlock(&run->lock);
    tow_buf_fini(&report);
    eventfd_write(run->news, 1);
}

static void *top_ask(void *user)
{
    struct top_asker *asker = user;
    for (;;) {
        int64_t next = tow_time_deadline(asker->run->interval_ns);
        top_look(asker);
        struct pollfd now = {.fd = asker->run->now, .events = POLLIN};
        eventfd_t count;
        if (poll(&now, 1, (int)(tow_time_left(next) / TOW_TIME_MS) + 1) > 0) {
            eventfd_read(asker->run->now, &count);
        }
    }
    return NULL;
}

static int top_start(struct top_run *run, char *addresses)
{
    char *rest = addresses;
    const char *address;
    tow_top_init(&run->top);
    tow_mutex_init(&run->lock, CLI_TOP);
    run->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    run->now = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (run->news < 0 || run->now < 0) {
        tow_cli_say("no descriptors can be had: %s", strerror(errno));
        return TOW_EXIT_FAILED;
    }
    while ((address = tow_address_next(&rest)) != NULL) {
        char shown[TOW_ADDRESS_MAX];
        tow_transport_as_written(address, shown);
        struct top_asker *asker = &run->askers[run->top.server_count];
        *asker = (struct top_asker){.run = run, .server = run->top.server_count};
        if (!tow_top_add(&run->top, shown)) {
            tow_cli_say("name at most %d servers", TOW_TOP_SERVERS_MAX);
            return TOW_EXIT_FAILED;
        }
        snprintf(asker->address, sizeof asker->address, "%s", address);
    }
    /* No thread is ever waited for: one may be in a question that nobody answers, and the process
     * ends as it is. */
    for (unsigned i = 0; i < run->top.server_count; i++) {
        pthread_t thread;
        int error = tow_thread_start("towline-top", top_ask, &run->askers[i], &thread);
        if (error < 0) {
            tow_cli_say("no thread can be had: %s", strerror(-error));
            return TOW_EXIT_FAILED;
        }
        pthread_detach(thread);
    }
    return 0;
}

/* ---- once, or as JSON ---- */

/* The fewest looks that a server had. */
static unsigned top_looks(struct top_run *run)
{
    unsigned least = UINT_MAX;
    tow_mutex_lock(&run->lock);
    for (unsigned i = 0; i < run->top.server_count; i++) {
        least = run->askers[i].looks < least ? run->askers[i].looks : least;
    }
    tow_mutex_unlock(&run->lock);
    return least;
}

static void top_clock(char text[16])
{
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(text, 16, "%H:%M:%S", &local);
}

/* False: stdout takes no more. */
static bool top_print(struct top_run *run, bool json)
{
    char clock[16];
    top_clock(clock);
    struct tow_top_screen screen = {.columns = INT_MAX, .clock = clock, .foot = ""};
    struct tow_buf text;
    tow_buf_init(&text, 64 << 20);
    tow_mutex_lock(&run->lock);
    tow_top_arrange(&run->top);
    if (!json) {
        tow_top_draw(&run->top, &screen, stdout);
    } else if (tow_top_write(&run->top, &text) == 0) {
        printf("%.*s\n", (int)text.size, (const char *)text.data);
    }
    tow_mutex_unlock(&run->lock);
    tow_buf_fini(&text);
    return fflush(stdout) == 0;
}

/* Rates want two looks. */
static int top_tell(struct top_run *run, bool once, bool json)
{
    unsigned wanted = 2;
    for (;;) {
        struct pollfd news = {.fd = run->news, .events = POLLIN};
        eventfd_t count;
        poll(&news, 1, -1);
        eventfd_read(run->news, &count);
        if (top_looks(run) < wanted) {
            continue;
        }
        wanted = top_looks(run) + 1;
        if (!top_print(run, json)) {
            return TOW_EXIT_FAILED;
        }
        if (once) {
            int code = 0;
            for (unsigned i = 0; i < run->top.server_count; i++) {
                code = run->top.servers[i].why[0] != '\0' ? TOW_EXIT_FAILED : code;
            }
            return code;
        }
    }
}

/* ---- the screen ---- */

static void top_show(struct top_run *run)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    struct tow_top_screen *screen = &run->screen;
    screen->lines = size.ws_row > LINES_LEAST ? size.ws_row : LINES_LEAST;
    screen->columns = size.ws_col > COLUMNS_LEAST ? size.ws_col : COLUMNS_LEAST;
    char clock[16], foot[sizeof run->foot + 8];
    top_clock(clock);
    screen->clock = clock;
    if (run->mode == TOP_FILTERING) {
        snprintf(foot, sizeof foot, "filter: %s_", run->top.filter);
    } else {
        snprintf(foot, sizeof foot, "%s", run->foot[0] != '\0' ? run->foot : top_keys);
    }
    screen->foot = foot;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) {
        return;
    }
    tow_mutex_lock(&run->lock);
    tow_top_arrange(&run->top);
    tow_top_draw(&run->top, screen, out);
    tow_mutex_unlock(&run->lock);
    if (fclose(out) == 0) {
        /* Each line clears what was behind it; the last one has no newline, which would scroll. */
        fputs("\033[H", stdout);
        for (char *at = text, *end; at < text + length; at = end + 1) {
            end = strchr(at, '\n');
            printf("%.*s\033[K%s", (int)(end - at), at, end + 1 < text + length ? "\r\n" : "");
        }
        run->over |= fflush(stdout) != 0;
    }
    free(text);
}

/* What the keys are about: copied, since the next report changes it. False: there is none. */
static bool top_chosen(struct top_run *run)
{
    bool found = false;
    tow_mutex_lock(&run->lock);
    tow_top_arrange(&run->top);
    if (run->screen.chosen < run->top.row_count) {
        const struct tow_top_row *row = &run->top.rows[run->screen.chosen];
        run->victim.server = (unsigned)(row->server - run->top.servers);
        run->victim.session = row->session->id;
        memcpy(run->victim.program, row->session->program, sizeof run->victim.program);
        found = true;
    }
    tow_mutex_unlock(&run->lock);
    return found;
}

static void top_end(struct top_run *run)
{
    char why[TOW_WHY_MAX] = "";
    int error = tow_end_session(run->askers[run->victim.server].address, run->victim.session, why,
                                sizeof why);
    if (error < 0) {
        snprintf(run->foot, sizeof run->foot, "%s", why);
    } else {
        snprintf(run->foot, sizeof run->foot, "session %llu ends",
                 (unsigned long long)run->victim.session);
    }
    eventfd_write(run->now, run->top.server_count);
}

static void top_key_watching(struct top_run *run, int key)
{
    struct tow_top_screen *screen = &run->screen;
    run->foot[0] = '\0';
    switch (key) {
    case 'q':
    case 3: /* Ctrl-C */
        run->over = true;
        break;
    case 'k':
        screen->chosen -= screen->chosen > 0 ? 1 : 0;
        break;
    case 'j':
        screen->chosen++; /* drawing brings it back to the last */
        break;
    case 's':
        run->top.key = (run->top.key + 1) % TOW_TOP_KEYS;
        break;
    case 'r':
        run->top.reverse = !run->top.reverse;
        break;
    case '/':
        run->mode = TOP_FILTERING;
        break;
    case 'e':
        if (top_chosen(run)) {
            run->mode = TOP_ENDING;
            snprintf(run->foot, sizeof run->foot,
                     "end session %llu (%s)? its CUDA calls will fail: y or n",
                     (unsigned long long)run->victim.session, run->victim.program);
        }
        break;
    case ' ':
        eventfd_write(run->now, run->top.server_count);
        break;
    default:
        break;
    }
}

static void top_key_filtering(struct top_run *run, int key)
{
    /* Only this thread looks at the filter. */
    char *filter = run->top.filter;
    size_t length = strlen(filter);
    if (key == '\r' || key == '\n') {
        run->mode = TOP_WATCHING;
    } else if (key == 27 || key == 3) {
        filter[0] = '\0';
        run->mode = TOP_WATCHING;
    } else if ((key == 127 || key == 8) && length > 0) {
        filter[length - 1] = '\0';
    } else if (key >= ' ' && key < 127 && length + 1 < sizeof run->top.filter) {
        filter[length] = (char)key;
        filter[length + 1] = '\0';
    }
}

static void top_key(struct top_run *run, int key)
{
    if (run->mode == TOP_FILTERING) {
        top_key_filtering(run, key);
    } else if (run->mode == TOP_ENDING) {
        run->mode = TOP_WATCHING;
        run->foot[0] = '\0';
        if (key == 'y') {
            top_end(run);
        }
    } else {
        top_key_watching(run, key);
    }
}

/* Keys as they come from a terminal; of those that are several bytes the arrows mean something. */
static void top_read(struct top_run *run)
{
    char bytes[64];
    ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count <= 0) {
        run->over = true;
        return;
    }
    for (ssize_t i = 0; i < count; i++) {
        if (bytes[i] == 27 && i + 2 < count && (bytes[i + 1] == '[' || bytes[i + 1] == 'O')) {
            char arrow = bytes[i + 2];
            i += 2;
            if (run->mode == TOP_WATCHING && (arrow == 'A' || arrow == 'B')) {
                top_key(run, arrow == 'A' ? 'k' : 'j');
            }
            /* The rest of a longer one: digits, then a letter or ~. */
            while (arrow >= '0' && arrow <= '9' && i + 1 < count) {
                arrow = bytes[++i];
            }
        } else {
            top_key(run, (unsigned char)bytes[i]);
        }
    }
}

static int top_screen(struct top_run *run)
{
    struct termios before, raw;
    if (tcgetattr(STDIN_FILENO, &before) != 0) {
        tow_cli_say("standard input is no terminal; take towline top --once, or --json");
        return TOW_EXIT_FAILED;
    }
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGWINCH);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int told = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    raw = before;
    raw.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    /* A screen of its own, no cursor, and long lines are cut. */
    fputs("\033[?1049h\033[?25l\033[?7l\033[2J", stdout);
    run->screen.styled = tow_cli_colour(stdout, TOW_BOLD)[0] != '\0';
    while (!run->over) {
        top_show(run);
        struct pollfd polled[] = {
            {.fd = STDIN_FILENO, .events = POLLIN},
            {.fd = run->news, .events = POLLIN},
            {.fd = told, .events = POLLIN},
        };
        if (poll(polled, 3, -1) < 0 && errno != EINTR) {
            break;
        }
        eventfd_t count;
        struct signalfd_siginfo signal;
        eventfd_read(run->news, &count);
        while (told >= 0 && read(told, &signal, sizeof signal) == sizeof signal) {
            run->over |= signal.ssi_signo != SIGWINCH;
        }
        if (polled[0].revents != 0) {
            top_read(run);
        }
    }
    fputs("\033[?7h\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return 0;
}

/* ---- the command ---- */

static const struct tow_flag top_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {"-d", "--delay", "SECONDS", 'd'},
    {NULL, "--sort", "COLUMN", 'k'},
    {NULL, "--filter", "TEXT", 'f'},
    {"-1", "--once", NULL, 'o'},
    {NULL, "--json", NULL, 'j'},
    {NULL, NULL, NULL, 0},
};

/* What the flags say; the exit code where something is wrong, else -1. */
static int top_flag(struct top_run *run, int key, const char *value, int *ret_sort)
{
    if (key == 'd') {
        char *end;
        double seconds = strtod(value, &end);
        if (*end != '\0' || end == value || !(seconds >= 0.1 && seconds <= INTERVAL_MAX_S)) {
            tow_cli_say("--delay takes seconds, from 0.1 to %d, not \"%s\"", INTERVAL_MAX_S, value);
            return TOW_EXIT_USAGE;
        }
        run->interval_ns = (int64_t)(seconds * (double)TOW_TIME_S);
    } else if (key == 'k') {
        *ret_sort = tow_top_key_find(value);
        if (*ret_sort < 0) {
            tow_cli_say("--sort takes session, program, tenant, gpu, memory, calls, in, out, host "
                        "or age, not \"%s\"",
                        value);
            return TOW_EXIT_USAGE;
        }
    }
    return -1;
}

static int top_main(int argc, char **argv)
{
    struct tow_flags flags = {.command = &tow_command_top, .argc = argc, .argv = argv, .at = 1};
    struct top_run *run = &the_run;
    const char *server = NULL, *filter = "", *value;
    bool once = false, json = false;
    int key, sort = TOW_TOP_MEMORY;
    run->interval_ns = 2 * TOW_TIME_S;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        server = key == 's' ? value : server;
        filter = key == 'f' ? value : filter;
        once |= key == 'o';
        json |= key == 'j';
        int wrong = top_flag(run, key, value, &sort);
        if (wrong >= 0) {
            return wrong;
        }
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (!tow_flags_no_words(&flags)) {
        return TOW_EXIT_USAGE;
    }
    if (!once && !json && !isatty(STDOUT_FILENO)) {
        tow_cli_say("standard output is no terminal; take towline top --once, or --json");
        return TOW_EXIT_USAGE;
    }
    char addresses[TOW_CLI_ADDRESS_MAX];
    if (!tow_choose_to_ask(&tow_command_top, server, addresses)) {
        return TOW_EXIT_FAILED;
    }
    int code = top_start(run, addresses);
    if (code != 0) {
        return code;
    }
    tow_mutex_lock(&run->lock);
    run->top.key = (enum tow_top_key)sort;
    snprintf(run->top.filter, sizeof run->top.filter, "%s", filter);
    tow_mutex_unlock(&run->lock);
    code = once || json ? top_tell(run, once, json) : top_screen(run);
    fflush(stdout);
    /* Threads may be asking: nothing of theirs is taken away. */
    _exit(code);
}

const struct tow_command tow_command_top = {
    .name = "top",
    .summary = "watch servers, their GPUs and sessions",
    .help =
        "towline top [-s ADDRESS] [--delay SECONDS] [--sort COLUMN] [--filter TEXT] [--once] "
        "[--json]\n"
        "\n"
        "  towline top\n"
        "  towline top -s one,two --sort calls\n"
        "  towline top --once --json\n"
        "\n"
        "Shows GPUs and sessions on the whole screen, anew every 2 s (-d, --delay). Rates are "
        "those between "
        "the last two\n"
        "looks. GPUs are numbered as a program sees them that names the same servers. A narrow "
        "screen leaves\n"
        "columns out.\n"
        "Keys: q quits; arrows (j, k) choose a session, e ends it (as towline end does); s sorts "
        "by the next\n"
        "column, marked *, r reverses; / shows only sessions that have a text in program, tenant, "
        "class, place\n"
        "or state; the space bar looks at once.\n"
        "Columns to sort by: session program tenant gpu memory calls in out host age.\n"
        "--once prints one table after two looks; --json one object, or one for each look without "
        "--once.\n"
        "You see the sessions that towline status shows.\n"
        "Without -s: TOWLINE_SERVER, then the config file, then this machine's own socket.\n",
    .flags = top_flags,
    .run = top_main,
};
