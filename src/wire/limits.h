/* SPDX-License-Identifier: Apache-2.0 */
/* Every maximum of the wire, with its reason. A peer that goes beyond one has broken the protocol.
 */
#ifndef TOW_WIRE_LIMITS_H
#define TOW_WIRE_LIMITS_H

/* Protocol versions this build speaks. A version is raised only when an old peer would misread a
 * frame of the handshake, a control frame or an id. What travels for a function is agreed on by
 * hashes, fields added at the end of a frame are ignored by who does not know them, and a new
 * control frame has a capability of its own: none of these needs a new version. */
#define TOW_PROTOCOL_MIN 4u
#define TOW_PROTOCOL_MAX 4u

/* Header of every frame. */
#define TOW_FRAME_HEADER 16u

/* All frame lengths are multiples of this, so every frame starts aligned for a u64. */
#define TOW_FRAME_ALIGN 8u

/* Largest payload of one DATA frame: large enough that its 32 bytes of head cost nothing, small
 * enough that a command waits less than 100 us behind one on a 100 Gbit/s line. */
#define TOW_DATA_MAX (1u << 20)

/* Largest frame: a full DATA frame, or a command whose arguments take as much. What is larger
 * travels as bulk data. 4 KiB is the head room for the fixed part of such a command. */
#define TOW_FRAME_MAX (TOW_DATA_MAX + 4096u)

/* Client thread numbers are u16; 0 means "no thread". */
#define TOW_THREADS_MAX 65535u

/* The hello: programs have one name, a handful of variables that matter to the driver. */
#define TOW_HELLO_NAME_MAX 256u
#define TOW_HELLO_ENV_MAX 64u
#define TOW_HELLO_ENV_SIZE_MAX 4096u
#define TOW_HELLO_TOKEN_MAX 1024u
#define TOW_HELLO_RELEASE_MAX 64u

/* Functions that a client tells of: several times as many as the driver has. */
#define TOW_HELLO_FUNCTIONS_MAX 4096u

/* The welcome: a driver uses a few ranges per GPU; 64 allows for every GPU of a large server. */
#define TOW_WELCOME_RANGES_MAX 64u

/* Device properties of a whole server, in one frame. */
#define TOW_WELCOME_SNAPSHOT_MAX (512u << 10)

/* What a client keeps of a context: a few words, and one for each limit of the driver. */
#define TOW_WELCOME_CONTEXT_MAX 1024u

/* A sentence for a person. */
#define TOW_SENTENCE_MAX 1024u

/* Managed memory that is asked for at once: what a program that walks through it reads ahead. */
#define TOW_FETCH_MAX (4u << 20)

/* Events and streams of a session whose completion the server tells of; all of them fit one DONE
 * frame. A server looks at each in turn, so there are not many. */
#define TOW_WATCH_MAX 1024u

/* Text of one PRINT frame. */
#define TOW_PRINT_MAX (64u << 10)

/* What one answer to TIMELINE has: names of 512 characters at most, and spans that fill most of a
 * frame. A question waits behind what the program has sent, so there are not many of them. */
#define TOW_TIMELINE_SPANS_MAX 16384u
#define TOW_TIMELINE_NAMES_MAX 64u
#define TOW_TIMELINE_NAME_MAX 512u

#endif
