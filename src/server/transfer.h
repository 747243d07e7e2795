/* Bulk data on its way in: DATA frames of a transfer that a command announced. */
#ifndef TOW_SERVER_TRANSFER_H
#define TOW_SERVER_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tow_session;

/* `chunk` gets the bytes in order, on the leading thread, borrowed for the call. `done` is called
 * once: after the last byte, or with ok false when the client gave up or the session ends. A
 * transfer of 0 bytes is done at once. */
struct tow_transfer_sink {
    void (*chunk)(void *user, uint64_t offset, const void *bytes, size_t size);
    void (*done)(void *user, bool ok);
    void *user;
};

/* Announces a transfer. Must be called before its first byte can come: by a no-reply handler, or
 * before the reply that lets the client send. -EEXIST for a number that is under way, -ENOMEM. */
int tow_transfer_expect(struct tow_session *session, uint32_t number, uint64_t size,
                        const struct tow_transfer_sink *sink);

/* One DATA frame, all of it at `at`. -EPROTO if it fits no transfer. */
int tow_transfer_take(struct tow_session *session, const uint8_t *at, uint32_t length);

/* Ends what is under way. */
void tow_transfer_end_all(struct tow_session *session);

#endif
