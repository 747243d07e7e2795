/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of towlined: one table of names serves the flags, the config file, --help and the
 * command line of a worker. */
#ifndef TOW_SERVER_CONFIG_H
#define TOW_SERVER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TOW_CONFIG_FILE "/etc/towline/towlined.conf"

enum {
    TOW_CONFIG_LISTEN_MAX = 16,
    TOW_CONFIG_TEXT_MAX = 512,
    TOW_CONFIG_WORDS_MAX = 4096,
    TOW_CONFIG_FILE_MAX = 64 << 10,
    TOW_CONFIG_LINE_MAX = 1024,
    TOW_CONFIG_ARGS_MAX = 48,
    TOW_CONFIG_CLASSES_MAX = 16,
    TOW_CONFIG_CLASS_NAME_MAX = 32,
    TOW_CONFIG_CLASS_WORDS_MAX = 2048,
};

/* A number of a class that it does not say: the setting of that name holds. */
#define TOW_CONFIG_UNSAID UINT64_MAX

/* A section [class NAME]: whose sessions it is for, and what these may have. */
struct tows_config_class {
    char name[TOW_CONFIG_CLASS_NAME_MAX + 1];
    unsigned line;                          /* of the file, where it begins */
    char users[TOW_CONFIG_CLASS_WORDS_MAX]; /* words with commas, as in the settings */
    char groups[TOW_CONFIG_CLASS_WORDS_MAX];
    char certificates[TOW_CONFIG_CLASS_WORDS_MAX];
    char networks[TOW_CONFIG_CLASS_WORDS_MAX];
    uint64_t gpu_memory, max_sessions, sessions_per_peer, session_memory, session_idle, reconnect;
    uint64_t priority, exclusive, wait, lease, share, compute;
};

/* The words of `priority`, by number. */
enum tows_config_priority { TOW_CONFIG_LOW, TOW_CONFIG_NORMAL, TOW_CONFIG_HIGH };
/* Of `exclusive`: a program never has a GPU alone; it may ask for that; each of them has it. */
enum tows_config_exclusive { TOW_CONFIG_SHARED, TOW_CONFIG_MAY_EXCLUDE, TOW_CONFIG_EXCLUDES };

/* No more GPU memory is promised than there is; it is; and that of idle ones is put out. */
enum tows_config_overcommit { TOW_CONFIG_FITS, TOW_CONFIG_PROMISES, TOW_CONFIG_SWAPS };

/* Of `scheduler`: sessions compute at the same time, as the GPU does it; they take turns;
 * their kernels run beside each other by NVIDIA's MPS. */
enum tows_config_scheduler { TOW_CONFIG_TOGETHER, TOW_CONFIG_TIME, TOW_CONFIG_MPS };

/* Numbers from `first` on; none: count is 0. */
struct tows_config_range {
    uint64_t first, count;
};

