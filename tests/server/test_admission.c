/* SPDX-License-Identifier: Apache-2.0 */
/* Who starts, who waits in line and at which place, who gives way: no worker, no socket, and a
 * clock that is a number. */
#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/login/admission.h"

#define GIB (UINT64_C(1) << 30)

enum { PEERS = 40, CLAIMS_MAX = 600 };

/* One program of the simulation, from its coming to its end. */
struct program {
    bool here, runs, ending, suspended;
    int peer;
    const char *class;
    struct tow_wish wish;
    uint64_t gpu_memory;
    int64_t came_s, began_s;
    struct tows_limits limits;
    struct tows_claim claim; /* as it was decided last */
};

static struct tows_config config;
static struct tows_policy policy;
static struct tows_admission by;
static struct tows_who whose[PEERS];
static struct tows_claimant claimants[PEERS];
static struct program programs[CLAIMS_MAX];
static int program_count;
static int64_t now_s;

static int begin(const char *text)
{
    static char why[512];
    char path[] = "/tmp/towline-test-admission-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    tows_config_defaults(&config);
    snprintf(config.file, sizeof config.file, "%s", path);
    int error = tows_config_read_file(&config, path, why, sizeof why);
    error = error < 0 ? error : tows_policy_read(&config, &policy, why, sizeof why);
    unlink(path);
    if (error < 0) {
        fail_msg("%s", why);
    }
    by = (struct tows_admission){.config = &config};
    memset(programs, 0, sizeof programs);
    program_count = 0;
    now_s = 1000000;
    for (int i = 0; i < PEERS; i++) {
        whose[i] = (struct tows_who){.kind = TOW_WHO_USER, .user = 1000 + (uint32_t)i};
    }
    return error;
}

/* It waits as long as it may. */
static int comes(int peer, const char *class, struct tow_wish wish)
{
    wish.wait_s = wish.wait_s == 0 ? TOW_WAIT_LONG : wish.wait_s;
    programs[program_count] =
        (struct program){.here = true, .peer = peer, .class = class, .wish = wish, .came_s = now_s};
    return program_count++;
}

static int comes_plainly(int peer, const char *class)
{
    return comes(peer, class, (struct tow_wish){0});
}

static struct tows_claim claim_of(struct program *program)
{
    const struct tows_policy_class *class = tows_policy_find(&policy, program->class);
    if (!program->runs) {
        program->limits = tows_policy_limits(&config, class, program->gpu_memory, &program->wish);
    }
    return (struct tows_claim){
        .owner = program,
        .class = class,
        .claimant = &claimants[program->peer],
        .runs = program->runs,
        .ending = program->ending,
        .suspended = program->suspended,
        .exclusive = program->limits.exclusive,
        .forbidden = program->limits.forbidden,
        .gpu_memory = program->limits.gpu_memory,
        .lease_s = program->limits.lease,
        .priority = program->limits.priority,
        .since_ns = (program->runs ? program->began_s : program->came_s) * TOW_TIME_S,
        .number = (uint64_t)(program - programs),
        .wait_s = program->wish.wait_s,
    };
}

/* Decides; whoever may start has a worker at once, whoever is refused is gone. */
static void decide(void)
{
    struct tows_claim claims[CLAIMS_MAX];
    unsigned count = 0;
    memset(claimants, 0, sizeof claimants);
    for (int i = 0; i < PEERS; i++) {
        claimants[i].who = &whose[i];
    }
    for (int i = program_count - 1; i >= 0; i--) { /* in no order that helps */
        if (programs[i].here) {
            claimants[programs[i].peer].runs += programs[i].runs;
            claims[count++] = claim_of(&programs[i]);
        }
    }
    tows_admission_decide(&by, claims, count, now_s * TOW_TIME_S);
    for (unsigned i = 0; i < count; i++) {
        struct program *program = claims[i].owner;
        program->claim = claims[i];
        if (claims[i].verdict == TOW_VERDICT_STARTS) {
            program->runs = true;
            program->began_s = now_s;
            program->limits.gpu_memory = claims[i].gpu_memory;
        }
        program->here &= claims[i].verdict != TOW_VERDICT_REFUSED;
    }
}

static void leaves(int program)
{
    programs[program].here = false;
}

static void assert_runs(int program)
{
    if (!programs[program].here || !programs[program].runs) {
        fail_msg("program %d does not run: it waits for %d", program,
                 (int)programs[program].claim.wait_for);
    }
}

