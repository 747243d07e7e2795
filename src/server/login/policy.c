/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the classes of the settings, and decides. */
#include "server/login/policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

/* ---- reading ---- */

/* "10.1.0.0/16", "2001:db8::/32", or one address. */
static bool read_network(const char *word, struct tows_network *ret_network)
{
    char text[INET6_ADDRSTRLEN + 8];
    uint8_t address[16] = {0};
    struct tows_network network = {.kind = TOW_WHO_IPV4};
    if ((size_t)snprintf(text, sizeof text, "%s", word) >= sizeof text) {
        return false;
    }
    char *slash = strchr(text, '/');
    if (slash != NULL) {
        *slash++ = '\0';
    }
    unsigned most = 32;
    if (inet_pton(AF_INET, text, address) != 1) {
        /* Of an address of IPv6 the first half tells whose it is. */
        network.kind = TOW_WHO_IPV6;
        most = 64;
        if (inet_pton(AF_INET6, text, address) != 1) {
            return false;
        }
    }
    network.bits = most;
    if (slash != NULL) {
        char *end;
        unsigned long bits = strtoul(slash, &end, 10);
        if (*slash < '0' || *slash > '9' || *end != '\0' || bits > most) {
            return false;
        }
        network.bits = (unsigned)bits;
    }
    memcpy(network.address, address, sizeof network.address);
    *ret_network = network;
    return true;
}

static int read_networks(const char *list, const char *setting, struct tows_policy_class *class,
                         char *why, size_t why_size)
{
    char words[TOW_CONFIG_CLASS_WORDS_MAX];
    char *rest = words, *word;
    snprintf(words, sizeof words, "%s", list);
    while ((word = strsep(&rest, ", \t")) != NULL) {
        if (*word == '\0') {
            continue;
        }
        if (class->network_count == TOW_POLICY_NETWORKS_MAX) {
            snprintf(why, why_size, "%s: at most %d can be named", setting,
                     TOW_POLICY_NETWORKS_MAX);
            return -EINVAL;
        }
        if (!read_network(word, &class->networks[class->network_count])) {
            snprintf(why, why_size,
                     "%s: \"%.64s\" is no network; write addresses with the bits that count, as "
                     "10.1.0.0/16 or 2001:db8::/32 (of IPv6 64 at most), with commas between them",
                     setting, word);
            return -EINVAL;
        }
        class->network_count++;
    }
    return 0;
}

/* "FILE:LINE: class NAME: SETTING", for sentences. */
static const char *name_setting(const struct tows_config *config,
                                const struct tows_config_class *from, const char *setting,
                                char *ret_text, size_t size)
{
    snprintf(ret_text, size, "%s:%u: class %s: %s", config->file, from->line, from->name, setting);
    return ret_text;
}

/* What has no effect is a mistake. */
static int check_turns(const struct tows_config *config, const struct tows_config_class *from,
                       char *why, size_t why_size)
{
    bool shares = from->share != TOW_CONFIG_UNSAID;
    bool computes = from->compute != TOW_CONFIG_UNSAID;
    if (config->scheduler == TOW_CONFIG_TIME || !(shares || computes) ||
        (config->scheduler == TOW_CONFIG_MPS && !shares)) {
        return 0;
    }
    snprintf(why, why_size,
             "%s:%u: class %s: %s holds only where sessions take turns; write scheduler = time "
             "above the first section",
             config->file, from->line, from->name,
             from->share != TOW_CONFIG_UNSAID ? "share" : "compute");
    return -EINVAL;
}

static int read_class(const struct tows_config *config, const struct tows_config_class *from,
                      struct tows_policy_class *class, char *why, size_t why_size)
{
    char setting[TOW_CONFIG_TEXT_MAX + 96];
    memset(class, 0, sizeof *class);
    snprintf(class->name, sizeof class->name, "%s", from->name);
    snprintf(class->certificates, sizeof class->certificates, "%s", from->certificates);
    class->gpu_memory = from->gpu_memory;
    class->max_sessions = from->max_sessions;
    class->sessions_per_peer = from->sessions_per_peer;
    class->session_memory = from->session_memory;
    class->session_idle = from->session_idle;
    class->priority = from->priority;
    class->exclusive = from->exclusive;
    class->wait = from->wait;
    class->share = from->share;
    class->compute = from->compute;
    class->lease = from->lease;
    class->reconnect = from->reconnect;
    int error = check_turns(config, from, why, why_size);
    if (error < 0) {
        return error;
    }
    error = tows_allow_read_list(from->users,
                                 name_setting(config, from, "users", setting, sizeof setting),
                                 false, class->users, &class->user_count, why, why_size);
    if (error == 0) {
        error = tows_allow_read_list(from->groups,
                                     name_setting(config, from, "groups", setting, sizeof setting),
                                     true, class->groups, &class->group_count, why, why_size);
    }
    return error < 0
               ? error
               : read_networks(from->networks,
                               name_setting(config, from, "networks", setting, sizeof setting),
                               class, why, why_size);
}

