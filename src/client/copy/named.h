/* SPDX-License-Identifier: Apache-2.0 */
/* Copies whose command names both operands: on the device, or of host memory that the worker has
 * too. Executors of client/copy/plan.h's ways.
 */
#ifndef TOW_CLIENT_NAMED_H
#define TOW_CLIENT_NAMED_H

#include "client/copy/look.h"

towc_copy_executor towc_named_push;     /* TOW_WAY_PUSH */
towc_copy_executor towc_named_captured; /* TOW_WAY_CAPTURED */
towc_copy_executor towc_named_device;   /* TOW_WAY_DEVICE */
towc_copy_executor towc_named_copy;     /* TOW_WAY_NAMED */
/* TOW_WAY_TURN: behind host functions that write its source, or that the program is still to let
 * go, a copy takes place in its turn: between the device and the worker's memory, which is mirrored
 * from then on. That costs every launch, so the functions are given a moment first: when they have
 * run it is a copy like any other. Where the worker cannot have a mirror an upload waits for its
 * stream. */
towc_copy_executor towc_named_turn;

#endif
