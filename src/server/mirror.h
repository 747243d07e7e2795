/* The worker's copies of host memory that the GPU reaches; see src/client/mirror.h. */
#ifndef TOW_SERVER_MIRROR_H
#define TOW_SERVER_MIRROR_H

#include <stddef.h>
#include <stdint.h>

struct tow_session;

/* Sends what the GPU changed, before the reply to a synchronising call. */
void tow_mirror_pull(struct tow_session *session);
/* A MIRROR frame's body came: what the program changed. */
int tow_mirror_take(struct tow_session *session, const uint8_t *records, size_t size);

#endif
