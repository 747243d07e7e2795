/* SPDX-License-Identifier: Apache-2.0 */
/* `towline cdi`: the file by which podman, docker and containerd give a container the GPUs of a
 * server (CDI: the Container Device Interface). What a container gets are the client's libraries,
 * what says which server it is, and variables; no device. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_write.h"
#include "transport/address.h"
#include "transport/known_servers.h"
#include "transport/tls_dial.h"

#define CDI_KIND "towline/gpu"
#define CDI_NAME "all"
/* Where a container finds them. */
#define CDI_LIBRARIES "/usr/lib/towline"
#define CDI_SETTINGS "/etc/towline"

enum { CDI_MOUNTS_MAX = 16, CDI_FILE_MAX = 1 << 20 };

/* What is asked for. */
struct cdi_order {
    const char *server, *name, *library_path, *output;
};

struct cdi_mount {
    char host[PATH_MAX], inside[PATH_MAX];
};

struct cdi_plan {
    const struct cdi_order *order;
    char servers[TOW_CLI_ADDRESS_MAX];
    struct cdi_mount mounts[CDI_MOUNTS_MAX];
    unsigned mount_count;
    const char *variables[CDI_MOUNTS_MAX]; /* those of the environment that name a file */
    char values[CDI_MOUNTS_MAX][PATH_MAX]; /* what they are in a container */
    unsigned variable_count;
};

/* Files that a program reads by a variable, and where a container has them. No program uses one
 * with a secret that others can read. */
static const struct {
    const char *variable, *inside;
    bool secret;
} cdi_files[] = {
    {"TOWLINE_TOKEN_FILE", CDI_SETTINGS "/token", true},
    {"TOWLINE_TLS_CA", CDI_SETTINGS "/ca.pem", false},
    {"TOWLINE_TLS_CERT", CDI_SETTINGS "/client.pem", false},
    {"TOWLINE_TLS_KEY", CDI_SETTINGS "/client.key", true},
};

/* ---- what is mounted ---- */

static int cdi_mount(struct cdi_plan *plan, const char *host, const char *inside)
{
    char path[PATH_MAX];
    if (realpath(host, path) == NULL) {
        tow_cli_say("%s cannot be given to a container: %s", host, strerror(errno));
        return -errno;
    }
    for (unsigned i = 0; i < plan->mount_count; i++) {
        if (strcmp(plan->mounts[i].inside, inside) == 0) {
            if (strcmp(plan->mounts[i].host, path) == 0) {
                return 0;
            }
            tow_cli_say("%s and %s would both be %s in the container; put the keys of both servers "
                        "into one file",
                        plan->mounts[i].host, path, inside);
            return -EEXIST;
        }
    }
    if (plan->mount_count == CDI_MOUNTS_MAX) {
        tow_cli_say("a container is given %d files at most; name fewer servers", CDI_MOUNTS_MAX);
        return -E2BIG;
    }
    struct cdi_mount *mount = &plan->mounts[plan->mount_count++];
    memcpy(mount->host, path, sizeof path);
    snprintf(mount->inside, sizeof mount->inside, "%s", inside);
    return 0;
}

static const char *cdi_behind(const char *address, const char *scheme)
{
    size_t length = strlen(scheme);
    return strncmp(address, scheme, length) == 0 ? address + length : NULL;
}

static int cdi_add_socket(struct cdi_plan *plan, const char *path)
{
    struct stat status;
    if (path[0] != '/') {
        tow_cli_say("a container cannot reach the socket %s; have towlined listen on a path that "
                    "begins with /",
                    path);
        return -EINVAL;
    }
    if (stat(path, &status) == 0 && !S_ISSOCK(status.st_mode)) {
        tow_cli_say("%s is no socket; name the one that towlined listens on", path);
        return -ENOTSOCK;
    }
    return cdi_mount(plan, path, path);
}

