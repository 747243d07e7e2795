/* SPDX-License-Identifier: Apache-2.0 */
/* Decides who may start, who waits and who gives way. */
#include "server/login/admission.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* What is left while claims are gone through in their order. */
struct tally {
    const struct tows_admission *by;
    uint64_t sessions; /* that run, or start */
    uint64_t away;     /* of these, sessions that are suspended */
    uint64_t promised; /* memory of each GPU */
    unsigned of_class[TOW_CONFIG_CLASSES_MAX + 1];
    const struct tows_policy_class *classes[TOW_CONFIG_CLASSES_MAX + 1];
    unsigned class_count;
    bool leased; /* somebody has the GPUs alone */
    bool shut;   /* somebody waits for what all need: nobody overtakes */
    uint64_t waiting;
};

/* ---- the order ---- */

/* When it would have come if it mattered as much as all. */
static int64_t claim_rank(const struct tows_claim *claim)
{
    return claim->since_ns - (int64_t)claim->priority * TOW_ADMISSION_STEP_NS;
}

/* Those that run first; then by rank, then as they came. */
static int compare_claims(const void *one, const void *other)
{
    const struct tows_claim *a = one, *b = other;
    if (a->runs != b->runs) {
        return a->runs ? -1 : 1;
    }
    int64_t left = claim_rank(a), right = claim_rank(b);
    if (left != right) {
        return left < right ? -1 : 1;
    }
    return (a->number > b->number) - (a->number < b->number);
}

/* ---- what there is ---- */

static unsigned *count_class(struct tally *tally, const struct tows_policy_class *class)
{
    unsigned i = 0;
    while (i < tally->class_count && tally->classes[i] != class) {
        i++;
    }
    if (i == tally->class_count && i < TOW_CONFIG_CLASSES_MAX) {
        tally->classes[tally->class_count++] = class;
    }
    return &tally->of_class[i];
}

/* What the GPUs have for quotas, and is not promised. */
static uint64_t memory_left(const struct tally *tally)
{
    const struct tows_admission *by = tally->by;
    uint64_t used = tally->promised + (tally->sessions - tally->away + 1) * by->context;
    /* One of those that are ready is its own. */
    used += by->ready > 1 ? (by->ready - 1) * by->context : 0;
    return by->card > used ? by->card - used : 0;
}

static bool counts_memory(const struct tally *tally)
{
    return tally->by->config->overcommit == 0 && tally->by->card != 0;
}

static void take_part(struct tally *tally, const struct tows_claim *claim)
{
    tally->sessions++;
    ++*count_class(tally, claim->class);
    if (claim->suspended) {
        tally->away++;
        return;
    }
    tally->promised += claim->gpu_memory;
    tally->leased |= claim->exclusive;
}

static uint64_t most_of_class(const struct tows_claim *claim)
{
    return claim->class != NULL ? claim->class->max_sessions : TOW_CONFIG_UNSAID;
}

uint64_t tows_admission_spare(const struct tows_admission *by)
{
    return (by->config->idle_workers + 1) * by->context;
}

bool tows_admission_is_final(const struct tows_claim *claim)
{
    return claim->forbidden || most_of_class(claim) == 0;
}

/* Who uses the GPUs so that it cannot. */
static enum tow_wait_for find_user(const struct tally *tally, const struct tows_claim *claim)
{
    bool used = tally->sessions > tally->away;
    if (tally->leased) {
        return TOW_WAIT_EXCLUSIVE;
    }
    if (claim->exclusive && used) {
        return TOW_WAIT_ALONE;
    }
    /* Whoever is alone there has all that there is. */
    uint64_t needs = claim->gpu_memory != 0 ? claim->gpu_memory : 1;
    return counts_memory(tally) && used && needs > memory_left(tally) ? TOW_WAIT_MEMORY
                                                                      : TOW_WAIT_NOT;
}

