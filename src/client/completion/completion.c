/* SPDX-License-Identifier: Apache-2.0 */
/* What both sources share: their life with the link, and when neither will do. */
#include "client/completion/inside.h"

#include <stdlib.h>

#include "client/session/modes.h"

struct tow_completions *tow_completions_make(void)
{
    return calloc(1, sizeof(struct tow_completions));
}

void tow_completions_destroy(struct tow_completions *completions)
{
    if (completions != NULL) {
        tow_share_piece_fini(&completions->slot_piece);
        tow_share_piece_fini(&completions->event_piece);
        free(atomic_load(&completions->watches));
        free(completions);
    }
}

bool tow_completion_brings_more(struct tow_link *link)
{
    return atomic_load_explicit(&tow_wait_always, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&tow_mirror_count, memory_order_relaxed) != 0 ||
           tow_link_expects(link);
}

void tow_completion_hear(struct tow_link *link)
{
    if (link->completions != NULL) {
        atomic_fetch_add(&link->completions->heard, 1);
    }
}