/* NVIDIA's MPS serves one user, and a context that uses it cannot be put out. */
int tows_policy_check_mps(const struct tows_config *config, char *why, size_t why_size)
{
    const char *wrong = NULL;
    if (config->scheduler != TOW_CONFIG_MPS) {
        wrong = config->mps_shared != 0
                    ? "mps-shared holds only with NVIDIA's MPS; write scheduler = mps"
                    : NULL;
    } else if (config->mps_shared == 0) {
        wrong = "scheduler = mps: all programs share one user then, and a fault of one can end "
                "all; write mps-shared = yes if they may, or scheduler = time";
    } else if (config->tenant_users.count != 0) {
        wrong = "scheduler = mps: NVIDIA's MPS serves one user; write tenant-users = 0";
    } else if (config->restart_dir[0] != '\0') {
        wrong = "scheduler = mps: sessions end with NVIDIA's MPS, and that with the server; remove "
                "restart-dir, or write scheduler = time";
    } else if (config->overcommit == TOW_CONFIG_SWAPS) {
        wrong = "scheduler = mps: GPU memory behind NVIDIA's MPS cannot be put out; write "
                "overcommit = no or yes, or scheduler = time";
    }
    if (wrong != NULL) {
        snprintf(why, why_size, "%s", wrong);
    }
    return wrong != NULL ? -EINVAL : 0;
}

/* A worker that waits for room is inside NVIDIA's driver by then, which so cannot be locked. */
int tows_policy_check_swap(const struct tows_config *config, const char *backend, char *why,
                           size_t why_size)
{
    bool wrong = config->overcommit == TOW_CONFIG_SWAPS && strcmp(backend, "cuda") == 0;
    if (wrong) {
        snprintf(why, why_size,
                 "overcommit = swap works on the software GPU only, so far; write overcommit = no "
                 "or yes, and suspend sessions by hand (towline suspend)");
    }
    return wrong ? -EINVAL : 0;
}

int tows_policy_read(const struct tows_config *config, struct tows_policy *ret_policy, char *why,
                     size_t why_size)
{
    if (config->compute != 0 && config->scheduler == TOW_CONFIG_TOGETHER) {
        snprintf(why, why_size,
                 "compute holds only where sessions take turns; write scheduler = time");
        return -EINVAL;
    }
    int wrong = tows_policy_check_mps(config, why, why_size);
    if (wrong < 0) {
        return wrong;
    }
    /* Of one's own server one has all. */
    unsigned count = config->private_dir[0] == '\0' ? config->class_count : 0;
    for (unsigned i = 0; i < count; i++) {
        int error = read_class(config, &config->classes[i], &ret_policy->classes[i], why, why_size);
        if (error < 0) {
            return error;
        }
    }
    ret_policy->count = count;
    return 0;
}

/* ---- which class ---- */

static bool has_number(const uint32_t *numbers, unsigned count, uint32_t number)
{
    for (unsigned i = 0; i < count; i++) {
        if (numbers[i] == number) {
            return true;
        }
    }
    return false;
}

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    while (*words != '\0') {
        words += strspn(words, ", \t");
        size_t n = strcspn(words, ", \t");
        if (n == length && n > 0 && memcmp(words, word, n) == 0) {
            return true;
        }
        words += n;
    }
    return false;
}

static bool is_within(const struct tows_network *network, const struct tows_who *who)
{
    unsigned bytes = network->bits / 8, rest = network->bits % 8;
    return network->kind == who->kind && memcmp(network->address, who->address, bytes) == 0 &&
           (rest == 0 || (network->address[bytes] ^ who->address[bytes]) >> (8 - rest) == 0);
}

static bool policy_names(const struct tows_policy_class *class, const struct tows_who *who,
                         tows_policy_in_groups_fn *in_groups, void *user)
{
    switch (who->kind) {
    case TOW_WHO_USER:
        return has_number(class->users, class->user_count, who->user) ||
               (class->group_count > 0 && in_groups(user, class->groups, class->group_count));
    case TOW_WHO_TOKEN:
        return who->certificate && has_word(class->certificates, who->name);
    case TOW_WHO_IPV4:
    case TOW_WHO_IPV6:
        for (unsigned i = 0; i < class->network_count; i++) {
            if (is_within(&class->networks[i], who)) {
                return true;
            }
        }
        return false;
    default:
        return false;
    }
}

const struct tows_policy_class *tows_policy_find(const struct tows_policy *policy, const char *name)
{
    for (unsigned i = 0; i < policy->count; i++) {
        if (strcmp(policy->classes[i].name, name) == 0) {
            return &policy->classes[i];
        }
    }
    return NULL;
}

const struct tows_policy_class *tows_policy_class_of(const struct tows_policy *policy,
                                                     const struct tows_who *who,
                                                     tows_policy_in_groups_fn *in_groups,
                                                     void *user)
{
    const struct tows_policy_class *found = NULL;
    if (who->kind == TOW_WHO_TOKEN && !who->certificate) {
        found = tows_policy_find(policy, who->class);
    }
    for (unsigned i = 0; i < policy->count && found == NULL; i++) {
        if (policy_names(&policy->classes[i], who, in_groups, user)) {
            found = &policy->classes[i];
        }
    }
    return found != NULL ? found : tows_policy_find(policy, TOW_POLICY_DEFAULT);
}

