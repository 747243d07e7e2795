/* SPDX-License-Identifier: Apache-2.0 */
/* What GPUs did and when, for a timeline (backend.h): kept here until somebody takes it. */
#ifndef TOW_BACKEND_SPANS_H
#define TOW_BACKEND_SPANS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

/* Whether anybody wants to know. */
extern atomic_bool tow_spans_kept;

/* Which command of the session the calling thread carries out; 0: none. The server sets it. */
extern __thread uint64_t tow_spans_command;

/* Makes room. Again: nothing. -ENOMEM. */
int tow_spans_begin(void);
/* The name (NULL: none) is copied. Any thread. */
void tow_spans_keep(const struct tow_backend_span *span, const char *name);
/* What happened, and nobody can say when. */
void tow_spans_lose(uint64_t count);
/* For tow_backend_timeline_ops. */
unsigned tow_spans_take(struct tow_backend_span *ret_spans, unsigned count, uint64_t *ret_lost);
const char *tow_spans_name(uint32_t number);
/* Spans that nobody has taken. */
unsigned tow_spans_count(void);
void tow_spans_fini(void);

#endif
