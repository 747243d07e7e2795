/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: memory for what a program must not leave anywhere, a token or a key. It is
 * not in core dumps, nor in children that the program forks meanwhile. */
#ifndef TOW_TRANSPORT_SECRET_PAGE_H
#define TOW_TRANSPORT_SECRET_PAGE_H

#include <stddef.h>

/* Pages of its own, all zero. NULL: there is no memory. */
void *tow_secret_page_make(size_t size);
/* Wipes them and gives them back. */
void tow_secret_page_forget(void *page, size_t size);

#endif
