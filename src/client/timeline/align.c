/* SPDX-License-Identifier: Apache-2.0 */
/* How far a server's clock is ahead of ours. A round trip says between which values that is;
 * several together say it more closely. It is changed only where a later one contradicts it, and
 * then gradually: what came one after the other stays so. */
#include "client/timeline/align.h"

void towc_align_begin(struct towc_align *align)
{
    align->low = INT64_MIN;
    align->high = INT64_MAX;
}

void towc_align_take(struct towc_align *align, int64_t asked_ns, int64_t theirs_ns,
                     int64_t answered_ns)
{
    int64_t low = theirs_ns - answered_ns, high = theirs_ns - asked_ns;
    /* Where they contradict each other, a clock has been stepped: the last one is right. */
    bool fits = low <= align->high && high >= align->low;
    align->low = fits && align->low > low ? align->low : low;
    align->high = fits && align->high < high ? align->high : high;
    align->last_ns = answered_ns;
}

void towc_align_end(struct towc_align *align)
{
    int64_t middle = align->low + (align->high - align->low) / 2;
    int64_t now_theirs = align->last_ns + middle;
    if (!align->known) {
        align->known = true;
        align->first_low = align->low;
        align->first_high = align->high;
        align->first_ns = align->last_ns;
        align->before_ns = align->ahead_ns = middle;
        align->from_ns = align->until_ns = now_theirs;
        return;
    }
    int64_t ahead = align->ahead_ns < align->low    ? align->low
                    : align->ahead_ns > align->high ? align->high
                                                    : align->ahead_ns;
    align->before_ns = align->ahead_ns;
    align->from_ns = align->until_ns;
    align->ahead_ns = ahead;
    align->until_ns = now_theirs;
}

int64_t towc_align_ours(const struct towc_align *align, int64_t theirs_ns)
{
    if (theirs_ns >= align->until_ns) {
        return theirs_ns - align->ahead_ns;
    }
    if (theirs_ns <= align->from_ns) {
        return theirs_ns - align->before_ns;
    }
    double part = (double)(theirs_ns - align->from_ns) / (double)(align->until_ns - align->from_ns);
    return theirs_ns - align->before_ns -
           (int64_t)(part * (double)(align->ahead_ns - align->before_ns));
}

int64_t towc_align_error(const struct towc_align *align)
{
    int64_t first = (align->first_high - align->first_low + 1) / 2;
    int64_t up = align->high - align->ahead_ns, down = align->ahead_ns - align->low;
    int64_t last = up > down ? up : down;
    return first > last ? first : last;
}

int64_t towc_align_drift(const struct towc_align *align, int64_t *ret_error)
{
    int64_t passed = align->last_ns - align->first_ns;
    *ret_error = 0;
    if (passed <= 0) {
        return 0;
    }
    double first = (double)align->first_low / 2 + (double)align->first_high / 2;
    double last = (double)align->low / 2 + (double)align->high / 2;
    double wide =
        (double)(align->first_high - align->first_low) / 2 + (double)(align->high - align->low) / 2;
    *ret_error = (int64_t)(wide / (double)passed * 1e9);
    return (int64_t)((last - first) / (double)passed * 1e9);
}