static int cdi_add_keys(struct cdi_plan *plan, const char *address)
{
    char path[PATH_MAX], why[TOW_WHY_MAX];
    struct stat status;
    const char *authorities = getenv("TOWLINE_TLS_CA");
    if (authorities != NULL && authorities[0] != '\0') {
        return 0; /* certificates decide */
    }
    int error = tow_tls_known(address, path, why, sizeof why);
    if (error < 0) {
        tow_cli_say("%s", why);
        return error;
    }
    if (stat(path, &status) == 0 && (status.st_mode & S_IROTH) == 0) {
        tow_cli_tell("only programs of the user with number %u can read %s in a container; for "
                     "others put the line of %s into " TOW_KNOWN_SERVERS_MACHINE
                     " (mode 0644), and write this file again",
                     (unsigned)status.st_uid, path, address);
    }
    return cdi_mount(plan, path, TOW_KNOWN_SERVERS_MACHINE);
}

/* What a container needs to reach this server. */
static int cdi_add_server(struct cdi_plan *plan, const char *address)
{
    const char *path;
    if ((path = cdi_behind(address, "unix://")) != NULL ||
        (path = cdi_behind(address, "shm://")) != NULL) {
        return cdi_add_socket(plan, path);
    }
    if (cdi_behind(address, "tls://") != NULL) {
        return cdi_add_keys(plan, address);
    }
    if (cdi_behind(address, "tcp://") == NULL) {
        tow_cli_say("a container cannot use %s; name a server by HOST, tls://HOST or the path of a "
                    "socket",
                    address);
        return -EINVAL;
    }
    return 0;
}

/* The loopback of a container is its own. */
static void cdi_warn(const char *address)
{
    const char *rest = strstr(address, "://");
    static const char *const loopback[] = {"127.", "localhost", "[::1]"};
    for (unsigned i = 0; rest != NULL && i < sizeof loopback / sizeof *loopback; i++) {
        if (cdi_behind(rest + 3, loopback[i]) != NULL) {
            tow_cli_tell("%s is the container itself, unless it runs with --network host; name "
                         "this machine by another address, or use its socket",
                         address);
        }
    }
}

static int cdi_add_servers(struct cdi_plan *plan)
{
    char list[TOW_CLI_ADDRESS_MAX], why[TOW_WHY_MAX], *rest = list, *address;
    const char *flag = plan->order->server;
    int choice = flag != NULL ? tow_address_read_list(flag, plan->servers, sizeof plan->servers,
                                                      why, sizeof why)
                              : tow_choose_servers(plan->servers, why, sizeof why);
    if (choice < 0) {
        tow_cli_say("%s", why);
        return choice;
    }
    if (flag == NULL && choice == TOW_CHOICE_NONE) {
        tow_cli_say("no server is named; write towline cdi -s ADDRESS");
        return -ENOENT;
    }
    snprintf(list, sizeof list, "%s", plan->servers);
    int error = 0;
    while (error == 0 && (address = tow_address_next(&rest)) != NULL) {
        error = cdi_add_server(plan, address);
        cdi_warn(address);
    }
    return error;
}

static int cdi_check_secret(const char *path)
{
    struct stat status;
    if (stat(path, &status) == 0 && (status.st_mode & 077) != 0) {
        tow_cli_say("others can read %s, and programs do not use it then; run chmod 600 %s", path,
                    path);
        return -EPERM;
    }
    return 0;
}

static int cdi_add_files(struct cdi_plan *plan)
{
    int error = 0;
    for (unsigned i = 0; i < sizeof cdi_files / sizeof *cdi_files && error == 0; i++) {
        const char *path = getenv(cdi_files[i].variable);
        if (path != NULL && path[0] != '\0') {
            error = cdi_files[i].secret ? cdi_check_secret(path) : 0;
            error = error < 0 ? error : cdi_mount(plan, path, cdi_files[i].inside);
            snprintf(plan->values[plan->variable_count], PATH_MAX, "%s", cdi_files[i].inside);
            plan->variables[plan->variable_count++] = cdi_files[i].variable;
        }
    }
    return error;
}