/* ---- how many ---- */

uint64_t tows_policy_sessions_per_peer(const struct tows_config *config,
                                       const struct tows_policy_class *class)
{
    uint64_t all = config->max_sessions;
    if (config->private_dir[0] != '\0') {
        return all;
    }
    if (class != NULL && class->sessions_per_peer != TOW_CONFIG_UNSAID &&
        class->sessions_per_peer != 0) {
        return class->sessions_per_peer;
    }
    return config->sessions_per_peer != 0 ? config->sessions_per_peer : all - all / 4;
}

/* ---- with which limits ---- */

static uint64_t said_or(uint64_t said, uint64_t otherwise)
{
    return said != TOW_CONFIG_UNSAID ? said : otherwise;
}

/* What a program asks for of the line, where it asks for no more than it may have. */
static void limit_line(const struct tows_config *config, const struct tows_policy_class *class,
                       const struct tow_wish *wish, struct tows_limits *limits)
{
    bool private = config->private_dir[0] != '\0';
    uint64_t exclusive = private ? TOW_CONFIG_MAY_EXCLUDE : config->exclusive;
    uint64_t priority = config->priority, lease = private ? 0 : config->lease;
    if (class != NULL) {
        exclusive = said_or(class->exclusive, exclusive);
        priority = said_or(class->priority, priority);
        lease = said_or(class->lease, lease);
    }
    if (wish->priority != TOW_PRIORITY_UNSAID && wish->priority - TOW_PRIORITY_LOW < priority) {
        priority = wish->priority - TOW_PRIORITY_LOW;
    }
    uint64_t share = config->share, compute = private ? 0 : config->compute;
    if (class != NULL) {
        share = said_or(class->share, share);
        compute = said_or(class->compute, compute);
    }
    limits->turns = config->scheduler == TOW_CONFIG_TIME;
    limits->share = (uint32_t)(wish->share != 0 && wish->share < share ? wish->share : share);
    limits->compute = compute < 100 ? (uint32_t)compute : 0;
    limits->priority = (uint32_t)priority;
    limits->lease = lease;
    limits->exclusive = exclusive == TOW_CONFIG_EXCLUDES ||
                        (exclusive == TOW_CONFIG_MAY_EXCLUDE && wish->exclusive != 0);
    limits->forbidden = exclusive == TOW_CONFIG_SHARED && wish->exclusive != 0;
}

struct tows_limits tows_policy_limits(const struct tows_config *config,
                                      const struct tows_policy_class *class, uint64_t gpu_memory,
                                      const struct tow_wish *wish)
{
    bool private = config->private_dir[0] != '\0';
    struct tows_limits limits = {.gpu_memory = private ? 0 : config->gpu_memory,
                                 .session_memory = config->session_memory,
                                 .session_idle = config->session_idle,
                                 .reconnect = config->reconnect};
    snprintf(limits.gpu_memory_from, sizeof limits.gpu_memory_from, "gpu-memory");
    if (class != NULL && class->gpu_memory != TOW_CONFIG_UNSAID) {
        snprintf(limits.gpu_memory_from, sizeof limits.gpu_memory_from, "gpu-memory of class %s",
                 class->name);
    }
    if (class != NULL) {
        limits.gpu_memory = said_or(class->gpu_memory, limits.gpu_memory);
        limits.session_idle = said_or(class->session_idle, limits.session_idle);
        limits.reconnect = said_or(class->reconnect, limits.reconnect);
        uint64_t memory = said_or(class->session_memory, 0);
        limits.session_memory = memory != 0 ? memory : limits.session_memory;
    }
    limit_line(config, class, wish, &limits);
    if (gpu_memory != 0 && (limits.gpu_memory == 0 || gpu_memory < limits.gpu_memory)) {
        limits.gpu_memory = gpu_memory;
        snprintf(limits.gpu_memory_from, sizeof limits.gpu_memory_from,
                 "TOWLINE_GPU_MEMORY, which it was started with");
    }
    return limits;
}

/* ---- must it end ---- */

bool tows_policy_must_end(const struct tows_limits *limits, const struct tows_policy_use *use,
                          int64_t now_ns, char ret_why[TOW_POLICY_WHY_MAX])
{
    uint64_t idle =
        now_ns > use->moved_ns ? (uint64_t)(now_ns - use->moved_ns) / (uint64_t)TOW_TIME_S : 0;
    if (limits->session_idle != 0 && idle >= limits->session_idle) {
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "its program has sent no command for %llu s, and may be idle for %llu s "
                 "(session-idle)",
                 (unsigned long long)idle, (unsigned long long)limits->session_idle);
        return true;
    }
    if (limits->session_memory != 0 && use->host_memory > limits->session_memory) {
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "it holds %llu MiB of host memory there, and a session may have %llu MiB "
                 "(session-memory)",
                 MIB(use->host_memory), MIB(limits->session_memory));
        return true;
    }
    return false;
}
