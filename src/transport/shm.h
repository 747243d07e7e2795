/* Inside of this folder: how a shm line starts. */
#ifndef TOW_TRANSPORT_SHM_H
#define TOW_TRANSPORT_SHM_H

#include "transport/line.h"

/* The first bytes of a client that wants shared memory; no frame can start like this. */
#define TOW_SHM_MAGIC "TOWLSHM\0"
#define TOW_SHM_MAGIC_SIZE 8

/* The server's end, on a socket whose client has sent the magic. Owns fd in any case. */
int tow_shm_serve(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                  struct tow_line **ret_line);

/* What a server says while it has no worker ready: the client waits on. */
#define TOW_SHM_PATIENCE_SIZE 32u
void tow_shm_write_patience(uint8_t *ret_bytes);

#endif
