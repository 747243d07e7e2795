/* SPDX-License-Identifier: Apache-2.0 */
/* The phase that the process is in, and the list of its servers. */
#include "client/session/state.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Process-wide: cuInit is the process's, and a forked child is another process. */
static atomic_int phase_before; /* always 0: what towc_client_phase points at until cuInit */
atomic_int *towc_client_phase = &phase_before;

/* Process-wide: all servers of the program; the environment names them. Fixed once the phase is
 * READY, guarded by client/edge/core.c before. */
static struct towc_link *links[TOW_SERVERS_MAX]; /* borrowed, never closed while they are here */
static unsigned link_count;

/* ---- servers ---- */

unsigned towc_client_link_count(void)
{
    return link_count;
}

struct towc_link *towc_client_link_at(unsigned index)
{
    return index < link_count ? links[index] : NULL;
}

bool towc_client_link_add(struct towc_link *link)
{
    if (link_count == TOW_SERVERS_MAX) {
        return false;
    }
    links[link_count++] = link;
    return true;
}

void towc_client_links_clear(void)
{
    link_count = 0;
}

/* ---- the phase ---- */

static void forked_child(void)
{
    if (towc_client_phase != &phase_before) {
        atomic_store(towc_client_phase, TOW_PHASE_NONE);
    }
}

/* Process-wide: a program exits once. */
static atomic_bool exiting;

static void exit_begins(void)
{
    atomic_store(&exiting, true);
}

bool towc_client_is_exiting(void)
{
    return atomic_load(&exiting);
}

/* The phase goes into memory that a forked child finds cleared, however it was forked. */
void towc_client_phase_begin(void)
{
    /* Process-wide: the phase, for kernels without MADV_WIPEONFORK; pthread_atfork is left then. */
    static atomic_int plain;
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    atomic_int *word = &plain;
    if (page != MAP_FAILED) {
        if (madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK) == 0) {
            word = page;
        } else {
            munmap(page, (size_t)sysconf(_SC_PAGESIZE));
        }
    }
    pthread_atfork(NULL, NULL, forked_child);
    atexit(exit_begins); /* without room for it, an exit takes longer */
    atomic_store(word, TOW_PHASE_READY);
    __atomic_store_n(&towc_client_phase, word, __ATOMIC_RELEASE);
}

void towc_client_phase_end(void)
{
    atomic_store(towc_client_phase, TOW_PHASE_ENDED);
}
