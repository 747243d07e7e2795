/* SPDX-License-Identifier: Apache-2.0 */
/* Further connections to a server, for large copies; see transport/lanes.h. TOWLINE_LANES says how
 * many connections a session has in all; they are opened when the first large copy comes. */
#ifndef TOW_CLIENT_LANE_H
#define TOW_CLIENT_LANE_H

#include "client/link/link.h"

/* How many further connections the settings want for this link. */
unsigned towc_lane_wanted(const struct towc_link *link);
/* Connects and says whose connection it is; 0 once the server has taken it. */
int towc_lane_connect(const struct towc_link *link, const char *address,
                      const struct tow_lane *lane, char *why, size_t why_size,
                      struct tow_line **ret_line);

/* How many to use for a copy of `size` bytes, opening them if need be; 0: the copy is too small or
 * there are none. Not with the send lock held. */
unsigned towc_lane_use(struct towc_link *link, size_t size);

/* As towc_link_upload, over the link's own line and `lanes` more, where they are packed as well:
 * the frames have room for one of each line. */
CUresult towc_lane_upload(struct towc_link *link, uint32_t transfer,
                          const struct towc_packer *packer, unsigned lanes);

#endif
