/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: moments in streams. */
#include "backend/soft/engine/mark.h"
#include "backend/soft/ground/context.h"

#include <stdlib.h>

struct tow_soft_mark *tow_soft_mark_create(struct tow_soft_ctx *ctx, bool timing)
{
    struct tow_soft_mark *mark = calloc(1, sizeof *mark);
    if (mark != NULL) {
        mark->refs = 1;
        mark->timing = timing;
        mark->ctx = ctx;
    }
    return mark;
}

struct tow_soft_mark *tow_soft_mark_ref(struct tow_soft_mark *mark)
{
    if (mark != NULL) {
        mark->refs++;
    }
    return mark;
}

void tow_soft_mark_unref(struct tow_soft_mark *mark)
{
    if (mark != NULL && --mark->refs == 0) {
        if (mark->board != NULL) {
            tow_soft_mark_finish(mark); /* if it never got into a queue */
            mark->board_ops->unref(mark->board);
        }
        free(mark);
    }
}

void tow_soft_mark_finish(struct tow_soft_mark *mark)
{
    if (!mark->done && mark->board != NULL && !mark->foreign) {
        mark->board_ops->finish(mark);
    }
    mark->done = true;
}

bool tow_soft_mark_done(struct tow_soft_mark *mark)
{
    if (!mark->done && mark->foreign) {
        mark->done = mark->board_ops->done(mark);
    }
    return mark->done;
}
