/* Copies from the client's memory to the device, in one dimension. */
#ifndef TOW_SERVER_UPLOAD_H
#define TOW_SERVER_UPLOAD_H

#include <stdint.h>

struct tow_session;

/* A context is about to end: waits for the device to have read what was uploaded to it. */
void tow_upload_drop_context(struct tow_session *session, uint32_t context);

#endif
