/* Device printf of a driver that writes it to the process's stdout (the real one): sent to the
 * client instead. */
#ifndef TOW_SERVER_OUTPUT_H
#define TOW_SERVER_OUTPUT_H

#include "backend/backend.h"

/* For a backend without `print`: gives it one, and takes over this process's stdout. Once a
 * process, in a worker. A driver that prints through stdio does so while the call that makes it
 * print is carried out, so the text reaches the client before that call's reply; what is written to
 * the descriptor itself follows as soon as it is seen. */
int tow_output_capture(struct tow_backend *backend);

#endif
