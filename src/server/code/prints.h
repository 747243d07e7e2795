/* Whether the client's code can print: only then must the driver's own synchronisation run before
 * the program goes on, because it gives out the text. */
#ifndef TOW_SERVER_PRINTS_H
#define TOW_SERVER_PRINTS_H

#include <stdbool.h>

struct tow_code_image;
struct tow_session;

/* New code is about to be loaded. The image stays until `tow_code_unref` was called for it as often
 * as it was taken; this takes it once where it has to be unpacked, which happens beside. */
void tow_prints_look(struct tow_session *session, struct tow_code_image *image);

/* False once all code of the session is known not to print. */
bool tow_prints_maybe(struct tow_session *session);

#endif
