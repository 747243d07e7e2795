/* SPDX-License-Identifier: Apache-2.0 */
/* What a driver writes to its process's stdout (device printf) and stderr (a failed device assert):
 * sent to the client instead. */
#ifndef TOW_SERVER_OUTPUT_H
#define TOW_SERVER_OUTPUT_H

#include "backend/backend.h"

/* For a backend without `print`: gives it the print functions and `flush_output`, and takes over
 * this process's stdout and stderr; the log goes on to where stderr led. Once a process, in a
 * worker.
 *
 * What goes through stdio's stdout is forwarded at once, while the call that makes the driver print
 * is carried out. What is written to the descriptors, and all that goes to stderr, passes through
 * pipes: a thread forwards it as soon as it is seen, and flushing waits for what was written
 * before. stderr text that comes before a session goes to the log. */
int tows_output_capture(struct tow_backend *backend);

#endif
