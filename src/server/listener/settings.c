/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the settings anew, or asks the parent to. */
#include "server/listener/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void settings_ask(struct tows_parent_line *line, bool taken)
{
    const struct tows_parent_msg msg = {.ask = TOW_PARENT_DECIDE, .value = taken ? 1 : 0};
    struct tows_parent_news answer;
    int none[TOW_PARENT_FDS_MAX];
    tows_parent_line_ask(line, &msg, NULL, 0, &answer, none);
}

int tows_settings_read(struct tows_parent_line *line, int argc, char **argv,
                       struct tows_config *ret_config, int *ret_folder, char *why, size_t why_size)
{
    const struct tows_parent_msg msg = {.ask = TOW_PARENT_RELOAD};
    struct tows_parent_news answer = {.error = 0};
    int fds[TOW_PARENT_FDS_MAX];
    *ret_folder = -1;
    if (line == NULL) {
        int outcome = tows_config_load(argc, argv, ret_config, why, why_size);
        return outcome == TOW_CONFIG_GO ? 0 : -EINVAL;
    }
    int error = tows_parent_line_ask(line, &msg, NULL, 0, &answer, fds);
    if (error == 0 && pread(fds[0], ret_config, sizeof *ret_config, 0) != sizeof *ret_config) {
        error = -EIO;
        settings_ask(line, false); /* or the parent would have them for what it starts */
        if (fds[1] >= 0) {
            close(fds[1]);
            fds[1] = -1;
        }
    }
    if (error < 0) {
        snprintf(why, why_size, "%s", answer.text[0] != '\0' ? answer.text : strerror(-error));
    }
    if (fds[0] >= 0) {
        close(fds[0]);
    }
    *ret_folder = fds[1];
    return error;
}

void tows_settings_decide(struct tows_parent_line *line, struct tows_cache_writer *writer,
                          bool taken, int folder)
{
    if (line == NULL) {
        return;
    }
    settings_ask(line, taken);
    if (taken) {
        tows_cache_writer_move(writer, folder);
    } else if (folder >= 0) {
        close(folder);
    }
}
