/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that locks are taken in the order of base/locks.def, in builds that are meant to. */
#include "base/locks.h"

#ifdef TOW_LOCKS_CHECKED

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
    const char *name, *guards;
    unsigned marks;
} rows[] = {
    {"no lock of src/base/locks.def", "", 0},
#define TOW_LOCK(name, marks, guards) {#name, guards, marks},
#include "base/locks.def"
#undef TOW_LOCK
};

typedef unsigned __int128 lock_mask;
_Static_assert(TOW_LOCK_NAMES <= 128, "a bit for each lock");

static __thread lock_mask held;

static lock_mask locks_bit(enum tow_lock_name name)
{
    return (lock_mask)1 << name;
}

static enum tow_lock_name last_of(lock_mask mask)
{
    enum tow_lock_name name = TOW_LOCK_NAMES - 1;
    while (name > 0 && (mask & locks_bit(name)) == 0) {
        name--;
    }
    return name;
}

/* Nothing here may take a lock of ours, so the log is left out. */
static _Noreturn void locks_die(const char *text, int length, size_t size)
{
    size_t bytes = length < 0 ? 0 : (size_t)length < size ? (size_t)length : size - 1;
    ssize_t unused = write(STDERR_FILENO, text, bytes);
    (void)unused;
    abort();
}

#define DIE(...)                                                                                   \
    do {                                                                                           \
        char text_[400];                                                                           \
        locks_die(text_, snprintf(text_, sizeof text_, __VA_ARGS__), sizeof text_);                \
    } while (0)

void tow_locks_check(enum tow_lock_name name)
{
    if (name == TOW_LOCK_NAMELESS) {
        DIE("towline: a lock is taken that was never initialised with a name of "
            "src/base/locks.def.\n");
    }
    if ((held >> name) == 0) {
        return;
    }
    enum tow_lock_name last = last_of(held);
    if (last == name) {
        DIE("towline: a thread that holds %s (%s) takes a lock of the same name: nobody holds two "
            "of them (src/base/locks.def).\n",
            rows[name].name, rows[name].guards);
    }
    DIE("towline: a thread that holds %s (%s) takes %s (%s), which stands before it in "
        "src/base/locks.def: take them in that order, or let go of the first.\n",
        rows[last].name, rows[last].guards, rows[name].name, rows[name].guards);
}

void tow_locks_taken(enum tow_lock_name name)
{
    if ((held & locks_bit(name)) != 0) { /* by trying: tow_locks_check was not asked */
        DIE("towline: a thread that holds %s (%s) got a lock of the same name: nobody holds two of "
            "them (src/base/locks.def).\n",
            rows[name].name, rows[name].guards);
    }
    held |= locks_bit(name);
}

void tow_locks_given(enum tow_lock_name name)
{
    if ((held & locks_bit(name)) == 0) {
        DIE("towline: a thread gives back %s (%s), which it does not hold.\n", rows[name].name,
            rows[name].guards);
    }
    held &= ~locks_bit(name);
}

void tow_locks_over(enum tow_lock_mark mark, const char *call)
{
    if (held == 0) {
        return;
    }
    for (unsigned name = 1; name < TOW_LOCK_NAMES; name++) {
        if ((held & locks_bit(name)) != 0 && (rows[name].marks & mark) == 0) {
            DIE("towline: a thread that holds %s (%s) calls %s, which may wait: its row in "
                "src/base/locks.def does not allow that.\n",
                rows[name].name, rows[name].guards, call);
        }
    }
}

void tow_locks_forget(void)
{
    held = 0;
}

#endif
