/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and pools that the program exports as descriptors. */
#ifndef TOW_CLIENT_SHAREABLE_H
#define TOW_CLIENT_SHAREABLE_H

/* Lets the server close what stands for descriptors that nobody has any more: before calls that
 * free memory, or that need some. */
void towc_shareable_sweep(void);

#endif
