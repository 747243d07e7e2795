/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the device runtime that the machine brings along. */
#ifndef TOW_PTX_RUNTIME_H
#define TOW_PTX_RUNTIME_H

#include "ptx/ptx.h"
#include "ptx/text/ir.h"

/* The text that defines them, if the program names one of them and has no definition; else NULL. */
const struct tow_ptx_text *tow_ptx_runtime_for(const struct tow_ptx_program *program);

#endif
