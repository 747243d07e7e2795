/* SPDX-License-Identifier: Apache-2.0 */
/* How many keys were hit wrongly: letters left out, added, changed, or two that changed places. */
#include "cli/guess.h"

#include <stdbool.h>
#include <string.h>

enum { GUESS_MAX = 40 }; /* longer words are no names of ours */

static unsigned guess_smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Both have at most GUESS_MAX letters. */
static unsigned guess_distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    unsigned rows[3][GUESS_MAX + 1]; /* of the letters of `a` before the last, until it, and now */
    unsigned *before = rows[0], *last = rows[1], *now = rows[2];
    for (unsigned j = 0; j <= b_size; j++) {
        before[j] = last[j] = j;
    }
    for (unsigned i = 1; i <= a_size; i++) {
        now[0] = i;
        for (unsigned j = 1; j <= b_size; j++) {
            now[j] = guess_smaller(last[j] + 1, now[j - 1] + 1);
            now[j] = guess_smaller(now[j], last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = guess_smaller(now[j], before[j - 2] + 1);
            }
        }
        unsigned *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b_size];
}

void tow_guess_init(struct tow_guess *guess, const char *word)
{
    *guess = (struct tow_guess){.word = word};
}

void tow_guess_offer(struct tow_guess *guess, const char *known)
{
    size_t typed = strlen(guess->word), length = strlen(known);
    if (typed == 0 || typed > GUESS_MAX || length > GUESS_MAX) {
        return;
    }
    /* Of a long word more may be wrong; one that stops early needs no other mistake. */
    unsigned most = typed <= 5 ? 1 : typed <= 8 ? 2 : 3;
    bool begins = typed >= 2 && strncmp(guess->word, known, typed) == 0;
    unsigned distance = begins ? 1 : guess_distance(guess->word, typed, known, length);
    if (distance <= most && distance < length &&
        (guess->best == NULL || distance < guess->distance)) {
        guess->best = known;
        guess->distance = distance;
    }
}
