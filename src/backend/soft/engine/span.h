/* SPDX-License-Identifier: Apache-2.0 */
/* What the software GPU ran and when, for a timeline (backend.h). */
#ifndef TOW_SOFT_ENGINE_SPAN_H
#define TOW_SOFT_ENGINE_SPAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

/* Whether anybody wants to know. */
extern atomic_bool tow_soft_spans_kept;

/* Whose op this thread is about to run; the nodes of a graph are its own. */
struct tow_soft_span_place {
    uint64_t given_ns, stream;
    unsigned queued;
};
void tow_soft_span_of(struct tow_soft_span_place place);
/* It has just ended; the name (NULL: none) is copied. */
void tow_soft_span_keep(const struct tow_backend_span *span, const char *name);
void tow_soft_spans_fini(void);

extern const struct tow_backend_timeline_ops tow_soft_span_ops;

#endif
