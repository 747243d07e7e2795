/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: read with a maximum, written so that a reader sees old or new, never half. */
#ifndef TOW_BASE_FILE_H
#define TOW_BASE_FILE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Appends the file's content to `buf`, whose maximum holds: -E2BIG if there is more. Works for
 * files in /proc and pipes too (the size is not trusted). */
int tow_file_read(const char *path, struct tow_buf *buf);

/* Writes a temporary file beside `path`, then renames it. The folder must exist. */
int tow_file_write_atomic(const char *path, const void *bytes, size_t n, mode_t mode);

/* A file of several processes: `%p` in its name is this one's number. -ENAMETOOLONG; `ret_path` has
 * PATH_MAX bytes. */
int tow_file_of_process(const char *name, char *ret_path);

/* Creates the folder and its missing parents (0755, or 0700 where `private` is set: for the last
 * one only). An existing folder is fine. */
int tow_file_mkdir_all(const char *path, bool private);

/* The same for the folder that the file `path` is in. */
int tow_file_mkdir_for(const char *path, bool private);

/* Takes turns with others who change the file `path`, by a lock on PATH.lock beside it: the file
 * itself is another one after each change. Makes the folder (0700) and PATH.lock, which stays.
 * Waits; close() of the descriptor that it returns lets go. */
int tow_file_lock(const char *path);

/* Writes all bytes, whatever the kernel takes at a time. */
int tow_file_write_all(int fd, const void *bytes, size_t n);

/* Where this user's caches live: /var/cache/towline for a daemon that runs as root (`daemon`),
 * otherwise $XDG_CACHE_HOME/towline or ~/.cache/towline. Not created. -ENOENT when there is no
 * home, -ENAMETOOLONG. */
int tow_file_cache_dir(bool daemon, char *ret_path, size_t size);

/* A file of the user's own settings: $XDG_CONFIG_HOME/towline/NAME, or ~/.config/towline/NAME.
 * -ENOENT: neither is set. */
int tow_file_user_config(const char *name, char *ret_path, size_t size);

/* Where a server that runs as root listens, for all users of the machine. */
#define TOW_FILE_MACHINE_SOCKET "/run/towline.sock"

/* The default unix socket: the machine's as root, $XDG_RUNTIME_DIR/towline.sock otherwise. */
int tow_file_default_socket(char *ret_path, size_t size);

#endif
