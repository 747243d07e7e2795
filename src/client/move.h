/* The program's memory changes from private to shared and back under the feet of its threads.
 *
 * Its pages are moved away as a whole (mremap), their bytes are copied, and the new mapping is put
 * in their place. Meanwhile the range is watched by userfaultfd: who touches it, in system calls as
 * well, sleeps until it is there, so no write is lost. Nobody answers those faults; the end wakes
 * all.
 *
 * While a range is away nothing may be looked at that could lie in it, or that a thread could hold
 * which waits for it: no malloc, no lock, no log line, no signal handler. The gang (client/gang.h)
 * helps to copy: its threads look at nothing else, and whoever has it for memory that is away has
 * it alone. One caller at a time, and no fork meanwhile.
 */
#ifndef TOW_CLIENT_MOVE_H
#define TOW_CLIENT_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether this system permits it and does all that is needed. */
bool tow_move_ready(void);

/* A mapping, or a part of one. */
struct tow_move_part {
    uint64_t low, size;
};

/* Private memory, parts that follow upon each other, becomes the memfd's, which is as large. On
 * failure all is as it was. */
int tow_move_in(const struct tow_move_part *parts, unsigned count, int memfd);
/* A mapping of a memfd becomes private memory again; `alias` has the same bytes, and loses them. */
int tow_move_out(uint64_t low, uint64_t size, uint8_t *alias, int protection);

#endif
