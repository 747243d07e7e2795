/* SPDX-License-Identifier: Apache-2.0 */
/* The threads and queues of further connections. */
#include "transport/lanes.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "transport/data.h"

#include <errno.h>
#include <stdlib.h>

struct lane {
    struct tow_lanes *lanes; /* borrowed: outlives its threads */
    struct tow_line *line;   /* owned */
    pthread_t sender, receiver;
    struct tow_lane_job *jobs, **jobs_end; /* guarded by the lanes' lock */
};

struct tow_lanes {
    struct tow_lanes_user user;
    struct tow_mutex lock;  /* guards the rest */
    pthread_cond_t changed; /* a job came or is done, or all is over */
    int error;              /* 0 while they live */
    unsigned count;
    struct lane *lane[TOW_LANES_MAX]; /* owned */
};

static void lanes_end(struct tow_lanes *lanes, int error)
{
    struct tow_line *lines[TOW_LANES_MAX];
    tow_mutex_lock(&lanes->lock);
    bool first = lanes->error == 0;
    unsigned count = lanes->count;
    if (first) {
        lanes->error = error;
        pthread_cond_broadcast(&lanes->changed);
    }
    for (unsigned i = 0; i < count; i++) {
        lines[i] = lanes->lane[i]->line;
    }
    tow_mutex_unlock(&lanes->lock);
    for (unsigned i = 0; first && i < count; i++) {
        tow_line_shutdown(lines[i]);
    }
    if (first && error != -ESHUTDOWN) {
        lanes->user.ended(lanes->user.user, error);
    }
}

/* ---- sending ---- */

static int send_job(struct tow_line *line, struct tow_lane_job *job)
{
    size_t each = job->each != 0 ? job->each : TOW_DATA_MAX;
    struct tow_data data = {
        .transfer = job->transfer, .offset = job->offset, .size = (uint32_t)each};
    uint64_t all = job->offset + job->size, sent = 0;
    int error = 0;
    while (error == 0 && data.offset < all) {
        uint64_t end = all;
        const uint8_t *bytes;
        if (job->fetch != NULL) {
            end = all - data.offset < each ? all : data.offset + each;
            bytes = job->fetch(job->user, data.offset, (size_t)(end - data.offset));
        } else {
            bytes = job->bytes + (data.offset - job->offset);
        }
        error = tow_data_send(line, &data, end, bytes, &sent);
        if (job->fetch != NULL && error == 0) {
            error = tow_line_take_back(line); /* the next are packed where these are */
        }
    }
    if (job->lent) {
        job->line = line;
        job->place = tow_line_place(line);
        return error;
    }
    int given = tow_line_take_back(line);
    return error < 0 ? error : given;
}

static void *sender_run(void *arg)
{
    struct lane *lane = arg;
    struct tow_lanes *lanes = lane->lanes;
    tow_mutex_lock(&lanes->lock);
    while (lanes->error == 0) {
        struct tow_lane_job *job = lane->jobs;
        if (job == NULL) {
            tow_mutex_wait(&lanes->lock, &lanes->changed);
            continue;
        }
        tow_mutex_unlock(&lanes->lock);
        int error = send_job(lane->line, job);
        if (error < 0) {
            lanes_end(lanes, error);
        }
        tow_mutex_lock(&lanes->lock);
        /* Whoever waits finds the job untouched from here on. */
        lane->jobs = job->next;
        if (lane->jobs == NULL) {
            lane->jobs_end = &lane->jobs;
        }
        job->done = true;
        pthread_cond_broadcast(&lanes->changed);
    }
    /* What nobody will send: its memory is its owner's again. */
    for (struct tow_lane_job *job = lane->jobs; job != NULL; job = job->next) {
        job->done = true;
    }
    lane->jobs = NULL;
    pthread_cond_broadcast(&lanes->changed);
    tow_mutex_unlock(&lanes->lock);
    return NULL;
}

void tow_lanes_send(struct tow_lanes *lanes, unsigned index, struct tow_lane_job *job)
{
    tow_mutex_lock(&lanes->lock);
    job->next = NULL;
    job->done = lanes->error != 0;
    if (!job->done) {
        struct lane *lane = lanes->lane[index];
        *lane->jobs_end = job;
        lane->jobs_end = &job->next;
        pthread_cond_broadcast(&lanes->changed);
    }
    tow_mutex_unlock(&lanes->lock);
}

int tow_lanes_wait(struct tow_lanes *lanes, struct tow_lane_job *job)
{
    tow_mutex_lock(&lanes->lock);
    while (!job->done) {
        tow_mutex_wait(&lanes->lock, &lanes->changed);
    }
    int error = lanes->error;
    tow_mutex_unlock(&lanes->lock);
    /* Also of lanes that have ended: nobody reads it any more then. */
    int given = job->line != NULL ? tow_line_take_back_until(job->line, job->place) : 0;
    job->line = NULL;
    return error < 0 ? error : given;
}