struct tows_config {
    char listen[TOW_CONFIG_LISTEN_MAX][TOW_CONFIG_TEXT_MAX];
    unsigned listen_count;
    char device[TOW_CONFIG_TEXT_MAX]; /* "": the real driver if it works, else the software GPU */
    char cupti[TOW_CONFIG_TEXT_MAX];  /* "": a toolkit's; "none"; or its path */
    uint64_t soft_devices;
    uint64_t soft_memory;                 /* bytes; 0: the backend chooses */
    uint64_t soft_capability;             /* 121 = 12.1; 0: the backend chooses */
    uint64_t soft_threads;                /* 0: all cores */
    uint64_t soft_fair;                   /* 1: peers share the cores, see usage.c */
    uint64_t soft_strict;                 /* 1: waits where NVIDIA's driver may */
    char soft_check[TOW_CONFIG_TEXT_MAX]; /* "TOOL:PATH" of `towline check`; of a private server */
    uint64_t soft_record;                 /* recorded, and compared so often, for tests; 0: never */
    uint64_t soft_suspend; /* suspended in front of every such command, for tests; 0: never */
    uint64_t idle_workers;
    uint64_t max_sessions;
    uint64_t sessions_per_peer;      /* 0: three quarters of them */
    uint64_t places;                 /* connections that no worker has yet */
    uint64_t places_per_peer;        /* of these; 0: all */
    uint64_t connections_per_second; /* of one peer; 0: any number */
    uint64_t gpu_memory;             /* bytes that a session may have of each GPU; 0: all */
    uint64_t session_memory;  /* bytes of host memory; 0, as below: a share of the machine's */
    uint64_t memory;          /* of all sessions */
    uint64_t memory_per_peer; /* of those of one peer */
    uint64_t session_idle;    /* seconds without a command; 0: for ever */
    uint64_t priority;        /* enum tows_config_priority */
    uint64_t exclusive;       /* enum tows_config_exclusive */
    uint64_t wait;            /* seconds that a program may wait in line */
    uint64_t lease;        /* seconds after which a session gives way to those who wait; 0: none */
    uint64_t mps_shared;   /* 1: with MPS all tenants share one user, and each other's faults */
    uint64_t scheduler;    /* enum tows_config_scheduler */
    uint64_t share;        /* weight of a session among those that take turns */
    uint64_t compute;      /* percent of a GPU's time that a session may have; 0: all */
    uint64_t overcommit;   /* enum tows_config_overcommit */
    uint64_t swap_quantum; /* seconds that a session which works keeps its memory, with SWAPS */
    uint64_t swap_memory;  /* host memory for sessions whose memory is put out; 0: half of all */
    uint64_t context_memory;   /* of a GPU, that a session takes beside its quota; UNSAID: usual */
    uint64_t reconnect;        /* seconds that a cut may last; 0: it ends the session */
    uint64_t session_threads;  /* that a client can make its worker start */
    uint64_t session_commands; /* that wait in its streams */
    uint64_t threads;          /* the same, of all; 0: half of what the machine allows */
    uint64_t session_files;    /* descriptors of a worker; 0: as many as it was given */
    uint64_t lanes;            /* further connections that a session may have for bulk data */
    uint64_t code_cache;       /* bytes; 0: none is kept */
    uint64_t code_cache_per_peer; /* that one tenant is charged for */
    uint64_t log_lines;           /* at once, see base/log.h */
    uint64_t session_log_lines;   /* that the worker of one may write at once */
    char cache_dir[TOW_CONFIG_TEXT_MAX];
    uint64_t socket_mode;
    char allow_users[TOW_CONFIG_WORDS_MAX]; /* words with commas; "": no list */
    char allow_groups[TOW_CONFIG_WORDS_MAX];
    char admin_users[TOW_CONFIG_WORDS_MAX]; /* who rule, beside root and this server's own user */
    uint64_t require_token;                 /* 1: over TCP nobody without a token */
    char token_file[TOW_CONFIG_TEXT_MAX];   /* "": the usual place */
    char tls_certificate[TOW_CONFIG_TEXT_MAX]; /* "": one of its own */
    char tls_key[TOW_CONFIG_TEXT_MAX];         /* "": in the same file */
    char tls_client_ca[TOW_CONFIG_TEXT_MAX];   /* "": no certificates of clients */
    char http[TOW_CONFIG_TEXT_MAX];            /* where the page and metrics are; "": nowhere */
    char http_name[TOW_CONFIG_WORDS_MAX];   /* hosts that a request may name; words with commas */
    char http_admins[TOW_CONFIG_WORDS_MAX]; /* users of tokens who see and end all sessions there */
    uint64_t http_dcgm;                     /* 1: metrics under the names of DCGM, too */
    uint64_t allow_anyone; /* 1: listen beyond this machine, without knowing who comes */
    uint64_t heartbeat;    /* seconds that a machine on a network may be silent; 0: for ever */
    uint64_t watchdog;     /* seconds that a worker may stand still; 0: for ever */
    uint64_t linger;       /* seconds that a worker may be there without its program */
    uint64_t grace;        /* seconds that sessions have when the server is told to end */
    char restart_dir[TOW_CONFIG_TEXT_MAX]; /* where sessions are found again; "": nowhere */
    uint64_t restart_wait;                 /* seconds that they wait for the server */
    uint64_t cgroups;                      /* 1: a control group for each worker, see cgroup.h */
    uint64_t walls;                        /* 1: workers give up rights, see walls.h */
    struct tows_config_range tenant_users; /* of which each tenant's workers get one */
    char user[TOW_CONFIG_TEXT_MAX]; /* whose the listener is where root starts it; "": nobody's */
    char usage_file[TOW_CONFIG_TEXT_MAX]; /* of ended sessions; "": none */
    uint64_t usage_size;                  /* bytes; 0: it grows */
    char log[TOW_CONFIG_TEXT_MAX];
    char log_format[TOW_CONFIG_TEXT_MAX]; /* "": text, or as TOWLINE_LOG_FORMAT says */
    unsigned class_count;                 /* of the file alone */

    /* Flags only. */
    char file[TOW_CONFIG_TEXT_MAX]; /* the config file that was read; "": none */
    bool worker;
    bool shaker;
    bool web;        /* the process that answers over HTTP */
    bool tls_make;   /* the shaker: makes a key where there is none */
    uint64_t become; /* the shaker, once it has the key, and web: whose it is; 0: nothing changes */
    bool tls;        /* a worker: its connection may be of TLS */
    uint64_t slot;   /* which address slot a worker takes */
    uint64_t watch_pid; /* end when this process ends (a private server); 0: do not watch */
    uint64_t ready_fd;  /* where a private server says that it listens; 0: nowhere */
    char private_dir[TOW_CONFIG_TEXT_MAX]; /* of a private server: removed at its end */
    /* The last: only `class_count` of them are anything, and a worker has none. */
    struct tows_config_class classes[TOW_CONFIG_CLASSES_MAX];
};

/* What tows_config_load wants its caller to do. */
enum tows_config_outcome { TOW_CONFIG_GO, TOW_CONFIG_HELP, TOW_CONFIG_VERSION };

void tows_config_defaults(struct tows_config *config);
/* Whether it names the software GPU; without a name it is taken where no other works. */
bool tows_config_wants_soft(const struct tows_config *config);

/* Defaults, then the config file, then the flags. Positive: enum tows_config_outcome. -EINVAL (or
 * another error) with one sentence in `why`. */
int tows_config_load(int argc, char **argv, struct tows_config *ret_config, char *why,
                     size_t why_size);

/* One file of `key = value` lines and sections into `config`. -ENOENT if it is not there. */
int tows_config_read_file(struct tows_config *config, const char *path, char *why, size_t why_size);

/* "name=value,name=value" into `config`; `where` is for the sentence. */
int tows_config_apply(struct tows_config *config, const char *list, const char *where, char *why,
                      size_t why_size);

/* What cannot change while a server runs stays as in `running`. Whether other addresses,
 * permissions of sockets, another user or other walls were asked for. */
bool tows_config_keep(struct tows_config *config, const struct tows_config *running);

/* The settings a worker needs, as flags in `ret_text`; `ret_args` point into it. Returns their
 * number. */
int tows_config_worker_args(const struct tows_config *config, char *ret_text, size_t size,
                            char *ret_args[TOW_CONFIG_ARGS_MAX]);

/* "16G", "512M", "4096": bytes. "12.1": 121. */
int tows_config_parse_size(const char *text, uint64_t *ret_size);
int tows_config_parse_capability(const char *text, uint64_t *ret_capability);

void tows_config_print_help(void);

#endif
