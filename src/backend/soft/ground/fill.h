/* SPDX-License-Identifier: Apache-2.0 */
/* Each family of entry points puts its functions into the driver table. */
#ifndef TOW_SOFT_GROUND_FILL_H
#define TOW_SOFT_GROUND_FILL_H

#include "backend/driver.h"

void tow_soft_fill_core(struct tow_driver *driver);
void tow_soft_fill_device(struct tow_driver *driver);
void tow_soft_fill_context(struct tow_driver *driver);
void tow_soft_fill_memory(struct tow_driver *driver);
void tow_soft_fill_copy(struct tow_driver *driver);
void tow_soft_fill_stream(struct tow_driver *driver);
void tow_soft_fill_event(struct tow_driver *driver);
void tow_soft_fill_module(struct tow_driver *driver);
void tow_soft_fill_kernel(struct tow_driver *driver);
void tow_soft_fill_link(struct tow_driver *driver);
void tow_soft_fill_launch(struct tow_driver *driver);
void tow_soft_fill_pool(struct tow_driver *driver);
void tow_soft_fill_vmm(struct tow_driver *driver);
void tow_soft_fill_array(struct tow_driver *driver);
void tow_soft_fill_texture(struct tow_driver *driver);
void tow_soft_fill_graph(struct tow_driver *driver);
void tow_soft_fill_graph_condition(struct tow_driver *driver);
void tow_soft_fill_graph_exec(struct tow_driver *driver);
void tow_soft_fill_graph_nodes(struct tow_driver *driver);
void tow_soft_fill_capture(struct tow_driver *driver);
/* After contexts and streams, which it uses. */
void tow_soft_fill_green(struct tow_driver *driver);
void tow_soft_fill_ipc(struct tow_driver *driver);
void tow_soft_fill_ipc_event(struct tow_driver *driver);

#endif