static void assert_waits(int program, unsigned place, unsigned of, enum tow_wait_for wait_for)
{
    const struct tows_claim *claim = &programs[program].claim;
    assert_int_equal(claim->verdict, TOW_VERDICT_WAITS);
    assert_int_equal(claim->place, place);
    assert_int_equal(claim->of, of);
    assert_int_equal(claim->wait_for, wait_for);
}

static const char *refusal(int program)
{
    static char why[TOW_POLICY_WHY_MAX];
    assert_int_equal(programs[program].claim.verdict, TOW_VERDICT_REFUSED);
    tows_admission_explain(&by, &programs[program].claim, now_s * TOW_TIME_S, why);
    return why;
}

static void assert_refused(int program, const char *text)
{
    const char *why = refusal(program);
    if (strstr(why, text) == NULL) {
        fail_msg("%s: no \"%s\"", why, text);
    }
}

/* ---- lines ---- */

static void a_full_class_is_waited_for_in_the_order_of_coming(void **state)
{
    (void)state;
    begin("[class a]\nmax-sessions = 2\n[class b]\n");
    int one = comes_plainly(0, "a"), two = comes_plainly(1, "a"), three = comes_plainly(2, "a");
    now_s++;
    int four = comes_plainly(3, "a"), other = comes_plainly(4, "b");
    decide();
    assert_runs(one);
    assert_runs(two);
    assert_waits(three, 1, 2, TOW_WAIT_CLASS);
    assert_waits(four, 2, 2, TOW_WAIT_CLASS);
    assert_runs(other); /* it needs none of theirs */
    leaves(one);
    decide();
    assert_runs(three);
    assert_waits(four, 1, 1, TOW_WAIT_CLASS);
}

static void ties_go_to_who_came_first(void **state)
{
    (void)state;
    begin("max-sessions = 1\n");
    int last = 0;
    for (int i = 0; i < 20; i++) {
        last = comes_plainly(i, "");
    }
    decide();
    for (int i = 0; i <= last; i++) {
        assert_runs(i);
        for (int k = i + 1; k <= last; k++) {
            assert_int_equal(programs[k].claim.place, (unsigned)(k - i));
        }
        leaves(i);
        decide();
    }
}

static void a_waiter_that_leaves_moves_the_others_up(void **state)
{
    (void)state;
    begin("max-sessions = 1\n");
    comes_plainly(0, "");
    int one = comes_plainly(1, ""), two = comes_plainly(2, ""), three = comes_plainly(3, "");
    decide();
    assert_waits(three, 3, 3, TOW_WAIT_SERVER);
    leaves(one);
    decide();
    assert_waits(two, 1, 2, TOW_WAIT_SERVER);
    assert_waits(three, 2, 2, TOW_WAIT_SERVER);
}

static void one_peer_waits_for_its_own_and_nobody_behind_it_does(void **state)
{
    (void)state;
    begin("max-sessions = 10\nsessions-per-peer = 2\n");
    for (int i = 0; i < 6; i++) {
        comes_plainly(0, "");
    }
    int other = comes_plainly(1, "");
    decide();
    assert_runs(0);
    assert_runs(1);
    assert_waits(2, 1, 4, TOW_WAIT_PEER);
    assert_waits(5, 4, 4, TOW_WAIT_PEER);
    assert_runs(other);
}

/* ---- priority ---- */

static void who_matters_more_goes_first(void **state)
{
    (void)state;
    begin("max-sessions = 1\n[class low]\npriority = low\n[class high]\npriority = high\n");
    int runs = comes_plainly(0, "low");
    decide();
    int low = comes_plainly(1, "low"), normal = comes_plainly(2, "");
    now_s += 60;
    int high = comes_plainly(3, "high");
    int modest = comes(4, "high", (struct tow_wish){.priority = TOW_PRIORITY_LOW});
    int greedy = comes(5, "low", (struct tow_wish){.priority = TOW_PRIORITY_HIGH});
    decide();
    assert_int_equal(programs[high].claim.place, 1);
    assert_int_equal(programs[normal].claim.place, 2);
    assert_int_equal(programs[low].claim.place, 3);
    /* It asked for less than its class has; the other one gets no more than it. */
    assert_int_equal(programs[modest].claim.place, 4);
    assert_int_equal(programs[greedy].claim.place, 5);
    leaves(runs);
    decide();
    assert_runs(high);
}

