/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: what the checks of `towline doctor` share. */
#ifndef TOW_CLI_DOCTOR_H
#define TOW_CLI_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/json_write.h"
#include "cli/cli.h"

enum tow_doctor_level {
    TOW_DOCTOR_GOOD,
    TOW_DOCTOR_HINT,    /* good to know */
    TOW_DOCTOR_WARNING, /* a program runs, but slowly, or some do not */
    TOW_DOCTOR_WRONG,   /* a program would not run, or not on the GPU that was meant */
    TOW_DOCTOR_LEVELS,
};

/* One visit. Findings are printed as they are made, or with --json at the end. */
struct tow_doctor {
    bool json;
    const char *flag;    /* -s; NULL: none */
    const char *program; /* as it was named; NULL: none */
    const char *group;   /* that the next findings are of */
    unsigned count[TOW_DOCTOR_LEVELS];
    char bin_dir[PATH_MAX], lib_dir[PATH_MAX];
    bool installed;                       /* the two are known */
    char servers[TOW_CLI_ADDRESS_MAX];    /* those that answer; "": none */
    bool served;                          /* every server that is to be used answers */
    struct tow_doctor_figures {           /* 0: not measured */
        double launch_us, up_gb, down_gb; /* a launch and its end; GB/s */
    } figures;
    struct tow_buf text; /* of --json */
    struct tow_json out;
    bool open;                  /* a finding has no end there yet */
    enum tow_doctor_level last; /* of the last finding */
};

/* Heads the findings that follow. */
void tow_doctor_group(struct tow_doctor *doctor, const char *group);
/* A finding: `check` is its name for programs, then a sentence without a full stop. */
void tow_doctor_say(struct tow_doctor *doctor, enum tow_doctor_level level, const char *check,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The command, or what else is to be done, that mends the last one. */
void tow_doctor_mend(struct tow_doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* With --json: nothing more belongs to the last one. */
void tow_doctor_close(struct tow_doctor *doctor);

/* Runs a program to its end, with stdout and stderr together in `said`, NUL-terminated; after
 * `seconds` it is killed. `prepare` is called in the child before. How it ended, as of waitpid, or
 * -ETIMEDOUT or another error. */
int tow_doctor_run(const char *const *args, void (*prepare)(const void *user), const void *user,
                   int seconds, struct tow_buf *said);

/* The groups, in their order. */
void tow_doctor_settings(struct tow_doctor *doctor);
void tow_doctor_loader(struct tow_doctor *doctor);
void tow_doctor_server(struct tow_doctor *doctor);
void tow_doctor_speed(struct tow_doctor *doctor);
void tow_doctor_rights(struct tow_doctor *doctor);

/* What doctor_loader found out by the loader's own words: the line of each library that was not
 * found is judged. */
void tow_doctor_libraries(struct tow_doctor *doctor, const char *program, const char *said);

/* What a file is to the loader. */
enum tow_doctor_kind {
    TOW_DOCTOR_PROGRAM,
    TOW_DOCTOR_LIBRARY, /* it has no loader of its own */
    TOW_DOCTOR_STATIC,  /* a program without a loader */
    TOW_DOCTOR_FOREIGN, /* of another kind of processor, or of 32 bits */
    TOW_DOCTOR_NO_ELF,
};
/* Looks at the file's heads. `ret_loader` has PATH_MAX bytes, "" where there is none. -errno where
 * it cannot be read. */
int tow_doctor_elf_read(const char *path, enum tow_doctor_kind *ret_kind, char *ret_loader);

#endif
