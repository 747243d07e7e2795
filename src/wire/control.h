/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of control frames: one struct, one encoder and one decoder each.
 *
 * Encoders take the whole place of the frame and give its length to commit: -EMSGSIZE when it does
 * not fit. Decoders take a whole frame (header included, already checked by tow_frame_read):
 * -EPROTO when the body is not what it must be. Bytes behind the known fields are ignored: a newer
 * peer may have added some. Strings and bytes that a decoder gives are borrowed from the frame.
 */
#ifndef TOW_WIRE_CONTROL_H
#define TOW_WIRE_CONTROL_H

#include "wire/frame.h"
#include "wire/login.h"
#include "wire/token.h"

/* "TOWL": the first word of the body of HELLO, WELCOME and REFUSE. */
#define TOW_MAGIC 0x4c574f54u

#define TOW_SLOT_NONE 0xffffffffu

/* Capabilities in HELLO and WELCOME. A control frame that is new has a bit here, and is sent only
 * to a peer that has said it. */
#define TOW_CAN_LANES 1u   /* the client may add connections, if it is told the key */
#define TOW_CAN_OUTLAST 2u /* the server hangs up behind a BYE when the worker has ended */
#define TOW_CAN_SILENCE 4u /* the client knows TOW_NOTICE_SILENCE */
#define TOW_CAN_LOGIN 8u   /* the client answers a CHALLENGE */
#define TOW_CAN_LIMIT 16u  /* the server takes what HELLO asks of GPU memory */
#define TOW_CAN_FULL 32u   /* the session has a quota: code that is known may not fit any more */
#define TOW_CAN_LINE 64u   /* the server takes what HELLO says of waiting in line */
#define TOW_CAN_LAST 128u  /* the line outlives its connection; behind a WELCOME LASTING follows */
#define TOW_CAN_TIMELINE 256u /* the server answers TIMELINE, wire/timeline.h */

/* A function and the hash of what travels for it. */
struct tow_travel {
    uint32_t number, hash;
};

/* How a program waits where there is no room for it, and what it asks for there: never more than
 * it gets anyway. */
struct tow_wish {
    uint32_t wait_s;    /* seconds that it waits in line, or TOW_WAIT_...; UNSAID: it cannot */
    uint32_t priority;  /* enum tow_priority; an unknown one is UNSAID */
    uint32_t share;     /* its weight among those that compute; 0: it does not say */
    uint32_t exclusive; /* 1: the GPUs for itself alone */
};

#define TOW_WAIT_UNSAID 0u
#define TOW_WAIT_NONE UINT32_MAX       /* it is refused at once */
#define TOW_WAIT_LONG (UINT32_MAX - 1) /* as long as it may */

enum tow_priority {
    TOW_PRIORITY_UNSAID,
    TOW_PRIORITY_LOW,
    TOW_PRIORITY_NORMAL,
    TOW_PRIORITY_HIGH,
};

struct tow_hello {
    uint32_t version_min;
    uint32_t version_max;
    uint64_t table_hash[4];
    uint64_t capabilities;
    uint32_t pid;
    uint32_t slot;        /* which address slot the client wants, or TOW_SLOT_NONE */
    const char *name;     /* the program, for status displays; "" if unknown */
    const char *token;    /* NULL: none */
    const char *release;  /* Towline's version; NULL: the client says nothing from here on */
    uint32_t functions;   /* that the client may call: struct tow_travel, numbers ascending */
    const void *travels;  /* so many of them; aligned to nothing */
    uint64_t gpu_memory;  /* bytes of each GPU that the program asks for; 0: it does not, else it
                             says its release */
    struct tow_wish wish; /* travels unless it does not say how long it waits */
    uint32_t env_count;
    const char *env[TOW_HELLO_ENV_MAX]; /* "KEY=VALUE": what changes how the driver starts */
};

int tow_hello_encode(const struct tow_hello *hello, void *at, size_t size, uint32_t *ret_length);
int tow_hello_decode(const void *at, const struct tow_frame *frame, struct tow_hello *ret_hello);

enum tow_range_kind {
    TOW_RANGE_DEVICE = 1,  /* device and managed memory */
    TOW_RANGE_POOL = 2,    /* stream-ordered pools */
    TOW_RANGE_PINNED = 3,  /* host memory both sides map at the same address */
    TOW_RANGE_RESERVE = 4, /* address space reserved by the program (cuMemAddressReserve) */
};