/* What it must wait for. */
static enum tow_wait_for find_obstacle(struct tally *tally, const struct tows_claim *claim)
{
    const struct tows_config *config = tally->by->config;
    if (most_of_class(claim) == 0) {
        return TOW_WAIT_CLASS;
    }
    if (tally->leased) {
        return TOW_WAIT_EXCLUSIVE;
    }
    if (tally->sessions >= config->max_sessions) {
        return TOW_WAIT_SERVER;
    }
    if (*count_class(tally, claim->class) >= most_of_class(claim)) {
        return TOW_WAIT_CLASS;
    }
    if (claim->claimant->runs >= tows_policy_sessions_per_peer(config, claim->class)) {
        return TOW_WAIT_PEER;
    }
    if (tally->shut) {
        return TOW_WAIT_BEFORE;
    }
    return find_user(tally, claim);
}

static bool waits_for_all(enum tow_wait_for wait_for)
{
    return wait_for != TOW_WAIT_CLASS && wait_for != TOW_WAIT_PEER;
}

/* ---- one claim ---- */

static bool has_waited(const struct tows_admission *by, const struct tows_claim *claim,
                       int64_t now_ns)
{
    uint64_t most = by->config->wait;
    if (claim->class != NULL && claim->class->wait != TOW_CONFIG_UNSAID) {
        most = claim->class->wait;
    }
    if (claim->wait_s == TOW_WAIT_UNSAID || claim->wait_s == TOW_WAIT_NONE) {
        return true;
    }
    most = claim->wait_s < most ? claim->wait_s : most;
    return now_ns - claim->since_ns >= (int64_t)most * TOW_TIME_S;
}

/* There is room for whoever says its first words. */
static bool is_crowded(const struct tally *tally, const struct tows_claim *claim)
{
    const struct tows_config *config = tally->by->config;
    uint64_t places = config->places > 0 ? config->places : 1, own = config->places_per_peer;
    own = own != 0 && own < places ? own : places;
    return claim->claimant->waits > own - own / 4 || tally->waiting > places - places / 4;
}

/* 0: what it asks for, or all. */
static uint64_t most_memory(const struct tally *tally, const struct tows_claim *claim)
{
    const struct tows_admission *by = tally->by;
    uint64_t beside = tows_admission_spare(by) + by->context;
    if (counts_memory(tally)) {
        return claim->gpu_memory == 0 ? memory_left(tally) : 0;
    }
    bool swaps = by->config->overcommit == TOW_CONFIG_SWAPS && by->card > beside;
    bool more = claim->gpu_memory == 0 || (swaps && claim->gpu_memory > by->card - beside);
    return swaps && more ? by->card - beside : 0;
}

static void judge_claim(struct tally *tally, struct tows_claim *claim, int64_t now_ns)
{
    enum tow_wait_for wait_for = find_obstacle(tally, claim);
    bool never = tows_admission_is_final(claim);
    claim->wait_for = wait_for;
    claim->verdict = TOW_VERDICT_REFUSED;
    claim->place = claim->of = 0;
    if (never || (wait_for != TOW_WAIT_NOT && has_waited(tally->by, claim, now_ns))) {
        return;
    }
    claim->claimant->waits++;
    tally->waiting++;
    if (is_crowded(tally, claim)) {
        claim->claimant->waits--;
        tally->waiting--;
        claim->wait_for = TOW_WAIT_NOT;
        return;
    }
    if (wait_for != TOW_WAIT_NOT) {
        claim->verdict = TOW_VERDICT_WAITS;
        tally->shut |= waits_for_all(wait_for);
        return;
    }
    claim->verdict = TOW_VERDICT_STARTS;
    claim->left = most_memory(tally, claim);
    claim->gpu_memory = claim->left != 0 ? claim->left : claim->gpu_memory;
    take_part(tally, claim);
    claim->claimant->runs++;
}

/* ---- lines ---- */