static int cdi_plan_make(struct cdi_plan *plan)
{
    char bin_dir[PATH_MAX], lib_dir[PATH_MAX];
    if (tow_cli_find_folders(bin_dir, lib_dir) < 0) {
        tow_cli_say("Towline's libcuda.so.1 is not beside this program; build it with make, or "
                    "install it again");
        return -ENOENT;
    }
    int error = cdi_mount(plan, lib_dir, CDI_LIBRARIES);
    error = error < 0 ? error : cdi_add_servers(plan);
    return error < 0 ? error : cdi_add_files(plan);
}

/* ---- the file ---- */

static void cdi_variable(struct tow_json *json, const char *name, const char *value)
{
    char text[TOW_CLI_ADDRESS_MAX + 64];
    snprintf(text, sizeof text, "%s=%s", name, value);
    tow_json_str(json, NULL, text);
}

static void cdi_environment(struct tow_json *json, const struct cdi_plan *plan)
{
    char path[PATH_MAX];
    const char *more = plan->order->library_path;
    snprintf(path, sizeof path, more == NULL ? "%s" : "%s:%s", CDI_LIBRARIES, more);
    tow_json_array(json, "env");
    cdi_variable(json, "TOWLINE_SERVER", plan->servers);
    cdi_variable(json, "LD_LIBRARY_PATH", path);
    cdi_variable(json, "TRITON_LIBCUDA_PATH", CDI_LIBRARIES);
    for (unsigned i = 0; i < plan->variable_count; i++) {
        cdi_variable(json, plan->variables[i], plan->values[i]);
    }
    tow_json_end(json);
}

static void cdi_mounts(struct tow_json *json, const struct cdi_plan *plan)
{
    static const char *const options[] = {"ro", "nosuid", "nodev", "rbind"};
    tow_json_array(json, "mounts");
    for (unsigned i = 0; i < plan->mount_count; i++) {
        tow_json_object(json, NULL);
        tow_json_str(json, "hostPath", plan->mounts[i].host);
        tow_json_str(json, "containerPath", plan->mounts[i].inside);
        tow_json_array(json, "options");
        for (unsigned k = 0; k < sizeof options / sizeof *options; k++) {
            tow_json_str(json, NULL, options[k]);
        }
        tow_json_end(json);
        tow_json_end(json);
    }
    tow_json_end(json);
}

static int cdi_write(const struct cdi_plan *plan, struct tow_buf *text)
{
    struct tow_json json;
    tow_json_init(&json, text);
    tow_json_object(&json, NULL);
    tow_json_str(&json, "cdiVersion", "0.5.0");
    tow_json_str(&json, "kind", CDI_KIND);
    tow_json_array(&json, "devices");
    tow_json_object(&json, NULL);
    tow_json_str(&json, "name", plan->order->name);
    tow_json_object(&json, "containerEdits");
    cdi_environment(&json, plan);
    cdi_mounts(&json, plan);
    tow_json_end(&json);
    tow_json_end(&json);
    tow_json_end(&json);
    tow_json_end(&json);
    int error = tow_json_finish(&json);
    return error < 0 ? error : tow_buf_append(text, "\n", 1);
}

