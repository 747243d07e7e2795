/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a transfer on their way: DATA frames, some of them in one call. */
#ifndef TOW_TRANSPORT_DATA_H
#define TOW_TRANSPORT_DATA_H

#include "transport/line.h"
#include "wire/control.h"

/* Sends the next frames of a transfer, TOW_DATA_HEADS at most: from data->offset on, data->size
 * bytes each, up to `end`. TOW_DATA_LAST among data->flags is the last one's alone. `bytes` are
 * those at data->offset, and the line's until tow_line_take_back. Moves data->offset on, and adds
 * what went over the line. Not beside other producers, as tow_line_lend. */
int tow_data_send(struct tow_line *line, struct tow_data *data, uint64_t end, const void *bytes,
                  uint64_t *sent);

#endif
