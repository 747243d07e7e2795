/* SPDX-License-Identifier: Apache-2.0 */
/* Further connections of a link, as its reader knows them: client/link/lane.h and
 * client/link/side.h open and use them.
 */
#ifndef TOW_CLIENT_FURTHER_H
#define TOW_CLIENT_FURTHER_H

#include "client/link/link.h"

/* The server told the key that opens lanes; the one that opens the side line (0, 0: there is none).
 */
void towc_further_set_lane_key(struct towc_link *link, const uint64_t key[2]);
void towc_further_set_side_key(struct towc_link *link, const uint64_t key[2]);
/* The link is lost, and they with it. */
void towc_further_lost(struct towc_link *link);

#endif
