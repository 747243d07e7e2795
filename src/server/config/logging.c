/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses what is logged, and the format: stamps are for a service whose log nobody else stamps. */
#include "server/config/logging.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* The format's name for this process and its workers, which cannot tell where lines go. NULL: what
 * is set is none. */
static const char *logging_format(const struct tows_config *config)
{
    const char *set = config->log_format, *variable = getenv("TOWLINE_LOG_FORMAT");
    if (config->worker) {
        return set[0] != '\0' ? set : "text";
    }
    if (set[0] != '\0' && strcmp(set, "text") != 0 && strcmp(set, "json") != 0) {
        return NULL;
    }
    if (strcmp(set[0] == '\0' && variable != NULL ? variable : set, "json") == 0) {
        return "json";
    }
    /* A private server's lines come between those of its program. */
    return config->watch_pid != 0 ? "plain" : tow_log_goes_to_journal() ? "journal" : "text";
}

int tows_logging_read(struct tows_config *config, char *why, size_t why_size)
{
    enum tow_log_format format;
    const char *name = logging_format(config);
    if (name == NULL || tow_log_parse_format(name, &format) < 0) {
        snprintf(why, why_size, "log-format = %s cannot be understood; write text or json",
                 config->log_format);
        return -EINVAL;
    }
    if (config->log[0] == '\0' && getenv("TOWLINE_LOG") == NULL && config->watch_pid == 0 &&
        !config->worker) {
        /* A service says what it does; a private server is heard only when something is wrong. */
        snprintf(config->log, sizeof config->log, "info");
    }
    if (!tow_log_understands(config->log)) {
        snprintf(why, why_size,
                 "log = %s cannot be understood; write for example info or server=debug",
                 config->log);
        return -EINVAL;
    }
    if (name != config->log_format) {
        snprintf(config->log_format, sizeof config->log_format, "%s", name);
    }
    return 0;
}

void tows_logging_apply(const struct tows_config *config)
{
    enum tow_log_format format;
    const char *variable = getenv("TOWLINE_LOG");
    if (config->log[0] != '\0') {
        tow_log_configure(config->log);
    } else if (variable != NULL) {
        tow_log_configure(variable); /* what cannot be understood was told at the start */
    }
    if (tow_log_parse_format(config->log_format, &format) == 0) {
        tow_log_set_format(format);
    }
    tow_log_set_limit((unsigned)config->log_lines);
}
