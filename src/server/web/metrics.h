/* SPDX-License-Identifier: Apache-2.0 */
/* Figures as Prometheus reads them. Labels name GPUs, states of workers and the version: none of
 * them has more values than the server has GPUs. */
#ifndef TOW_SERVER_WEB_METRICS_H
#define TOW_SERVER_WEB_METRICS_H

#include "base/buf.h"
#include "server/web/figures.h"

#define TOW_METRICS_OPEN "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define TOW_METRICS_TEXT "text/plain; version=0.0.4; charset=utf-8"

/* `open`: OpenMetrics 1.0, else the older text format. `dcgm`: what a GPU's driver knows also under
 * the names of NVIDIA's exporter. -E2BIG, -ENOMEM. */
int tows_metrics_write(const struct tows_figures *figures, bool open, bool dcgm,
                       struct tow_buf *out);

#endif
