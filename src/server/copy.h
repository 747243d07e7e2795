/* Copies between the client's memory and the device. */
#ifndef TOW_SERVER_COPY_H
#define TOW_SERVER_COPY_H

#include <stdint.h>

struct tow_session;

/* Sends the bytes of asynchronous downloads that the device has finished. Called before every reply
 * to a synchronising call and before every host function: what the program may look at then has
 * arrived. */
void tow_copy_flush(struct tow_session *session);
/* A context is about to end: what it still has to bring comes first, its page-locked memory is
 * forgotten. */
void tow_copy_drop_context(struct tow_session *session, uint32_t context);

#endif