/* Whether two wait for the same to end. */
static bool same_line(const struct tows_claim *one, const struct tows_claim *other)
{
    if (one->wait_for == TOW_WAIT_CLASS || other->wait_for == TOW_WAIT_CLASS) {
        return one->wait_for == other->wait_for && one->class == other->class;
    }
    if (one->wait_for == TOW_WAIT_PEER || other->wait_for == TOW_WAIT_PEER) {
        return one->wait_for == other->wait_for && one->claimant == other->claimant;
    }
    return true;
}

static void number_lines(struct tows_claim *claims, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct tows_claim *claim = &claims[i];
        if (claim->verdict != TOW_VERDICT_WAITS || claim->place != 0) {
            continue;
        }
        unsigned place = 0;
        for (unsigned j = i; j < count; j++) {
            if (claims[j].verdict == TOW_VERDICT_WAITS && same_line(claim, &claims[j])) {
                claims[j].place = ++place;
            }
        }
        for (unsigned j = i; j < count; j++) {
            if (claims[j].verdict == TOW_VERDICT_WAITS && same_line(claim, &claims[j])) {
                claims[j].of = place;
            }
        }
    }
}

/* ---- leases ---- */

/* Whether the end of one that runs is what the other waits for. */
static bool holds_it(const struct tows_claim *runs, const struct tows_claim *waits)
{
    switch (waits->wait_for) {
    case TOW_WAIT_CLASS:
        return runs->class == waits->class;
    case TOW_WAIT_PEER:
        return runs->claimant == waits->claimant;
    case TOW_WAIT_EXCLUSIVE:
        return runs->exclusive;
    case TOW_WAIT_MEMORY:
        return runs->gpu_memory != 0;
    default:
        return true;
    }
}

/* How long its lease is over; negative: it is not. */
static int64_t lease_overdue(const struct tows_claim *claim, int64_t now_ns)
{
    return claim->lease_s == 0 ? -1
                               : now_ns - claim->since_ns - (int64_t)claim->lease_s * TOW_TIME_S;
}

/* The first of each line is made room for, by one session at a time. */
static void end_lease(struct tows_claim *claims, unsigned runs, const struct tows_claim *waits,
                      int64_t now_ns)
{
    struct tows_claim *longest = NULL;
    for (unsigned i = 0; i < runs; i++) {
        struct tows_claim *claim = &claims[i];
        if (claim->suspended || !holds_it(claim, waits)) {
            continue;
        }
        if (claim->ending || claim->verdict == TOW_VERDICT_GIVES_WAY) {
            return; /* it makes room already */
        }
        if (lease_overdue(claim, now_ns) >= 0 &&
            (longest == NULL || lease_overdue(claim, now_ns) > lease_overdue(longest, now_ns))) {
            longest = claim;
        }
    }
    if (longest != NULL) {
        longest->verdict = TOW_VERDICT_GIVES_WAY;
    }
}

/* ---- all ---- */

void tows_admission_decide(const struct tows_admission *by, struct tows_claim *claims,
                           unsigned count, int64_t now_ns)
{
    struct tally tally = {.by = by};
    unsigned runs = 0;
    qsort(claims, count, sizeof *claims, compare_claims);
    for (unsigned i = 0; i < count; i++) {
        if (!claims[i].runs) {
            claims[i].claimant->waits = 0;
        }
    }
    for (; runs < count && claims[runs].runs; runs++) {
        claims[runs].verdict = TOW_VERDICT_RUNS;
        claims[runs].place = 0;
        take_part(&tally, &claims[runs]);
    }
    for (unsigned i = runs; i < count; i++) {
        judge_claim(&tally, &claims[i], now_ns);
    }
    number_lines(claims + runs, count - runs);
    for (unsigned i = runs; i < count; i++) {
        if (claims[i].verdict == TOW_VERDICT_WAITS && claims[i].place == 1) {
            end_lease(claims, runs, &claims[i], now_ns);
        }
    }
}

enum tow_wait_for tows_admission_return(const struct tows_admission *by,
                                        const struct tows_claim *claims, unsigned count,
                                        const struct tows_claim *back)
{
    struct tally tally = {.by = by};
    for (unsigned i = 0; i < count; i++) {
        if (claims[i].runs && claims[i].owner != back->owner) {
            take_part(&tally, &claims[i]);
        }
    }
    return find_user(&tally, back);
}

