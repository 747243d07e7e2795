/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: moments in streams. */
#ifndef TOW_SOFT_ENGINE_MARK_H
#define TOW_SOFT_ENGINE_MARK_H

#include <stdbool.h>
#include <stdint.h>

struct tow_soft_board;
struct tow_soft_ctx;
struct tow_soft_mark;

/* What marks call of the board that they are on. */
struct tow_soft_board_ops {
    void (*finish)(const struct tow_soft_mark *mark);
    bool (*done)(const struct tow_soft_mark *mark); /* of a mark that another process made */
    void (*unref)(struct tow_soft_board *board);
};

/* A moment in a stream. */
struct tow_soft_mark {
    unsigned refs;
    bool done;
    bool timing;
    int64_t time_ns;
    struct tow_soft_ctx *ctx; /* borrowed */
    /* Of an event that other processes know: where they see it. */
    struct tow_soft_board *board; /* counted; NULL: nobody else knows it */
    const struct tow_soft_board_ops *board_ops;
    uint32_t slot, turn;
    bool foreign; /* recorded elsewhere: `done` only once tow_soft_mark_done has seen it */
};
struct tow_soft_mark *tow_soft_mark_create(struct tow_soft_ctx *ctx, bool timing);
struct tow_soft_mark *tow_soft_mark_ref(struct tow_soft_mark *mark);
void tow_soft_mark_unref(struct tow_soft_mark *mark);
/* Its moment has come, or never will. */
void tow_soft_mark_finish(struct tow_soft_mark *mark);
bool tow_soft_mark_done(struct tow_soft_mark *mark);

#endif
