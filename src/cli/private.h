/* SPDX-License-Identifier: Apache-2.0 */
/* A server for one program's life, where none was named and none is found. */
#ifndef TOW_CLI_PRIVATE_H
#define TOW_CLI_PRIVATE_H

#include <stddef.h>

/* A setting that it gets: a flag of towlined and its value. */
struct tow_private_setting {
    const char *flag, *value;
};
enum { TOW_PRIVATE_SETTINGS_MAX = 16 };

/* Starts towlined (found beside `bin_dir`) in a folder of its own. It is nobody's child, watches
 * this process (which may become another program) and ends, with its folder, when that ends.
 * `device` may be NULL. Settings that it does not understand it names on stderr. Writes its address
 * and what it serves ("soft ..."). -EIO with a sentence in `why`. */
int tow_private_start(const char *bin_dir, const char *device,
                      const struct tow_private_setting *settings, unsigned setting_count,
                      char *ret_address, size_t address_size, char *ret_serves, size_t serves_size,
                      char *why, size_t why_size);

#endif