const char *tows_admission_text(enum tow_wait_for wait_for)
{
    static const char *const texts[] = {
        [TOW_WAIT_NOT] = "its worker",
        [TOW_WAIT_SERVER] = "max-sessions",
        [TOW_WAIT_CLASS] = "max-sessions of its class",
        [TOW_WAIT_PEER] = "sessions-per-peer",
        [TOW_WAIT_MEMORY] = "memory of the GPU",
        [TOW_WAIT_EXCLUSIVE] = "who has the GPU alone",
        [TOW_WAIT_ALONE] = "the GPU alone",
        [TOW_WAIT_BEFORE] = "who came before",
    };
    return (size_t)wait_for < sizeof texts / sizeof *texts ? texts[wait_for] : "?";
}

/* What is in the way, and what to do. */
static void explain_obstacle(const struct tows_admission *by, const struct tows_claim *claim,
                             char ret_why[TOW_POLICY_WHY_MAX])
{
    char text[TOW_WHO_TEXT_MAX];
    const struct tows_config *config = by->config;
    switch (claim->wait_for) {
    case TOW_WAIT_SERVER:
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "the server is full: it serves %llu programs already; try again when one has "
                 "ended, or raise max-sessions there",
                 (unsigned long long)config->max_sessions);
        break;
    case TOW_WAIT_CLASS:
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "the server has no more room for class %s: it serves %llu of its programs "
                 "already; try again when one has ended, or raise its max-sessions there",
                 claim->class->name, (unsigned long long)most_of_class(claim));
        break;
    case TOW_WAIT_PEER:
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "the server has no more room for %s: it serves %llu programs from there already; "
                 "try again when one has ended, or raise sessions-per-peer there",
                 tows_who_text(claim->claimant->who, text),
                 (unsigned long long)tows_policy_sessions_per_peer(config, claim->class));
        break;
    case TOW_WAIT_MEMORY:
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "the GPU's memory is promised to other programs (overcommit = no): try again when "
                 "one has ended, or ask for less with --gpu-memory");
        break;
    case TOW_WAIT_EXCLUSIVE:
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "another program has the GPU for itself alone (exclusive); try again when it has "
                 "ended");
        break;
    case TOW_WAIT_ALONE:
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "the GPU cannot be had alone (exclusive): other programs use it; try again when "
                 "they have ended");
        break;
    case TOW_WAIT_BEFORE:
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "other programs wait in line already; try again when they have got the GPU");
        break;
    default:
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "the server has no more room for %s: too many programs wait for workers already; "
                 "try again soon, or raise places-per-peer or places there",
                 tows_who_text(claim->claimant->who, text));
    }
}

void tows_admission_explain(const struct tows_admission *by, const struct tows_claim *claim,
                            int64_t now_ns, char ret_why[TOW_POLICY_WHY_MAX])
{
    if (claim->forbidden) {
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "this program may not have the GPU for itself alone; start it without "
                 "--exclusive, or write exclusive = may %s%s there",
                 claim->class != NULL ? "into class " : "above the classes",
                 claim->class != NULL ? claim->class->name : "");
        return;
    }
    if (most_of_class(claim) == 0) {
        snprintf(ret_why, TOW_POLICY_WHY_MAX,
                 "class %s is closed: its max-sessions is 0; ask the server's administrator, who "
                 "may raise it",
                 claim->class->name);
        return;
    }
    explain_obstacle(by, claim, ret_why);
    bool waited = claim->wait_s != TOW_WAIT_UNSAID && claim->wait_s != TOW_WAIT_NONE;
    if (waited && claim->wait_for != TOW_WAIT_NOT) {
        size_t used = strlen(ret_why);
        snprintf(ret_why + used, TOW_POLICY_WHY_MAX - used, " (it has waited in line for %lld s)",
                 (long long)((now_ns - claim->since_ns) / TOW_TIME_S));
    }
}