static void nobody_starves_behind_those_who_matter_more(void **state)
{
    (void)state;
    begin("max-sessions = 1\n[class low]\npriority = low\n[class high]\npriority = high\n");
    int low = -1;
    int64_t step_s = TOW_ADMISSION_STEP_NS / TOW_TIME_S;
    /* A stream of high ones: each runs for a minute, and two have come meanwhile. */
    for (int minute = 0; minute < 200 && (low < 0 || !programs[low].runs); minute++) {
        comes_plainly(minute % 30, "high");
        comes_plainly((minute + 1) % 30, "high");
        low = minute == 3 ? comes_plainly(39, "low") : low;
        decide();
        now_s += 60;
        for (int i = 0; i < program_count; i++) {
            programs[i].here &= !programs[i].runs || i == low;
        }
    }
    assert_true(low >= 0);
    assert_runs(low);
    /* It waited for two steps, and for those who had come until then. */
    int64_t waited = programs[low].began_s - programs[low].came_s;
    assert_true(waited >= 2 * step_s);
    assert_true(waited <= 4 * step_s + 600);
}

/* ---- memory ---- */

static void promised_memory_is_kept(void **state)
{
    (void)state;
    begin("overcommit = no\ngpu-memory = 10G\n[class big]\ngpu-memory = 25G\n");
    by.card = 40 * GIB;
    by.context = GIB / 2;
    int one = comes_plainly(0, ""), two = comes_plainly(1, "");
    decide();
    int big = comes_plainly(2, "big"); /* 25 + 20 + 1.5 */
    now_s++;
    int three = comes_plainly(3, ""); /* 30 + 1.5: it would fit */
    decide();
    assert_runs(one);
    assert_runs(two);
    assert_waits(big, 1, 2, TOW_WAIT_MEMORY);
    assert_waits(three, 2, 2, TOW_WAIT_BEFORE); /* or the big one would wait for ever */
    leaves(one);
    decide();
    assert_runs(big);
    assert_waits(three, 1, 1, TOW_WAIT_MEMORY);
    leaves(two);
    decide();
    assert_runs(three);
    leaves(big);
    int modest = comes_plainly(4, "big");
    programs[modest].gpu_memory = GIB;
    decide();
    assert_runs(modest);
    assert_int_equal(programs[modest].claim.gpu_memory, GIB);
}

static void without_a_quota_it_gets_what_is_left(void **state)
{
    (void)state;
    begin("overcommit = no\n[class small]\ngpu-memory = 4G\n");
    by.card = 16 * GIB;
    by.context = GIB;
    by.ready = 3; /* of which one becomes its own */
    int small = comes_plainly(0, "small");
    decide();
    int all = comes_plainly(1, "");
    decide();
    assert_runs(small);
    assert_runs(all);
    assert_true(programs[all].claim.left == (16 - 4 - 2 - 2) * GIB);
    int late = comes_plainly(2, "small");
    decide();
    assert_waits(late, 1, 1, TOW_WAIT_MEMORY);
    leaves(all);
    decide();
    assert_runs(late);
}

static void whoever_is_alone_starts_whatever_it_wants(void **state)
{
    (void)state;
    begin("overcommit = no\ngpu-memory = 100G\n");
    by.card = 16 * GIB;
    int one = comes_plainly(0, ""), two = comes_plainly(1, "");
    decide();
    assert_runs(one);
    assert_waits(two, 1, 1, TOW_WAIT_MEMORY);
    /* And with overcommit nobody waits for memory. */
    config.overcommit = 1;
    decide();
    assert_runs(two);
}

/* Where memory is swapped each may have what is beside contexts: its own, and those that wait. */
static void where_memory_is_swapped_nobody_has_more_than_fits(void **state)
{
    (void)state;
    begin("overcommit = swap\nidle-workers = 2\ngpu-memory = 4G\n[class big]\ngpu-memory = 100G\n");
    by.card = 16 * GIB;
    by.context = GIB;
    int one = comes_plainly(0, ""), two = comes_plainly(1, "big");
    decide();
    assert_runs(one);
    assert_runs(two);
    assert_true(programs[one].claim.left == 0);
    assert_true(programs[two].claim.left == 12 * GIB);
    by.card = 2 * GIB; /* too small for anything: nothing is promised */
    int three = comes_plainly(2, "big");
    decide();
    assert_runs(three);
    assert_true(programs[three].claim.left == 0);
}

