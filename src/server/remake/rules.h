/* SPDX-License-Identifier: Apache-2.0 */
/* What a session's record keeps of each function: generated from the words of api/, see
 * api/README.md. */
#ifndef TOW_SERVER_REMAKE_RULES_H
#define TOW_SERVER_REMAKE_RULES_H

#include <stdint.h>

#include "gen/functions.h"
#include "gen/record_rules.h"

enum tows_record_what {
    TOW_RECORD_NOTHING, /* it asks or runs */
    TOW_RECORD_MAKES,
    TOW_RECORD_PART, /* makes a part of the object */
    TOW_RECORD_ENDS,
    TOW_RECORD_KEEPS,
    TOW_RECORD_LAST,
    TOW_RECORD_FINDS,
    TOW_RECORD_STAYS,
};

/* Where the object's name is. */
enum tows_record_from {
    TOW_RECORD_BODY,    /* the command's 8-byte word of number `at` */
    TOW_RECORD_REPLY,   /* the reply's */
    TOW_RECORD_SEARCH,  /* the command's first word that is a known handle of kind `at` */
    TOW_RECORD_CONTEXT, /* the context in which it was carried out */
    TOW_RECORD_SESSION,
};

/* Bytes of the command; size 0: the first known handle of kind `at`. */
struct tows_record_key {
    uint16_t at, size;
};

struct tows_record_rule {
    uint8_t what, from, at;
    uint8_t first_key,
        key_count;  /* in tows_record_keys: what calls agree in of which one is kept */
    uint8_t kind;   /* enum tows_name_kind */
    uint8_t reason; /* enum tows_stays */
};

extern const struct tows_record_rule tows_record_rules[TOW_FN_LIMIT];
extern const struct tows_record_key tows_record_keys[];

#endif
