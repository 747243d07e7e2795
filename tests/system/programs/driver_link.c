/* SPDX-License-Identifier: Apache-2.0 */
/* The driver-API program, linked to libcuda. */
#include <cuda.h>

#define CALL(function) function
#include "driver_body.h"

int main(void)
{
    return body();
}