struct tow_range {
    uint64_t base;
    uint64_t size;
    uint32_t kind; /* enum tow_range_kind; an unknown one is to be avoided like the others */
};

struct tow_welcome {
    uint32_t version;
    uint64_t table_hash[4];
    uint64_t capabilities;
    uint64_t session;
    uint32_t frame_max;      /* the server takes no larger frame */
    uint32_t data_max;       /* nor a DATA frame with more payload */
    uint64_t command_window; /* bytes of commands that may be unacknowledged */
    uint64_t data_window;    /* the same for bulk data */
    uint32_t range_count;
    struct tow_range ranges[TOW_WELCOME_RANGES_MAX];
    uint32_t snapshot_size;
    const uint8_t *snapshot; /* opaque here: the devices */
    /* What a client that retains device 0's primary context would be told of it, so that it need
     * not wait for that. Size 0: there is no such context yet. */
    uint32_t context_size;
    const uint8_t *context;
    /* Functions of the client's that this server does not know, or knows otherwise. */
    uint32_t lacking_count;
    const void *lacking; /* so many u32 numbers; aligned to nothing */
};

int tow_welcome_encode(const struct tow_welcome *welcome, void *at, size_t size,
                       uint32_t *ret_length);
int tow_welcome_decode(const void *at, const struct tow_frame *frame,
                       struct tow_welcome *ret_welcome);

enum tow_refusal {
    TOW_REFUSE_PROTOCOL = 1, /* not our protocol, or no common version */
    TOW_REFUSE_BUSY = 2,     /* no worker or no GPU free now */
    TOW_REFUSE_TOKEN = 3,    /* not allowed */
    TOW_REFUSE_DEVICE = 4,   /* no usable device */
    TOW_REFUSE_FAILED = 5,   /* the server could not start a session */
};

/* Its layout never changes: peers of any version must be able to read why. */
struct tow_refuse {
    uint32_t code; /* enum tow_refusal */
    const char *sentence;
};

int tow_refuse_encode(const struct tow_refuse *refuse, void *at, size_t size, uint32_t *ret_length);
int tow_refuse_decode(const void *at, const struct tow_frame *frame, struct tow_refuse *ret_refuse);

struct tow_callback {
    uint64_t id;
    uint32_t status; /* CUresult that the callback is told (stream callbacks), else 0 */
};

/* The body alone, for a sender that writes the header itself; so with the four below. */
#define TOW_CALLBACK_HEAD 16u
void tow_callback_head(const struct tow_callback *callback, uint8_t ret_head[TOW_CALLBACK_HEAD]);
int tow_callback_decode(const void *at, const struct tow_frame *frame,
                        struct tow_callback *ret_callback);

struct tow_callback_done {
    uint64_t id;
    uint64_t behind; /* bytes that had gone out on the session's own line before */
};

#define TOW_CALLBACK_DONE_HEAD 16u
void tow_callback_done_head(const struct tow_callback_done *done,
                            uint8_t ret_head[TOW_CALLBACK_DONE_HEAD]);
int tow_callback_done_decode(const void *at, const struct tow_frame *frame,
                             struct tow_callback_done *ret_done);

/* Some of the bytes of the deferred upload `number`. */
struct tow_callback_bytes {
    uint64_t number;
    uint64_t offset;
    uint64_t size;
    const void *bytes;
};

#define TOW_CALLBACK_BYTES_HEAD 24u /* in front of the bytes */
void tow_callback_bytes_head(const struct tow_callback_bytes *chunk,
                             uint8_t ret_head[TOW_CALLBACK_BYTES_HEAD]);
int tow_callback_bytes_decode(const void *at, const struct tow_frame *frame,
                              struct tow_callback_bytes *ret_chunk);

struct tow_fence {
    uint64_t mirrors; /* MIRROR frames of the side line that commands behind it wait for */
};

#define TOW_FENCE_HEAD 8u
void tow_fence_head(const struct tow_fence *fence, uint8_t ret_head[TOW_FENCE_HEAD]);
int tow_fence_decode(const void *at, const struct tow_frame *frame, struct tow_fence *ret_fence);

