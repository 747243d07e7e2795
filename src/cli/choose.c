/* Which server: the flag, TOWLINE_SERVER, the config files, the default socket if it answers. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

enum { CLIENT_FILE_MAX = 64 << 10 };

static int keep(const char *address, int choice, char *ret_address, char *why, size_t why_size)
{
    if (strlen(address) >= TOW_CLI_ADDRESS_MAX) {
        snprintf(why, why_size, "the server address is too long");
        return -ENAMETOOLONG;
    }
    strcpy(ret_address, address);
    return choice;
}

/* `server = ADDRESS` of a client's config file: 1 if it has one. */
static int read_client_file(const char *path, char *ret_address, char *why, size_t why_size)
{
    struct tow_buf text;
    tow_buf_init(&text, CLIENT_FILE_MAX);
    int found = 0;
    if (tow_file_read(path, &text) == 0 && tow_buf_append(&text, "", 1) == 0) {
        char *rest = (char *)text.data;
        for (char *line = strtok_r(rest, "\n", &rest); line != NULL && found == 0;
             line = strtok_r(NULL, "\n", &rest)) {
            line += strspn(line, " \t");
            if (strncmp(line, "server", 6) != 0) {
                continue;
            }
            line += 6;
            line += strspn(line, " \t");
            if (*line != '=') {
                continue;
            }
            line++;
            line += strspn(line, " \t");
            size_t length = strcspn(line, " \t\r#");
            line[length] = '\0';
            found = length == 0 ? 0 : keep(line, 1, ret_address, why, why_size);
        }
    }
    tow_buf_fini(&text);
    return found;
}

int tow_choose_server(const char *flag, char *ret_address, char *why, size_t why_size)
{
    if (flag != NULL) {
        return keep(flag, TOW_CHOICE_FLAG, ret_address, why, why_size);
    }
    const char *variable = getenv("TOWLINE_SERVER");
    if (variable != NULL && variable[0] != '\0') {
        return keep(variable, TOW_CHOICE_ENVIRONMENT, ret_address, why, why_size);
    }
    char path[TOW_CLI_ADDRESS_MAX];
    const char *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    path[0] = '\0';
    if (config != NULL && config[0] == '/') {
        snprintf(path, sizeof path, "%s/towline/towline.conf", config);
    } else if (home != NULL && home[0] == '/') {
        snprintf(path, sizeof path, "%s/.config/towline/towline.conf", home);
    }
    const char *const files[] = {path, "/etc/towline/towline.conf"};
    for (size_t i = 0; i < 2; i++) {
        int found =
            files[i][0] == '\0' ? 0 : read_client_file(files[i], ret_address, why, why_size);
        if (found != 0) {
            return found < 0 ? found : TOW_CHOICE_FILE;
        }
    }
    if (tow_file_default_socket(path, sizeof path) == 0) {
        char address[TOW_CLI_ADDRESS_MAX + 16];
        char ignored[TOW_WHY_MAX];
        struct tow_line *line;
        snprintf(address, sizeof address, "unix://%s", path);
        if (tow_transport_connect(address, tow_time_deadline(TOW_TIME_S), ignored, sizeof ignored,
                                  &line) == 0) {
            tow_line_close(line);
            return keep(address, TOW_CHOICE_SOCKET, ret_address, why, why_size);
        }
    }
    return TOW_CHOICE_NONE;
}
