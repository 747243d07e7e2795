/* SPDX-License-Identifier: Apache-2.0 */
/* How Towline's own driver library is told from NVIDIA's: it alone knows this export table. */
#ifndef TOW_BASE_OURS_H
#define TOW_BASE_OURS_H

/* Sixteen bytes, in memory order, for cuGetExportTable. Ours answers CUDA_SUCCESS and a pointer to
 * a table whose first word is its size in bytes; every other driver answers
 * CUDA_ERROR_INVALID_VALUE. */
#define TOW_OURS_UUID "\x54\x6f\x77\x6c\x69\x6e\x65\x21\x9d\x3e\x4b\x71\xa8\x02\xc5\x16"
#define TOW_OURS_UUID_SIZE 16

#endif