/* The last word of a cuMemAllocManaged: how the client learns what the GPU writes there. */
enum {
    TOW_MANAGED_SENT = 0,          /* by MIRROR frames before replies; the server clears it */
    TOW_MANAGED_FETCHED_ZEROS = 1, /* by FETCH; the server clears it (what older clients ask) */
    TOW_MANAGED_FETCHED = 2,       /* by FETCH; it is as the driver gave it out */
};

/* Memory that host and GPU see, as the worker has it now: it comes back on the side line in DATA
 * frames of transfer 0, in order. Not known there (any more): one frame with TOW_DATA_FAILED. */
struct tow_fetch {
    uint64_t address;
    uint64_t size; /* 1 .. TOW_FETCH_MAX */
};

#define TOW_FETCH_HEAD 16u
void tow_fetch_head(const struct tow_fetch *fetch, uint8_t ret_head[TOW_FETCH_HEAD]);
int tow_fetch_decode(const void *at, const struct tow_frame *frame, struct tow_fetch *ret_fetch);

/* No descriptor of this program stands for the token any more: the server need not keep what it
 * stands for. */
struct tow_forget {
    struct tow_token token;
};

int tow_forget_encode(const struct tow_forget *forget, void *at, size_t size, uint32_t *ret_length);
int tow_forget_decode(const void *at, const struct tow_frame *frame, struct tow_forget *ret_forget);

/* DONE: of so many watch numbers the awaited value has come; they hold all at once. A watch number
 * is a number that the client has given to an event or a stream; a value is greater (modulo 2^32)
 * than those that it awaited there before. */
struct tow_done {
    uint32_t count;
    struct {
        uint32_t watch_id;
        uint32_t value;
        bool refused; /* it must be asked for; the highest bit of the watch number's word */
    } entries[TOW_WATCH_MAX];
};

#define TOW_DONE_REFUSED 0x80000000u

int tow_done_encode(const struct tow_done *done, void *at, size_t size, uint32_t *ret_length);
int tow_done_decode(const void *at, const struct tow_frame *frame, struct tow_done *ret_done);

struct tow_print {
    uint32_t size;
    const char *text; /* size bytes, any value, no NUL needed */
    bool to_stderr;   /* assert's message; in the header's context field */
};

int tow_print_encode(const struct tow_print *print, void *at, size_t size, uint32_t *ret_length);
int tow_print_decode(const void *at, const struct tow_frame *frame, struct tow_print *ret_print);

/* DATA: a chunk of transfer `transfer`, to be put at `offset` of it. The payload follows the 32
 * bytes of head; it is `length - 32 - pad` bytes long. */
#define TOW_DATA_HEAD 32u
#define TOW_DATA_PAD_MASK 7u
#define TOW_DATA_LAST 8u    /* the transfer's last chunk */
#define TOW_DATA_FAILED 16u /* the transfer ends here, without success; no payload */

struct tow_data {
    uint32_t transfer;
    uint32_t flags; /* TOW_DATA_LAST ...; the pad bits are set by the encoder */
    uint64_t offset;
    uint32_t size; /* payload bytes */
};

/* Writes the 32 bytes of head; the caller then sends `size` bytes and *ret_pad zeros. */
int tow_data_head_encode(const struct tow_data *data, uint16_t thread, uint32_t context,
                         uint8_t ret_head[TOW_DATA_HEAD], uint32_t *ret_pad);
/* The frames of a transfer from `data->offset` to `end`, of data->size bytes each: their heads, at
 * most TOW_DATA_HEADS. TOW_DATA_LAST among data->flags is for the one that reaches `end`. */
enum { TOW_DATA_HEADS = 2 };
struct tow_data_frame {
    uint64_t offset;
    uint32_t size, pad; /* payload bytes, and zeros behind them */
    uint8_t head[TOW_DATA_HEAD];
};
int tow_data_frames_encode(const struct tow_data *data, uint64_t end,
                           struct tow_data_frame ret_frames[TOW_DATA_HEADS], unsigned *ret_count);
/* Reads a head of which only the first 32 bytes need to be there. */
int tow_data_head_decode(const void *at, const struct tow_frame *frame, struct tow_data *ret_data,
                         uint32_t *ret_pad);

/* LANE: the first frame of a further connection of a session, and, from the server, its answer: it
 * is taken. A connection that is not taken is closed. */
