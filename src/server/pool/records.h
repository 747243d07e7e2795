/* SPDX-License-Identifier: Apache-2.0 */
/* The file with a line for each session that has ended, from which `towline usage` counts: whose it
 * was, how long it took and waited, what it moved and had. */
#ifndef TOW_SERVER_RECORDS_H
#define TOW_SERVER_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tows_config;
struct tows_worker;

struct tows_records {
    int fd, older; /* owned: the file, and FILE.1 with what was in it before; -1: there is none */
    uint64_t max;  /* bytes, after which the one becomes the other; 0: never */
    bool told;     /* the log has said that it cannot be written */
};

/* Opens what the settings name, with the rights of whoever starts the server: later it may have
 * none. Nothing where they name none. -Exxx with a sentence. */
int tows_records_open(struct tows_records *records, const struct tows_config *config, char *why,
                      size_t why_size);
/* A session has ended; `status` as tows_audit_tell has it. */
void tows_records_tell(struct tows_records *records, const struct tows_worker *worker, int status);
void tows_records_close(struct tows_records *records);

#endif
