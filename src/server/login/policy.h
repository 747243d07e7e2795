/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets what: which class a peer is of, with which limits its program runs, and when its session
 * must end for these (admission.h: whether it may start). All of it is decided here, from what the
 * caller counts and from the time that it says: nothing here looks at a worker, a clock or a
 * socket. */
#ifndef TOW_SERVER_POLICY_H
#define TOW_SERVER_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/login/allow.h"
#include "server/login/who.h"
#include "wire/control.h"

enum { TOW_POLICY_NETWORKS_MAX = 64, TOW_POLICY_WHY_MAX = 320, TOW_POLICY_FROM_MAX = 64 };

/* The class of whoever is in no other. */
#define TOW_POLICY_DEFAULT "default"

/* What one session may have, from its beginning to its end. */
struct tows_limits {
    uint64_t gpu_memory;                       /* bytes of each GPU; 0: all */
    char gpu_memory_from[TOW_POLICY_FROM_MAX]; /* who says so: "gpu-memory of class x" */
    uint64_t session_memory;                   /* bytes of host memory */
    uint64_t session_idle;                     /* seconds without a command; 0: for ever */
    uint64_t lease;            /* seconds after which it gives way to those who wait; 0: never */
    uint32_t priority;         /* enum tows_config_priority */
    uint32_t share;            /* its weight among those that compute */
    uint32_t compute;          /* percent of a GPU's time that it may have; 0: all */
    bool turns;                /* it takes turns with those */
    bool swaps;                /* others' GPU memory, and its own, is put out where it is short */
    bool exclusive, forbidden; /* has the GPUs alone; asks for that and may not */
    uint64_t reconnect;        /* seconds that a cut may last; 0: it is the end */
};

struct tows_network {
    uint32_t kind; /* TOW_WHO_IPV4 or TOW_WHO_IPV6 */
    uint8_t address[8];
    unsigned bits;
};

struct tows_policy_class {
    char name[TOW_WHO_NAME_MAX + 1];
    uint32_t users[TOW_ALLOW_MAX], groups[TOW_ALLOW_MAX];
    unsigned user_count, group_count;
    char certificates[TOW_CONFIG_CLASS_WORDS_MAX]; /* names with commas */
    struct tows_network networks[TOW_POLICY_NETWORKS_MAX];
    unsigned network_count;
    /* TOW_CONFIG_UNSAID: the setting of that name holds. */
    uint64_t gpu_memory, max_sessions, sessions_per_peer, session_memory, session_idle, reconnect;
    uint64_t priority, exclusive, wait, lease, share, compute;
};

struct tows_policy {
    struct tows_policy_class classes[TOW_CONFIG_CLASSES_MAX];
    unsigned count;
};

/* The classes of the settings, names looked up. -EINVAL with one sentence in `why`. */
int tows_policy_read(const struct tows_config *config, struct tows_policy *ret_policy, char *why,
                     size_t why_size);

/* Whether what the settings say of NVIDIA's MPS goes together; -EINVAL with one sentence. */
int tows_policy_check_mps(const struct tows_config *config, char *why, size_t why_size);
/* Whether the backend can put memory out by itself, where overcommit = swap asks for that. */
int tows_policy_check_swap(const struct tows_config *config, const char *backend, char *why,
                           size_t why_size);

/* Whether the peer is in one of these groups; `user` is the caller's own. */
typedef bool tows_policy_in_groups_fn(void *user, const uint32_t *groups, unsigned count);

/* The class of a peer: a token's is the one that was given with it; a user, a certificate's name
 * and an address are in the first class that names them; whoever is in none is in the default one.
 * NULL: there is none of that name, and the settings alone hold. */
const struct tows_policy_class *tows_policy_class_of(const struct tows_policy *policy,
                                                     const struct tows_who *who,
                                                     tows_policy_in_groups_fn *in_groups,
                                                     void *user);
/* The one of that name, or NULL. */
const struct tows_policy_class *tows_policy_find(const struct tows_policy *policy,
                                                 const char *name);

/* The limits of a session that begins now. `gpu_memory` (0: nothing) and `wish` are what its
 * program asks for: it gets no more than that, and never more than its class has. */
struct tows_limits tows_policy_limits(const struct tows_config *config,
                                      const struct tows_policy_class *class, uint64_t gpu_memory,
                                      const struct tow_wish *wish);

/* How many sessions one peer may have: of a server for many nobody gets all, unless it says so. */
uint64_t tows_policy_sessions_per_peer(const struct tows_config *config,
                                       const struct tows_policy_class *class);

/* What a session is found to do. */
struct tows_policy_use {
    uint64_t host_memory;
    int64_t moved_ns; /* when its program last wanted something */
};

/* Whether a session must end for its own limits; then why, a sentence without an end. */
bool tows_policy_must_end(const struct tows_limits *limits, const struct tows_policy_use *use,
                          int64_t now_ns, char ret_why[TOW_POLICY_WHY_MAX]);

#endif
