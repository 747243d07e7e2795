/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader of the line does for further connections. */
#include "client/link/further.h"

#include <string.h>

#include "base/mutex.h"
#include "transport/lanes.h"

void towc_further_set_lane_key(struct towc_link *link, const uint64_t key[2])
{
    tow_mutex_lock(&link->lane.lock);
    memcpy(link->lane.key, key, sizeof link->lane.key);
    link->lane.key_known = true;
    tow_mutex_unlock(&link->lane.lock);
}

void towc_further_set_side_key(struct towc_link *link, const uint64_t key[2])
{
    tow_mutex_lock(&link->side_send.lock);
    memcpy(link->side_send.key, key, sizeof link->side_send.key);
    link->side_send.key_known = true;
    pthread_cond_broadcast(&link->side_send.told);
    tow_mutex_unlock(&link->side_send.lock);
}

static void lanes_lost(struct towc_link *link)
{
    tow_mutex_lock(&link->lane.lock);
    struct tow_lanes *lanes = link->lane.lanes;
    tow_mutex_unlock(&link->lane.lock);
    tow_lanes_shutdown(lanes);
}

static void side_lost(struct towc_link *link)
{
    struct tow_line *side = atomic_load_explicit(&link->side, memory_order_acquire);
    if (side != NULL) {
        tow_line_shutdown(side);
        return;
    }
    tow_mutex_lock(&link->side_send.lock);
    pthread_cond_broadcast(&link->side_send.told); /* who waits for the key sees that it is lost */
    tow_mutex_unlock(&link->side_send.lock);
}

void towc_further_lost(struct towc_link *link)
{
    lanes_lost(link);
    side_lost(link);
}
