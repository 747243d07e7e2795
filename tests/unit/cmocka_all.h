/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka wants these before it. */
#ifndef TOW_TESTS_CMOCKA_ALL_H
#define TOW_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Leaves a test, with a reason that tests/run shows: a sentence's end after "not run: ". */
#define skip_because(reason)                                                                       \
    do {                                                                                           \
        print_message("[  REASON  ] %s: %s\n", __func__, reason);                                  \
        skip();                                                                                    \
    } while (0)

#endif