/* ---- exclusive ---- */

static void the_gpu_alone_is_waited_for_and_kept(void **state)
{
    (void)state;
    begin("exclusive = may\n");
    struct tow_wish alone = {.exclusive = 1};
    int one = comes_plainly(0, ""), two = comes_plainly(1, "");
    decide();
    int wants = comes(2, "", alone);
    now_s++;
    int behind = comes_plainly(3, "");
    decide();
    assert_waits(wants, 1, 2, TOW_WAIT_ALONE);
    assert_waits(behind, 2, 2, TOW_WAIT_BEFORE); /* or it would never be alone */
    leaves(one);
    decide();
    assert_waits(wants, 1, 2, TOW_WAIT_ALONE);
    leaves(two);
    decide();
    assert_runs(wants);
    assert_waits(behind, 1, 1, TOW_WAIT_EXCLUSIVE);
    int next = comes(4, "", alone);
    decide();
    assert_waits(next, 2, 2, TOW_WAIT_EXCLUSIVE);
    leaves(wants);
    leaves(behind);
    decide();
    assert_runs(next);
}

static void nobody_has_it_alone_who_may_not(void **state)
{
    (void)state;
    begin("[class a]\nexclusive = no\n[class b]\nexclusive = always\n");
    struct tow_wish alone = {.exclusive = 1};
    int none = comes(0, "", alone), a = comes(1, "a", alone), b = comes_plainly(2, "b");
    decide();
    assert_refused(none, "exclusive = may above the classes");
    assert_refused(a, "exclusive = may into class a");
    assert_runs(b);
    assert_true(programs[b].limits.exclusive);
    int behind = comes_plainly(3, "a");
    decide();
    assert_waits(behind, 1, 1, TOW_WAIT_EXCLUSIVE);
}

/* ---- suspended ones ---- */

static enum tow_wait_for returns(int program)
{
    struct tows_claim claims[CLAIMS_MAX], back = {0};
    unsigned count = 0;
    for (int i = 0; i < program_count; i++) {
        if (programs[i].here) {
            claims[count] = claim_of(&programs[i]);
            back = i == program ? claims[count] : back;
            count++;
        }
    }
    enum tow_wait_for wait_for = tows_admission_return(&by, claims, count, &back);
    programs[program].suspended = wait_for != TOW_WAIT_NOT;
    return wait_for;
}

static void what_a_suspended_one_was_promised_is_free(void **state)
{
    (void)state;
    begin("overcommit = no\ngpu-memory = 12G\n");
    by.card = 16 * GIB;
    by.context = GIB;
    int one = comes_plainly(0, ""), two = comes_plainly(1, "");
    decide();
    assert_waits(two, 1, 1, TOW_WAIT_MEMORY);
    programs[one].suspended = true;
    decide();
    assert_runs(two);
    assert_int_equal(returns(one), TOW_WAIT_MEMORY);
    programs[two].suspended = true;
    assert_int_equal(returns(one), TOW_WAIT_NOT);
    assert_int_equal(returns(two), TOW_WAIT_MEMORY);
    leaves(one);
    assert_int_equal(returns(two), TOW_WAIT_NOT);
}

static void a_suspended_one_has_nothing_for_itself_alone(void **state)
{
    (void)state;
    begin("exclusive = may\n");
    struct tow_wish alone = {.exclusive = 1};
    int one = comes(0, "", alone);
    decide();
    programs[one].suspended = true;
    int two = comes_plainly(1, "");
    decide();
    assert_runs(two);
    assert_int_equal(returns(one), TOW_WAIT_ALONE);
    programs[two].suspended = true;
    int three = comes(2, "", alone);
    decide();
    assert_runs(three);
    assert_int_equal(returns(one), TOW_WAIT_EXCLUSIVE);
    assert_int_equal(returns(two), TOW_WAIT_EXCLUSIVE);
    leaves(three);
    assert_int_equal(returns(two), TOW_WAIT_NOT);
}

static void a_suspended_one_keeps_its_place_whatever_its_lease(void **state)
{
    (void)state;
    begin("max-sessions = 2\nlease = 60\n");
    int one = comes_plainly(0, ""), two = comes_plainly(1, "");
    decide();
    programs[one].suspended = true;
    now_s += 100;
    int three = comes_plainly(2, "");
    decide();
    assert_waits(three, 1, 1, TOW_WAIT_SERVER);
    assert_int_equal(programs[one].claim.verdict, TOW_VERDICT_RUNS);
    assert_int_equal(programs[two].claim.verdict, TOW_VERDICT_GIVES_WAY);
}

