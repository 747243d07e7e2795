/* SPDX-License-Identifier: Apache-2.0 */
/* The line that is left of each session: whose it was, from where, of which class, when it began,
 * how long it took and how it ended. */
#ifndef TOW_SERVER_AUDIT_H
#define TOW_SERVER_AUDIT_H

#include <stddef.h>

struct tows_worker;

/* In place of a status: the process is still there when this server ends. */
enum { TOW_AUDIT_STAYS = -1, TOW_AUDIT_END_MAX = 320 };
/* Or: it has ended, and was no child of this server, which was started after it. */
enum { TOW_AUDIT_UNKNOWN = -2 };

/* How it ended, for people. */
void tows_audit_end(const struct tows_worker *worker, int status, char *ret_text, size_t size);

/* A session has ended; `status` is its worker's, as waitpid says it. A worker may be in its
 * client's hands: by itself it decides only which of the ends without a server's word it was. */
void tows_audit_tell(const struct tows_worker *worker, int status);

#endif
