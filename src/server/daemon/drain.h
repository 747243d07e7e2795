/* SPDX-License-Identifier: Apache-2.0 */
/* `towlined drain`: asks the server of this machine to serve no new programs. */
#ifndef TOW_SERVER_DRAIN_H
#define TOW_SERVER_DRAIN_H

/* The flags are the server's: they, or the config file, say where it listens. The exit code. */
int tows_drain_main(int argc, char **argv);

#endif
