/* SPDX-License-Identifier: Apache-2.0 */
/* How much of this machine the server may use, as the kernel says. */
#ifndef TOW_SERVER_MACHINE_H
#define TOW_SERVER_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads a file that the kernel makes up, as /proc/PID/status or one of a control group, as text;
 * -Exxx. One read is enough for these. `name` is below the folder `folder`, or AT_FDCWD. */
enum { TOW_MACHINE_TEXT = 4096 };
int tows_machine_read(int folder, const char *name, char ret_text[TOW_MACHINE_TEXT]);

/* Host memory: all of it, or what the control groups leave that this process is in. */
uint64_t tows_machine_memory(void);
/* The least that control groups leave: `list` is a file as /proc/self/cgroup, `root` where they are
 * mounted. UINT64_MAX: they say nothing. */
uint64_t tows_machine_group_memory(const char *list, const char *root);

/* Threads and processes, of all users. */
uint64_t tows_machine_threads(void);

/* What a process does, and what it holds, in bytes of host memory: its own (private), and shared
 * with others. */
struct tows_machine_process {
    char state;  /* as /proc has it: 'T' stopped, 'D' asleep in the kernel */
    bool traced; /* a debugger has it */
    uint64_t anonymous, shared;
    unsigned threads;
    unsigned descriptors; /* 0: the kernel (before Linux 6.2) does not tell */
};
/* 0, or why /proc does not tell; a process that has ended holds nothing. */
int tows_machine_look(pid_t pid, struct tows_machine_process *ret_process);

/* When it began, in the kernel's ticks since the machine did. */
int tows_machine_born(pid_t pid, uint64_t *ret_ticks);

/* Gives all threads of a process of ours this nice value; they can be given less time, never more.
 */
void tows_machine_yield(pid_t pid, int nice);

#endif