struct tow_lane {
    uint64_t session;
    uint64_t key[2]; /* as the NOTICE said: only who has it may add connections */
    uint32_t index;  /* from 1, for bulk data; or: */
};

/* A session's side line: the ends of host functions and what comes with them, client to server. */
#define TOW_LANE_SIDE UINT32_MAX

int tow_lane_encode(const struct tow_lane *lane, void *at, size_t size, uint32_t *ret_length);
int tow_lane_decode(const void *at, const struct tow_frame *frame, struct tow_lane *ret_lane);

/* A server that demands a token answers the first frame of a client that can log in
 * (TOW_CAN_LOGIN, TOW_STATUS_LOGIN) with CHALLENGE. wire/login.h has what is in these. */
struct tow_challenge {
    uint8_t nonce[TOW_LOGIN_SIZE];
};

int tow_challenge_encode(const struct tow_challenge *challenge, void *at, size_t size,
                         uint32_t *ret_length);
int tow_challenge_decode(const void *at, const struct tow_frame *frame,
                         struct tow_challenge *ret_challenge);

struct tow_proof {
    uint64_t id; /* of the token */
    uint8_t nonce[TOW_LOGIN_SIZE];
    uint8_t proof[TOW_LOGIN_SIZE];
};

/* What a PROOF frame has in all. */
#define TOW_PROOF_LENGTH (TOW_FRAME_HEADER + 16u + 2u * TOW_LOGIN_SIZE)

int tow_proof_encode(const struct tow_proof *proof, void *at, size_t size, uint32_t *ret_length);
int tow_proof_decode(const void *at, const struct tow_frame *frame, struct tow_proof *ret_proof);

struct tow_proved {
    uint8_t answer[TOW_LOGIN_SIZE]; /* the server's own proof */
};

int tow_proved_encode(const struct tow_proved *proved, void *at, size_t size, uint32_t *ret_length);
int tow_proved_decode(const void *at, const struct tow_frame *frame, struct tow_proved *ret_proved);

#define TOW_GRANT_ID 16
#define TOW_GRANT_SECRET 32

/* What makes a client one end of a session's lines over tls: the answer to its HELLO there. */
struct tow_grant {
    uint8_t id[TOW_GRANT_ID]; /* no secret: it names the other one */
    uint8_t secret[TOW_GRANT_SECRET];
};

int tow_grant_encode(const struct tow_grant *grant, void *at, size_t size, uint32_t *ret_length);
int tow_grant_decode(const void *at, const struct tow_frame *frame, struct tow_grant *ret_grant);

/* Behind a WELCOME with TOW_CAN_LAST, and the last frame that is not in a record (keep.h). */
struct tow_lasting {
    uint32_t seconds; /* that a cut may last; not 0 */
    /* With what a login on this connection has left, the secret of the session: see
     * tow_login_session. */
    uint8_t secret[TOW_LOGIN_SIZE];
};

int tow_lasting_encode(const struct tow_lasting *lasting, void *at, size_t size,
                       uint32_t *ret_length);
int tow_lasting_decode(const void *at, const struct tow_frame *frame,
                       struct tow_lasting *ret_lasting);

/* Of the session's lines, its own. */
#define TOW_LANE_MAIN 0u
/* No line: a connection on which nothing is said, that tells how the client's end came. */
#define TOW_LANE_LEASH (UINT32_MAX - 1)

/* The server answers CHALLENGE; the PROOF is of the session's number and secret. */
struct tow_resume {
    uint64_t session;
    uint32_t line; /* TOW_LANE_MAIN, a lane's, TOW_LANE_SIDE, TOW_LANE_LEASH */
};

int tow_resume_encode(const struct tow_resume *resume, void *at, size_t size, uint32_t *ret_length);
int tow_resume_decode(const void *at, const struct tow_frame *frame, struct tow_resume *ret_resume);

struct tow_credit {
    uint64_t commands; /* total bytes of commands taken since the session began */
    uint64_t data;     /* the same for bulk payload */
};

int tow_credit_encode(const struct tow_credit *credit, void *at, size_t size, uint32_t *ret_length);
int tow_credit_decode(const void *at, const struct tow_frame *frame, struct tow_credit *ret_credit);