/* Whether podman, docker and containerd read it where it is. */
static bool cdi_is_looked_for(const char *output)
{
    static const char *const folders[] = {"/etc/cdi/", "/run/cdi/", "/var/run/cdi/"};
    char path[PATH_MAX];
    for (unsigned i = 0; realpath(output, path) != NULL && i < sizeof folders / sizeof *folders;
         i++) {
        if (cdi_behind(path, folders[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static int cdi_put(const struct cdi_plan *plan, const struct tow_buf *text)
{
    const char *output = plan->order->output;
    if (output == NULL) {
        return tow_file_write_all(STDOUT_FILENO, text->data, text->size);
    }
    int error = tow_file_mkdir_for(output, false);
    if (error == 0) {
        error = tow_file_write_atomic(output, text->data, text->size, 0644);
    }
    if (error < 0) {
        tow_cli_say("%s cannot be written: %s", output, strerror(-error));
        return error;
    }
    printf("Written to %s. %s container gets the GPUs of %s by\n"
           "  podman run --device " CDI_KIND "=%s IMAGE PROGRAM\n",
           output, cdi_is_looked_for(output) ? "A" : "Once it lies in /etc/cdi, a", plan->servers,
           plan->order->name);
    return 0;
}

/* ---- the command ---- */

/* CDI's rule: letters and digits, and between them _ - . and : as well. */
static bool cdi_is_name(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++) {
        bool inner = i > 0 && i < n - 1;
        if (!isalnum((unsigned char)name[i]) && !(inner && strchr("_-.:", name[i]) != NULL)) {
            return false;
        }
    }
    return n > 0;
}

static bool cdi_check(const struct cdi_order *order)
{
    const char *end = order->output == NULL ? NULL : strrchr(order->output, '.');
    if (!cdi_is_name(order->name)) {
        tow_cli_say("--name=%s is no name of a CDI device; use letters, digits, and _ - . : "
                    "between them",
                    order->name);
        return false;
    }
    if (order->output != NULL && (end == NULL || strcmp(end, ".json") != 0)) {
        tow_cli_say("--output=%s: the file's name must end with .json, or nobody reads it",
                    order->output);
        return false;
    }
    return true;
}

static const struct tow_flag cdi_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {NULL, "--name", "NAME", 'n'},
    {NULL, "--library-path", "FOLDERS", 'l'},
    {"-o", "--output", "FILE", 'o'},
    {NULL, NULL, NULL, 0},
};

static int cdi_main(int argc, char **argv)
{
    struct tow_flags flags = {.command = &tow_command_cdi, .argc = argc, .argv = argv, .at = 1};
    struct cdi_order order = {.name = CDI_NAME};
    const char *value;
    int key;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        order.server = key == 's' ? value : order.server;
        order.name = key == 'n' ? value : order.name;
        order.library_path = key == 'l' ? value : order.library_path;
        order.output = key == 'o' ? value : order.output;
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (!tow_flags_no_words(&flags) || !cdi_check(&order)) {
        return TOW_EXIT_USAGE;
    }
    struct cdi_plan *plan = calloc(1, sizeof *plan);
    struct tow_buf text;
    tow_buf_init(&text, CDI_FILE_MAX);
    int error = plan == NULL ? -ENOMEM : 0;
    if (error == 0) {
        plan->order = &order;
        error = cdi_plan_make(plan);
    }
    if (error == 0) {
        error = cdi_write(plan, &text);
    }
    if (error == 0) {
        error = cdi_put(plan, &text);
    }
    tow_buf_fini(&text);
    free(plan);
    return error < 0 ? TOW_EXIT_FAILED : 0;
}

const struct tow_command tow_command_cdi = {
    .name = "cdi",
    .summary = "give containers the GPUs of a server",
    .help =
        "towline cdi [-s ADDRESS] [--name NAME] [--library-path FOLDERS] [--output FILE]: prints a "
        "CDI\n"
        "file, by which podman, docker and containerd give a container the GPUs of a server.\n"
        "\n"
        "  towline cdi -s gpuhost --name lab --output /etc/cdi/towline-lab.json      as root\n"
        "  podman run --device towline/gpu=lab IMAGE python3 train.py\n"
        "\n"
        "The image stays as it is. Its container gets Towline's libraries, the socket or the keys "
        "of the\n"
        "server, and variables. Files that TOWLINE_TOKEN_FILE, TOWLINE_TLS_CA, TOWLINE_TLS_CERT "
        "and\n"
        "TOWLINE_TLS_KEY name when this is called are given to it, too: then whoever may start "
        "such a\n"
        "container uses the server with them.\n"
        "\n"
        "  -s, --server ADDRESS    HOST, tls://HOST or the path of a socket; else the one that "
        "`towline run`\n"
        "                          would use\n"
        "  --name NAME             the device is towline/gpu=NAME; all if none is named\n"
        "  --library-path FOLDERS  folders that LD_LIBRARY_PATH of the image has, with : between "
        "them: the\n"
        "                          variable is replaced\n"
        "  -o, --output FILE       written there; /etc/cdi/NAME.json is where everybody looks\n",
    .flags = cdi_flags,
    .run = cdi_main,
};
