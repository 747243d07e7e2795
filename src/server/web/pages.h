/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the page, as they lie in src/server/web/page: put into the program by tools/embed.py. */
#ifndef TOW_SERVER_WEB_PAGES_H
#define TOW_SERVER_WEB_PAGES_H

#include <stddef.h>

struct tows_web_page {
    const char *path; /* NULL ends the list */
    const char *type;
    const unsigned char *bytes;
    size_t size;
};

extern const struct tows_web_page tows_web_pages[];

#endif
