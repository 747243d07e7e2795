/* SPDX-License-Identifier: Apache-2.0 */
/* No page yet. */
#include "server/web/pages.h"

const struct tows_web_page tows_web_pages[] = {{0}};
