#include "server/transfer.h"

#include <errno.h>
#include <stdlib.h>

#include "server/session.h"
#include "wire/control.h"

struct tow_incoming {
    uint32_t number;
    uint64_t size, got;
    struct tow_transfer_sink sink;
    struct tow_incoming *next;
};

int tow_transfer_expect(struct tow_session *session, uint32_t number, uint64_t size,
                        const struct tow_transfer_sink *sink)
{
    if (size == 0) {
        sink->done(sink->user, true);
        return 0;
    }
    struct tow_incoming *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    *made = (struct tow_incoming){.number = number, .size = size, .sink = *sink};
    pthread_mutex_lock(&session->thread_lock);
    for (struct tow_incoming *i = session->incoming; i != NULL; i = i->next) {
        if (i->number == number) {
            pthread_mutex_unlock(&session->thread_lock);
            free(made);
            return -EEXIST;
        }
    }
    made->next = session->incoming;
    session->incoming = made;
    pthread_mutex_unlock(&session->thread_lock);
    return 0;
}

static struct tow_incoming **find(struct tow_session *session, uint32_t number)
{
    struct tow_incoming **at = &session->incoming;
    while (*at != NULL && (*at)->number != number) {
        at = &(*at)->next;
    }
    return at;
}

int tow_transfer_take(struct tow_session *session, const uint8_t *at, uint32_t length)
{
    struct tow_frame frame;
    struct tow_data data;
    uint32_t pad = 0;
    if (tow_frame_read(at, &frame) < 0 || frame.length != length ||
        tow_data_head_decode(at, &frame, &data, &pad) < 0) {
        return -EPROTO;
    }
    pthread_mutex_lock(&session->thread_lock);
    struct tow_incoming **where = find(session, data.transfer);
    struct tow_incoming *incoming = *where;
    bool failed = (data.flags & TOW_DATA_FAILED) != 0;
    bool fits = incoming != NULL && data.offset == incoming->got &&
                data.size <= incoming->size - incoming->got;
    bool last = fits && (failed || data.offset + data.size == incoming->size);
    if (last) {
        *where = incoming->next;
    }
    pthread_mutex_unlock(&session->thread_lock);
    if (!fits) {
        return -EPROTO;
    }
    if (data.size > 0 && !failed) {
        incoming->sink.chunk(incoming->sink.user, data.offset, at + TOW_DATA_HEAD, data.size);
    }
    incoming->got += data.size;
    if (last) {
        incoming->sink.done(incoming->sink.user, !failed);
        free(incoming);
    }
    return 0;
}

void tow_transfer_end_all(struct tow_session *session)
{
    pthread_mutex_lock(&session->thread_lock);
    struct tow_incoming *all = session->incoming;
    session->incoming = NULL;
    pthread_mutex_unlock(&session->thread_lock);
    while (all != NULL) {
        struct tow_incoming *next = all->next;
        all->sink.done(all->sink.user, false);
        free(all);
        all = next;
    }
}
