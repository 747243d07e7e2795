/* SPDX-License-Identifier: Apache-2.0 */
/* Where programs may have more GPU memory together than there is (overcommit = swap): before the
 * driver is asked for memory the listener is, so that there is room for it. It may put out the
 * memory of another session for that, and of this one when others need it (login/room.h).
 *
 * What is asked and answered lies in the memory that both share. One session a process. */
#ifndef TOW_SERVER_WORKER_ROOM_H
#define TOW_SERVER_WORKER_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct tows_session_stats;

/* From now on there is room only for what was asked for. `tell` lets the listener look at what it
 * is asked, `say` has a sentence for the program's user. */
void tows_room_begin(struct tows_session_stats *stats, void (*tell)(void),
                     void (*say)(const char *sentence));
/* Whether it has begun. Else there is room for everything. */
bool tows_room_is_on(void);
/* Whether all of `bytes` of a GPU have room. */
bool tows_room_has(unsigned device, uint64_t bytes);
/* Waits until they have. False: the listener says that there can be none. */
bool tows_room_hold(unsigned device, uint64_t bytes);
/* Others may have what is no longer needed. */
void tows_room_shrink(unsigned device, uint64_t (*needed)(unsigned device));
/* The session ends: nobody waits any more. */
void tows_room_let_go(void);

#endif
