/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the client's code can print: only then must the driver's own synchronisation run before
 * the program goes on, because it gives out the text. */
#ifndef TOW_SERVER_PRINTF_SCAN_H
#define TOW_SERVER_PRINTF_SCAN_H

struct tows_code_image;
struct tows_session;

/* New code is about to be loaded: from now on tows_session_owes says so, unless it does not print.
 * The image stays until `tows_code_unref` was called for it as often as it was taken; this takes it
 * once where it has to be unpacked, which happens beside. */
void tows_printf_scan_look(struct tows_session *session, struct tows_code_image *image);

#endif
