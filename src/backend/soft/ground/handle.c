/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: kind, generation and index in 64 bits, looked up in one table. Nothing that a caller
 * passes is ever followed as a pointer. */
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/handle.h"

#include <errno.h>
#include <stdlib.h>

#define HANDLES_MAX (1u << 24)
#define GENERATION_MASK 0xfffffu

struct slot {
    struct tow_soft_object *object; /* borrowed; NULL while free */
    uint32_t generation;
    uint32_t next_free;
};

static struct slot *slots; /* guarded by tow_soft.lock, as everything here */
static uint32_t slot_count, slot_capacity, free_head; /* free_head: index + 1 */

/* Bits 0-3 zero, 4-27 index, 28-47 generation, 48-55 kind, 60 set: never a small number, never an
 * address of this process. */
static uint64_t handle_encode(enum tow_soft_kind kind, uint32_t generation, uint32_t index)
{
    return UINT64_C(1) << 60 | (uint64_t)kind << 48 |
           (uint64_t)(generation & GENERATION_MASK) << 28 | (uint64_t)index << 4;
}

enum tow_soft_kind tow_soft_handle_kind(uint64_t handle)
{
    if ((handle >> 56) != 0x10 || (handle & 15) != 0) {
        return TOW_SOFT_NONE;
    }
    return (enum tow_soft_kind)(handle >> 48 & 0xff);
}

int tow_soft_object_add(struct tow_soft_object *object, enum tow_soft_kind kind,
                        struct tow_soft_ctx *ctx)
{
    uint32_t index;
    if (free_head != 0) {
        index = free_head - 1;
        free_head = slots[index].next_free;
    } else {
        if (slot_count == slot_capacity) {
            uint32_t capacity = slot_capacity == 0 ? 256 : slot_capacity * 2;
            if (capacity > HANDLES_MAX) {
                return -ENOMEM;
            }
            struct slot *grown = realloc(slots, capacity * sizeof *slots);
            if (grown == NULL) {
                return -ENOMEM;
            }
            slots = grown;
            slot_capacity = capacity;
        }
        index = slot_count++;
        slots[index].generation = 0;
    }
    slots[index].generation = (slots[index].generation + 1) & GENERATION_MASK;
    slots[index].object = object;
    object->handle = handle_encode(kind, slots[index].generation, index);
    object->kind = kind;
    object->ctx = ctx;
    object->prev = NULL;
    object->next = NULL;
    if (ctx != NULL) {
        object->next = ctx->objects;
        if (ctx->objects != NULL) {
            ctx->objects->prev = object;
        }
        ctx->objects = object;
    }
    return 0;
}

static struct slot *slot_of(uint64_t handle)
{
    uint32_t index = (uint32_t)(handle >> 4 & 0xffffff);
    if (tow_soft_handle_kind(handle) == TOW_SOFT_NONE || index >= slot_count ||
        slots[index].object == NULL || slots[index].object->handle != handle) {
        return NULL;
    }
    return &slots[index];
}

uint64_t tow_soft_object_hide(struct tow_soft_object *object)
{
    uint64_t handle = object->handle;
    object->handle = 0;
    if (object->ctx != NULL) {
        if (object->prev != NULL) {
            object->prev->next = object->next;
        } else if (object->ctx->objects == object) {
            object->ctx->objects = object->next;
        }
        if (object->next != NULL) {
            object->next->prev = object->prev;
        }
        object->prev = NULL;
        object->next = NULL;
    }
    return handle;
}

void tow_soft_handle_give_back(uint64_t handle)
{
    uint32_t index = (uint32_t)(handle >> 4 & 0xffffff);
    if (handle != 0 && index < slot_count) {
        slots[index].object = NULL;
        slots[index].next_free = free_head;
        free_head = index + 1;
    }
}

void tow_soft_object_remove(struct tow_soft_object *object)
{
    tow_soft_handle_give_back(tow_soft_object_hide(object));
}

void *tow_soft_lookup(enum tow_soft_kind kind, uint64_t handle)
{
    struct slot *slot = slot_of(handle);
    return slot != NULL && slot->object->kind == kind ? slot->object : NULL;
}

void tow_soft_handles_fini(void)
{
    free(slots);
    slots = NULL;
    slot_count = 0;
    slot_capacity = 0;
    free_head = 0;
}
