/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: how a shm line starts. */
#ifndef TOW_TRANSPORT_SHM_H
#define TOW_TRANSPORT_SHM_H

#include "transport/line.h"
#include "transport/transport.h"

/* The first bytes of a client that wants shared memory; no frame can start like this. */
#define TOW_SHM_MAGIC "TOWLSHM\0"
#define TOW_SHM_MAGIC_SIZE 8

/* Looks at the first `n` bytes of a client, which begin with the magic: its preface (borrowed from
 * them; empty if it has none) and 0, or -EAGAIN while bytes are missing. With a sentence:
 * -EPROTONOSUPPORT if it speaks another version (tow_shm_write_refusal tells it ours), or -EPROTO.
 */
int tow_shm_read_request(const uint8_t *bytes, size_t n, struct tow_preface *ret_preface,
                         char *ret_why, size_t size);

/* The server's end, on a socket whose client has sent the magic; drops the preface, which was for
 * whoever chose this process. Owns fd in any case. */
int tow_shm_serve(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                  struct tow_line **ret_line);

/* Answers without memory. While the server has no worker ready: the client waits on; in line, at
 * that place of so many, for that (enum tow_wait_for), or place 0: not in line. */
#define TOW_SHM_ANSWER_SIZE 32u
void tow_shm_write_patience(uint32_t place, uint32_t of, uint32_t wait_for, uint8_t *ret_bytes);
/* The client will not get any: it is told our version, whether it may later, and a sentence.
 * Returns the size. */
#define TOW_SHM_REFUSAL_MAX (TOW_SHM_ANSWER_SIZE + TOW_WHY_MAX)
size_t tow_shm_write_refusal(const char *sentence, bool later,
                             uint8_t ret_bytes[TOW_SHM_REFUSAL_MAX]);

#endif