struct tow_bye {
    uint32_t code;        /* 0: the program has ended or asked for it */
    const char *sentence; /* NULL: nothing to say */
};

int tow_bye_encode(const struct tow_bye *bye, void *at, size_t size, uint32_t *ret_length);
int tow_bye_decode(const void *at, const struct tow_frame *frame, struct tow_bye *ret_bye);

enum tow_notice_topic {
    TOW_NOTICE_TEXT = 1,        /* the text is for the user's stderr */
    TOW_NOTICE_ERROR = 2,       /* values: CUresult, function number; an async call failed */
    TOW_NOTICE_DEVICE_LOST = 3, /* value: device number */
    TOW_NOTICE_LANES = 4,       /* values: the key for further connections */
    /* Before the welcome: no worker is ready yet. Values, where it waits in line: its place from 1
     * on with the number of all who wait in that line (<< 32), and enum tow_wait_for. */
    TOW_NOTICE_PATIENCE = 5,
    TOW_NOTICE_SIDE = 6,    /* values: the key for a side line; 0: there is none */
    TOW_NOTICE_SILENCE = 7, /* value: ms that a machine may be silent; 0: for ever */
    TOW_NOTICE_LOGGED = 8,  /* the text is on the user's stderr: for CUDA_LOG_FILE */
};

/* What a program waits for in line: a class of programs that is full, and so on. */
enum tow_wait_for {
    TOW_WAIT_NOT,       /* it does not wait in line: its worker starts */
    TOW_WAIT_SERVER,    /* max-sessions */
    TOW_WAIT_CLASS,     /* max-sessions of its class */
    TOW_WAIT_PEER,      /* sessions-per-peer */
    TOW_WAIT_MEMORY,    /* memory of the GPUs that others were promised */
    TOW_WAIT_EXCLUSIVE, /* somebody has the GPUs alone */
    TOW_WAIT_ALONE,     /* it asks for the GPUs alone, and others have them */
    TOW_WAIT_BEFORE,    /* somebody who comes before it waits for one of these */
};

struct tow_notice {
    uint32_t topic; /* unknown topics are ignored */
    uint64_t values[2];
    const char *text; /* may be NULL */
};

int tow_notice_encode(const struct tow_notice *notice, void *at, size_t size, uint32_t *ret_length);
int tow_notice_decode(const void *at, const struct tow_frame *frame, struct tow_notice *ret_notice);

/* STATUS and REPORT keep their layout in every version, as REFUSE does. */
enum {
    TOW_STATUS_AT_HAND = 1, /* without waiting for new numbers of the GPUs' state */
    /* Only whether it is there: the report is an empty object. With AT_HAND, for older servers. */
    TOW_STATUS_PRESENT = 2,
    /* Orders, of those who may. The report has their name and nothing else; one of a server that
     * does not know them has everything. */
    TOW_STATUS_END = 4,    /* end a session: "end" is its number */
    TOW_STATUS_DRAIN = 8,  /* serve no new programs: "drain" is how many sessions there are */
    TOW_STATUS_LOGIN = 16, /* whoever asks answers a CHALLENGE */
    /* Orders, too; the report comes when it is done. */
    TOW_STATUS_SUSPEND = 32, /* put the session's GPU memory out: "suspend" is its number */
    TOW_STATUS_RESUME = 64,  /* take it in again: "resume" is its number */
};

#define TOW_STATUS_OF_SESSION (TOW_STATUS_END | TOW_STATUS_SUSPEND | TOW_STATUS_RESUME)

struct tow_status {
    uint32_t topics;   /* 0: everything; else TOW_STATUS_...; unknown bits are ignored */
    uint64_t session;  /* with TOW_STATUS_OF_SESSION, and only then it travels */
    uint32_t limit_ms; /* with TOW_STATUS_SUSPEND alone: how long what runs may take to end */
};

int tow_status_encode(const struct tow_status *status, void *at, size_t size, uint32_t *ret_length);
int tow_status_decode(const void *at, const struct tow_frame *frame, struct tow_status *ret_status);

struct tow_report {
    uint32_t size;
    const char *text; /* one JSON object in UTF-8, without a NUL */
};

int tow_report_encode(const struct tow_report *report, void *at, size_t size, uint32_t *ret_length);
int tow_report_decode(const void *at, const struct tow_frame *frame, struct tow_report *ret_report);

#endif