/* ---- leases ---- */

static void a_lease_ends_when_somebody_waits(void **state)
{
    (void)state;
    begin("[class a]\nmax-sessions = 2\nlease = 10m\n[class b]\nlease = 1m\n");
    int one = comes_plainly(0, "a"), b = comes_plainly(5, "b");
    decide();
    now_s += 30;
    int two = comes_plainly(1, "a");
    decide();
    now_s += 3600;
    decide();
    assert_int_equal(programs[one].claim.verdict, TOW_VERDICT_RUNS); /* nobody wants it */
    int waits = comes_plainly(2, "a"), more = comes_plainly(3, "a");
    decide();
    assert_int_equal(programs[one].claim.verdict, TOW_VERDICT_GIVES_WAY);
    assert_int_equal(programs[two].claim.verdict, TOW_VERDICT_RUNS);
    assert_int_equal(programs[b].claim.verdict, TOW_VERDICT_RUNS); /* it would not help */
    programs[one].ending = true;
    decide();
    assert_int_equal(programs[two].claim.verdict, TOW_VERDICT_RUNS); /* one at a time */
    leaves(one);
    decide();
    assert_runs(waits);
    assert_int_equal(programs[two].claim.verdict, TOW_VERDICT_GIVES_WAY);
    leaves(two);
    decide();
    assert_runs(more);
    int late = comes_plainly(4, "a");
    now_s += 599;
    decide();
    assert_int_equal(programs[waits].claim.verdict, TOW_VERDICT_RUNS); /* its own has begun anew */
    now_s += 1;
    decide();
    assert_int_equal(programs[waits].claim.verdict, TOW_VERDICT_GIVES_WAY);
    assert_waits(late, 1, 1, TOW_WAIT_CLASS);
}

static void a_lease_of_the_gpu_alone_ends_too(void **state)
{
    (void)state;
    begin("exclusive = may\nlease = 60\n");
    int alone = comes(0, "", (struct tow_wish){.exclusive = 1});
    decide();
    int waits = comes_plainly(1, "");
    now_s += 59;
    decide();
    assert_int_equal(programs[alone].claim.verdict, TOW_VERDICT_RUNS);
    now_s += 1;
    decide();
    assert_int_equal(programs[alone].claim.verdict, TOW_VERDICT_GIVES_WAY);
    leaves(alone);
    decide();
    assert_runs(waits);
}

/* ---- how long ---- */

static void who_does_not_wait_is_refused_at_once(void **state)
{
    (void)state;
    begin("max-sessions = 1\n[class none]\nmax-sessions = 0\n[class never]\nwait = 0\n");
    comes_plainly(0, "");
    decide();
    int none = comes(1, "", (struct tow_wish){.wait_s = TOW_WAIT_NONE});
    decide();
    assert_refused(none, "the server is full: it serves 1 programs already");
    assert_null(strstr(refusal(none), "waited"));
    int ten = comes(2, "", (struct tow_wish){.wait_s = 10});
    int nobody = comes_plainly(3, "none"), never = comes_plainly(4, "never");
    decide();
    assert_refused(nobody, "class none is closed: its max-sessions is 0");
    assert_null(strstr(refusal(nobody), "waited"));
    assert_int_equal(programs[never].claim.verdict, TOW_VERDICT_REFUSED);
    now_s += 9;
    decide();
    assert_waits(ten, 1, 1, TOW_WAIT_SERVER);
    now_s += 1;
    decide();
    assert_refused(ten, "(it has waited in line for 10 s)");
}

static void nobody_waits_longer_than_his_class_lets_him(void **state)
{
    (void)state;
    begin("wait = 5m\nmax-sessions = 1\n[class a]\nwait = 1m\n");
    comes_plainly(0, "");
    int all = comes(1, "", (struct tow_wish){.wait_s = 3600}), a = comes_plainly(2, "a");
    decide();
    now_s += 60;
    decide();
    assert_refused(a, "waited in line for 60 s");
    now_s += 239;
    decide();
    assert_waits(all, 1, 1, TOW_WAIT_SERVER);
    now_s += 1;
    decide();
    assert_refused(all, "waited in line for 300 s");
}

