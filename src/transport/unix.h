/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: unix sockets, which shm starts from too. */
#ifndef TOW_TRANSPORT_UNIX_H
#define TOW_TRANSPORT_UNIX_H

#include "transport/line.h"

#include <sys/types.h>

/* `scheme` is "unix" or "shm", for the sentences. */
int tow_unix_check(const char *scheme, const char *rest, char *ret_why, size_t size);
int tow_unix_connect_fd(const char *scheme, const char *rest, int64_t deadline_ns, char *ret_why,
                        size_t size, int *ret_fd);
int tow_unix_listen_fd(const char *scheme, const char *rest, mode_t mode, char *ret_why,
                       size_t size, int *ret_fd, char *ret_address);
int tow_unix_adopt(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                   struct tow_line **ret_line);

#endif
