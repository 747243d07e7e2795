/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody meant who mistyped a word. */
#ifndef TOW_CLI_GUESS_H
#define TOW_CLI_GUESS_H

#include <stddef.h>

/* Looks at one word after another; the nearest stays in `best`. */
struct tow_guess {
    const char *word; /* borrowed; what was typed */
    const char *best; /* borrowed; NULL: none was near */
    unsigned distance;
};
void tow_guess_init(struct tow_guess *guess, const char *word);
void tow_guess_offer(struct tow_guess *guess, const char *known);

#endif