/* A client of before lines says nothing of waiting. */
static void who_cannot_wait_overtakes_nobody(void **state)
{
    (void)state;
    begin("exclusive = may\n");
    comes_plainly(0, "");
    decide();
    int wants = comes(1, "", (struct tow_wish){.exclusive = 1});
    decide();
    int old = comes_plainly(2, "");
    programs[old].wish.wait_s = TOW_WAIT_UNSAID;
    decide();
    assert_waits(wants, 1, 1, TOW_WAIT_ALONE);
    assert_refused(old, "other programs wait in line already");
}

static void a_line_is_no_door_for_a_flood(void **state)
{
    (void)state;
    begin("max-sessions = 2\nplaces = 100\nplaces-per-peer = 20\n");
    for (int i = 0; i < 60; i++) {
        comes_plainly(0, "");
    }
    int other = comes_plainly(1, "");
    decide();
    unsigned waits = 0;
    for (int i = 0; i < 60; i++) {
        waits += programs[i].claim.verdict == TOW_VERDICT_WAITS;
    }
    assert_int_equal(waits, 13); /* 15 of its places, two of which start */
    assert_int_equal(programs[59].claim.verdict, TOW_VERDICT_REFUSED);
    assert_refused(59, "too many programs wait");
    assert_int_equal(programs[other].claim.verdict, TOW_VERDICT_WAITS);
    for (int peer = 2; peer < PEERS; peer++) {
        for (int i = 0; i < 10; i++) {
            comes_plainly(peer, "");
        }
    }
    decide();
    waits = 0;
    for (int i = 0; i < program_count; i++) {
        waits += programs[i].here && !programs[i].runs;
    }
    assert_int_equal(waits, 75);
}

/* ---- while they wait ---- */

static void a_class_that_changes_holds_for_those_who_wait(void **state)
{
    (void)state;
    begin("[class a]\nmax-sessions = 1\n[class b]\n");
    int one = comes_plainly(0, "a"), two = comes_plainly(1, "a"), three = comes_plainly(2, "a");
    decide();
    assert_waits(two, 1, 2, TOW_WAIT_CLASS);
    policy.classes[0].max_sessions = 2;
    decide();
    assert_runs(two);
    assert_waits(three, 1, 1, TOW_WAIT_CLASS);
    policy.classes[0].max_sessions = 1; /* nobody is ended for it */
    decide();
    assert_runs(one);
    assert_runs(two);
    leaves(one);
    decide();
    assert_waits(three, 1, 1, TOW_WAIT_CLASS);
    /* The class is gone from the file: the settings hold. */
    snprintf(policy.classes[0].name, sizeof policy.classes[0].name, "gone");
    decide();
    assert_runs(three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_class_is_waited_for_in_the_order_of_coming),
        cmocka_unit_test(ties_go_to_who_came_first),
        cmocka_unit_test(a_waiter_that_leaves_moves_the_others_up),
        cmocka_unit_test(one_peer_waits_for_its_own_and_nobody_behind_it_does),
        cmocka_unit_test(who_matters_more_goes_first),
        cmocka_unit_test(nobody_starves_behind_those_who_matter_more),
        cmocka_unit_test(promised_memory_is_kept),
        cmocka_unit_test(without_a_quota_it_gets_what_is_left),
        cmocka_unit_test(whoever_is_alone_starts_whatever_it_wants),
        cmocka_unit_test(where_memory_is_swapped_nobody_has_more_than_fits),
        cmocka_unit_test(the_gpu_alone_is_waited_for_and_kept),
        cmocka_unit_test(nobody_has_it_alone_who_may_not),
        cmocka_unit_test(what_a_suspended_one_was_promised_is_free),
        cmocka_unit_test(a_suspended_one_has_nothing_for_itself_alone),
        cmocka_unit_test(a_suspended_one_keeps_its_place_whatever_its_lease),
        cmocka_unit_test(a_lease_ends_when_somebody_waits),
        cmocka_unit_test(a_lease_of_the_gpu_alone_ends_too),
        cmocka_unit_test(who_does_not_wait_is_refused_at_once),
        cmocka_unit_test(nobody_waits_longer_than_his_class_lets_him),
        cmocka_unit_test(who_cannot_wait_overtakes_nobody),
        cmocka_unit_test(a_line_is_no_door_for_a_flood),
        cmocka_unit_test(a_class_that_changes_holds_for_those_who_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
