/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk data on its way in: DATA frames of a transfer that a command announced. */
#ifndef TOW_SERVER_TRANSFER_H
#define TOW_SERVER_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tow_data;
struct tow_frame;
struct tow_line;
struct tows_session;

/* Where the bytes of a transfer go: in order, on the leading thread; those of a `spread` one in any
 * order and on several threads at a time.
 *
 * With `place` they are received where it says: it gives the room for the bytes from `offset` on
 * and may lower *size (to at least 1), or gives NULL to have them thrown away. `filled` follows
 * when they are there, with the same token, and with size 0 if they never came. Without `place`,
 * which a spread transfer must have, `chunk` gets the bytes, borrowed for the call.
 *
 * `done` is called once: after the last byte, or with ok false when the client gave up or the
 * session ends. A transfer of 0 bytes is done at once. */
struct tows_transfer_sink {
    void *(*place)(void *user, uint64_t offset, size_t *size, void **ret_token);
    void (*filled)(void *user, uint64_t offset, size_t size, void *token);
    void (*chunk)(void *user, uint64_t offset, const void *bytes, size_t size);
    void (*done)(void *user, bool ok);
    void *user;
    bool spread;
};

/* Announces a transfer. Must be called before its first byte can come: by a no-reply handler, or
 * before the reply that lets the client send. -EEXIST for a number that is under way, -ENOSPC when
 * too many are, -ENOMEM. */
int tows_transfer_expect(struct tows_session *session, uint32_t number, uint64_t size,
                         const struct tows_transfer_sink *sink);

/* Takes one DATA frame off the line, of which the header was read but not consumed. -EPROTO if it
 * fits no transfer; what the line says if it ends. */
int tows_transfer_take(struct tows_session *session, const struct tow_frame *frame);

/* The same for a frame that came on a lane, of which the head was consumed: bytes of a spread
 * transfer, which may not have been announced yet. */
int tows_transfer_take_lane(struct tows_session *session, struct tow_line *line,
                            const struct tow_data *data);

/* Ends what is under way. */
void tows_transfer_end_all(struct tows_session *session);

/* Something was made impossible to find, and is to be destroyed: waits for those who have looked it
 * up for bytes that came, and hand them to the device just now. */
void tows_transfer_wait_users(struct tows_session *session);

#endif