/* ---- receiving ---- */

static int take_frame(struct lane *lane)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    struct tow_data data;
    uint32_t pad = 0;
    int error = tow_line_peek(lane->line, TOW_DATA_HEAD, TOW_TIME_FOREVER, &at, &available);
    if (error < 0) {
        return error;
    }
    if (tow_frame_read(at, &frame) < 0 || tow_data_head_decode(at, &frame, &data, &pad) < 0) {
        return -EPROTO;
    }
    tow_line_consume(lane->line, TOW_DATA_HEAD);
    error = lane->lanes->user.take(lane->lanes->user.user, lane->line, &data);
    if (error == 0 && pad > 0) {
        error = tow_line_peek(lane->line, pad, TOW_TIME_FOREVER, &at, &available);
        if (error == 0) {
            tow_line_consume(lane->line, pad);
        }
    }
    return error;
}

static void *receiver_run(void *arg)
{
    struct lane *lane = arg;
    int error;
    do {
        error = take_frame(lane);
    } while (error == 0);
    lanes_end(lane->lanes, error);
    return NULL;
}

/* ---- life ---- */

struct tow_lanes *tow_lanes_create(const struct tow_lanes_user *user)
{
    struct tow_lanes *lanes = calloc(1, sizeof *lanes);
    if (lanes != NULL) {
        lanes->user = *user;
        tow_mutex_init(&lanes->lock, LINE_LANES);
        pthread_cond_init(&lanes->changed, NULL);
    }
    return lanes;
}

int tow_lanes_add(struct tow_lanes *lanes, struct tow_line *line)
{
    struct lane *lane = calloc(1, sizeof *lane);
    int error = lane == NULL ? -ENOMEM : 0;
    if (error == 0) {
        *lane = (struct lane){.lanes = lanes, .line = line};
        lane->jobs_end = &lane->jobs;
        tow_mutex_lock(&lanes->lock);
        error = lanes->error != 0 ? -ESHUTDOWN : lanes->count == TOW_LANES_MAX ? -ENOSPC : 0;
        /* Under the lock: the threads take it before they look at anything else of the lanes. */
        if (error == 0) {
            error = tow_thread_start("towline-lane-out", sender_run, lane, &lane->sender);
        }
        if (error == 0) {
            error = tow_thread_start("towline-lane-in", receiver_run, lane, &lane->receiver);
            if (error < 0) {
                lanes->error = error; /* one half is no use: none are */
                pthread_cond_broadcast(&lanes->changed);
                tow_mutex_unlock(&lanes->lock);
                pthread_join(lane->sender, NULL);
                for (unsigned i = 0; i < lanes->count; i++) { /* no more can come */
                    tow_line_shutdown(lanes->lane[i]->line);
                }
                tow_mutex_lock(&lanes->lock);
            }
        }
        if (error == 0) {
            lanes->lane[lanes->count++] = lane;
        }
        tow_mutex_unlock(&lanes->lock);
    }
    if (error < 0) {
        tow_line_close(line);
        free(lane);
    }
    return error;
}

unsigned tow_lanes_count(struct tow_lanes *lanes)
{
    if (lanes == NULL) {
        return 0;
    }
    tow_mutex_lock(&lanes->lock);
    unsigned count = lanes->error == 0 ? lanes->count : 0;
    tow_mutex_unlock(&lanes->lock);
    return count;
}

void tow_lanes_shutdown(struct tow_lanes *lanes)
{
    if (lanes != NULL) {
        lanes_end(lanes, -ESHUTDOWN);
    }
}

void tow_lanes_abandon(struct tow_lanes *lanes)
{
    for (unsigned i = 0; lanes != NULL && i < lanes->count; i++) {
        tow_line_abandon(lanes->lane[i]->line);
    }
}

void tow_lanes_destroy(struct tow_lanes *lanes)
{
    if (lanes == NULL) {
        return;
    }
    tow_lanes_shutdown(lanes);
    for (unsigned i = 0; i < lanes->count; i++) {
        pthread_join(lanes->lane[i]->sender, NULL);
        pthread_join(lanes->lane[i]->receiver, NULL);
    }
    /* Each thread may have ended all of them: only now nobody looks at the lines. */
    for (unsigned i = 0; i < lanes->count; i++) {
        tow_line_close(lanes->lane[i]->line);
        free(lanes->lane[i]);
    }
    tow_mutex_fini(&lanes->lock);
    pthread_cond_destroy(&lanes->changed);
    free(lanes);
}
