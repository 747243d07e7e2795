/* Memory that this program and its worker both have (wire/share.h), where the line can pass it:
 * page-locked memory of the program and notes that the GPU writes (client/copy/stage.h: all other
 * memory). Everything here may answer "not this way"; the caller then does what it does over a
 * network.
 */
#ifndef TOW_CLIENT_SHARE_H
#define TOW_CLIENT_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/link/link.h"
#include "wire/share.h"

struct tow_share;

/* Of a link that was just opened; NULL if its line cannot pass memory. */
struct tow_share *tow_share_make(struct tow_line *line);
void tow_share_destroy(struct tow_share *share);

/* New memory for both. CUDA_ERROR_NOT_SUPPORTED: it cannot be shared. */
CUresult tow_share_alloc(struct tow_link *link, size_t size, void **ret_at);
/* Ends it; the worker has let go of it when this returns. */
CUresult tow_share_free(struct tow_link *link, void *at, size_t size);

/* A file in memory whose size is fixed for good. */
int tow_share_make_memory(size_t size, int *ret_fd);
/* Passes memory that the program has at [at, at + size), whole pages, for the worker to map there
 * as well: one that tow_share_make_memory made for it, or, with an offset, a file of the program's.
 */
CUresult tow_share_lend(struct tow_link *link, int fd, uint64_t at, uint64_t size,
                        const uint64_t *offset);
/* Ends that; here nothing changes. */
CUresult tow_share_take_back(struct tow_link *link, uint64_t at);

/* cuStreamSynchronize: by a note of the GPU's where that is possible, else by asking, which also
 * tells what went wrong. */
CUresult tow_share_synchronize(struct tow_link *link, CUstream stream);
/* cuCtxSynchronize of the current context, by a note: if one stream can tell, and nothing has to be
 * fetched. False: it must be asked for. */
bool tow_share_synchronize_context(struct tow_link *link, CUresult *ret_status);
/* True if the stream was seen empty, and nothing was sent since. */
bool tow_share_is_quiet(struct tow_link *link, CUstream stream);
/* A note of the program's own, for an event; NULL if there is none to be had. For the life of the
 * link. */
const struct tow_share_note *tow_share_slip(struct tow_link *link);
enum tow_share_outcome {
    TOW_SHARE_DONE,
    TOW_SHARE_REFUSED, /* it must be asked for */
    TOW_SHARE_LATE,
};
/* Whether the note says so; `wait`: looks at it for as long as a synchronisation does. REFUSED also
 * where a reply brings more than the news. */
enum tow_share_outcome tow_share_look(struct tow_link *link, const struct tow_share_note *note,
                                      uint32_t value, bool wait);

/* Memory was freed in the stream's order. It goes back to its pool, and from there to the system,
 * in the driver's own synchronisation: the stream's next one is asked for. */
void tow_share_owe(struct tow_link *link, CUstream stream);

/* A copy between the device and shared memory, which the program handed over. `wait`: until it is
 * done. */
CUresult tow_share_upload(struct tow_link *link, CUdeviceptr to, const void *from, size_t size,
                          CUstream stream, bool wait);
CUresult tow_share_download(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                            CUstream stream, bool wait);

/* ---- for client/copy/stage.c ---- */

/* Shared memory for our own use, made when it is first wanted. */
struct tow_share_piece {
    atomic_int state;
    uint8_t *base; /* owned; set once */
    size_t size;
};
/* False: it cannot be had, and will not be asked for again. */
bool tow_share_piece_ready(struct tow_link *link, struct tow_share_piece *piece, size_t size);
void tow_share_piece_fini(struct tow_share_piece *piece);

/* What a note says of a value; and after looking for as long as a synchronisation does. */
enum tow_share_outcome tow_share_seen(const struct tow_share_note *note, uint32_t value);
enum tow_share_outcome tow_share_await(const struct tow_share_note *note, uint32_t value);
/* What a synchronisation brings besides the news that it is over (memory that is mirrored or still
 * to be filled): then it must be asked for. */
bool tow_share_brings_more(struct tow_link *link);
/* Synchronises by asking, and sleeps until the answer comes. */
CUresult tow_share_ask(struct tow_link *link, CUstream stream);
/* Sends a copy of one dimension without a reply. `note` may be NULL; `ret_number`: the command's.
 */
CUresult tow_share_send(unsigned fn, CUdeviceptr device, const void *host, size_t size,
                        CUstream stream, const struct tow_share_note *note, uint32_t value,
                        uint64_t *ret_number);
/* Command `number` was the last one of a stream, which is through with it. */
void tow_share_note_quiet(struct tow_link *link, CUstream stream, uint64_t number);

/* A download that is small enough for the room beside a note. CUDA_ERROR_NOT_SUPPORTED: nothing was
 * done. */
enum { TOW_SHARE_FETCH_MAX = (8 << 10) - (int)sizeof(struct tow_share_note) };
struct tow_staged;
CUresult tow_share_fetch(struct tow_link *link, const struct tow_staged *what);

#endif
