/* SPDX-License-Identifier: Apache-2.0 */
/* Calls kept by object: names, uses, ends. */
#include "server/remake/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gen/cuda_types.h"
#include "wire/id.h"

/* Names that only the record has. */
enum {
    NAME_CONTEXT = TOW_NAME_KINDS, /* a context's number */
    NAME_LAST,                     /* what calls agree in of which one is kept */
};

struct name {
    struct name *next_here; /* in its bucket */
    struct name *next;      /* of its object */
    uint64_t value;
    struct object *object;
    struct entry *entry; /* of NAME_LAST */
    uint8_t kind;
};

struct entry {
    struct entry *next, *before;             /* of all, in their order */
    struct entry *next_of_it, *before_of_it; /* of its object */
    struct object *object;
    struct name *last; /* borrowed: its name, of a call of which only the last is kept */
    uint64_t bytes;    /* of memory */
    uint32_t use_count;
    struct tows_record_call call; /* what it points at follows */
    struct object *uses[];
};

struct object {
    struct object *next, *before;
    struct object *next_dead;
    struct entry *first, *last;
    struct name *names;
    uint64_t own;     /* its own name; the others are its parts' */
    uint64_t users;   /* calls of others that use it */
    uint64_t stamp;   /* of the call that was looked through last */
    uint32_t context; /* in which it was made, if it ends with that; 0: it does not */
    uint32_t made;    /* how often it was made and not ended */
    uint8_t kind;
    bool ended;
};

struct tows_record {
    struct tows_record_room room;
    struct object session; /* is always there */
    struct object *objects;
    struct entry *first, *last;
    struct name **buckets; /* owned */
    size_t bucket_count;
    uint64_t stamp;
    struct tows_record_size size;
};

/* ---- memory ---- */

static void *record_alloc(struct tows_record *record, size_t size)
{
    bool claimed = record->size.bytes + size <= TOW_RECORD_MAX &&
                   (record->room.claim == NULL || record->room.claim(record->room.user, size));
    void *made = claimed ? calloc(1, size) : NULL;
    if (made != NULL) {
        record->size.bytes += size;
    } else if (claimed && record->room.unclaim != NULL) {
        record->room.unclaim(record->room.user, size);
    }
    return made;
}

static void record_free(struct tows_record *record, void *what, size_t size)
{
    free(what);
    record->size.bytes -= size;
    if (record->room.unclaim != NULL) {
        record->room.unclaim(record->room.user, size);
    }
}

/* ---- names ---- */

static size_t bucket_of(const struct tows_record *record, uint64_t value)
{
    return (size_t)((value * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (record->bucket_count - 1);
}

static struct name *name_find(const struct tows_record *record, unsigned kind, uint64_t value)
{
    struct name *name = record->buckets[bucket_of(record, value)];
    while (name != NULL && (name->value != value || name->kind != kind)) {
        name = name->next_here;
    }
    return name;
}

static struct object *object_find(const struct tows_record *record, unsigned kind, uint64_t value)
{
    const struct name *name = name_find(record, kind, value);
    return name != NULL ? name->object : NULL;
}

/* Twice as many buckets; without memory there are more names in each. */
static void buckets_grow(struct tows_record *record)
{
    size_t count = record->bucket_count;
    struct name **old = record->buckets;
    struct name **made = record_alloc(record, 2 * count * sizeof *made);
    if (made == NULL) {
        return;
    }
    record->buckets = made;
    record->bucket_count = 2 * count;
    for (size_t i = 0; i < count; i++) {
        for (struct name *name = old[i], *next; name != NULL; name = next) {
            struct name **bucket = &made[bucket_of(record, name->value)];
            next = name->next_here;
            name->next_here = *bucket;
            *bucket = name;
        }
    }
    record_free(record, old, count * sizeof *old);
}

static struct name *name_add(struct tows_record *record, struct object *object, unsigned kind,
                             uint64_t value)
{
    struct name *name = record_alloc(record, sizeof *name);
    if (name == NULL) {
        return NULL;
    }
    if (record->size.names >= record->bucket_count) {
        buckets_grow(record);
    }
    struct name **bucket = &record->buckets[bucket_of(record, value)];
    *name = (struct name){.next_here = *bucket,
                          .next = object->names,
                          .value = value,
                          .object = object,
                          .kind = (uint8_t)kind};
    *bucket = name;
    object->names = name;
    record->size.names++;
    record->size.handles += kind == TOW_NAME_HANDLE;
    return name;
}

static void name_remove(struct tows_record *record, struct name *name)
{
    struct name **at = &record->buckets[bucket_of(record, name->value)];
    while (*at != name) {
        at = &(*at)->next_here;
    }
    *at = name->next_here;
    at = &name->object->names;
    while (*at != name) {
        at = &(*at)->next;
    }
    *at = name->next;
    if (name->entry != NULL) {
        name->entry->last = NULL;
    }
    record->size.names--;
    record->size.handles -= name->kind == TOW_NAME_HANDLE;
    record_free(record, name, sizeof *name);
}

/* A handle's name; of a context its number, too. */
static int name_handle(struct tows_record *record, struct object *object, uint64_t id)
{
    if (name_add(record, object, TOW_NAME_HANDLE, id) == NULL) {
        return -EDQUOT;
    }
    bool known = TOW_ID_KIND(id) != TOW_H_CONTEXT ||
                 name_add(record, object, NAME_CONTEXT, TOW_ID_INDEX(id)) != NULL;
    return known ? 0 : -EDQUOT;
}

/* ---- objects ---- */

static struct object *object_make(struct tows_record *record, unsigned kind, uint64_t own)
{
    struct object *object = record_alloc(record, sizeof *object);
    if (object == NULL) {
        return NULL;
    }
    object->kind = (uint8_t)kind;
    object->own = own;
    object->made = 1;
    object->next = record->objects;
    if (object->next != NULL) {
        object->next->before = object;
    }
    record->objects = object;
    record->size.objects++;
    return object;
}

static void entry_remove(struct tows_record *record, struct entry *entry, struct object **dead)
{
    struct object *object = entry->object;
    *(entry->before != NULL ? &entry->before->next : &record->first) = entry->next;
    *(entry->next != NULL ? &entry->next->before : &record->last) = entry->before;
    *(entry->before_of_it != NULL ? &entry->before_of_it->next_of_it : &object->first) =
        entry->next_of_it;
    *(entry->next_of_it != NULL ? &entry->next_of_it->before_of_it : &object->last) =
        entry->before_of_it;
    if (entry->last != NULL) {
        name_remove(record, entry->last);
    }
    for (uint32_t i = 0; i < entry->use_count; i++) {
        struct object *used = entry->uses[i];
        used->users--;
        if (used->users == 0 && used->ended) {
            used->next_dead = *dead;
            *dead = used;
        }
    }
    record->size.calls--;
    record_free(record, entry, entry->bytes);
}

/* Objects that have ended and that nobody uses, and what only they used. */
static void objects_bury(struct tows_record *record, struct object *dead)
{
    while (dead != NULL) {
        struct object *object = dead;
        dead = object->next_dead;
        while (object->first != NULL) {
            entry_remove(record, object->first, &dead);
        }
        *(object->before != NULL ? &object->before->next : &record->objects) = object->next;
        if (object->next != NULL) {
            object->next->before = object->before;
        }
        record->size.objects--;
        record_free(record, object, sizeof *object);
    }
}

static void object_close(struct tows_record *record, struct object *object);

/* A handle that is no more; of a context its number, and the memory that was made there. */
static void handle_forget(struct tows_record *record, struct name *name)
{
    uint64_t id = name->value;
    name_remove(record, name);
    if (TOW_ID_KIND(id) != TOW_H_CONTEXT) {
        return;
    }
    for (struct object *object = record->objects; object != NULL; object = object->next) {
        if (!object->ended && object->context == TOW_ID_INDEX(id)) {
            object_close(record, object);
        }
    }
    name = name_find(record, NAME_CONTEXT, TOW_ID_INDEX(id));
    if (name != NULL) {
        name_remove(record, name);
    }
}

/* Its names mean nothing more. It stays as long as somebody uses it. */
static void object_close(struct tows_record *record, struct object *object)
{
    object->ended = true;
    while (object->names != NULL) {
        if (object->names->kind == TOW_NAME_HANDLE) {
            handle_forget(record, object->names);
        } else {
            name_remove(record, object->names);
        }
    }
}

/* Those that were closed and that nobody uses. */
static void objects_bury_closed(struct tows_record *record)
{
    struct object *dead = NULL;
    for (struct object *object = record->objects; object != NULL; object = object->next) {
        if (object->ended && object->users == 0) {
            object->next_dead = dead;
            dead = object;
        }
    }
    objects_bury(record, dead);
}

static void object_end(struct tows_record *record, struct object *object)
{
    bool had_others =
        object->kind == TOW_NAME_HANDLE &&
        (TOW_ID_KIND(object->own) == TOW_H_CONTEXT || TOW_ID_KIND(object->own) == TOW_H_GREENCTX);
    object_close(record, object);
    if (had_others) {
        objects_bury_closed(record);
    } else if (object->users == 0) {
        object->next_dead = NULL;
        objects_bury(record, object);
    }
}

/* ---- a call ---- */

static uint64_t call_word(const uint8_t *bytes, uint32_t size, uint32_t at)
{
    uint64_t word = 0;
    if ((uint64_t)at * 8 + 8 <= size) {
        memcpy(&word, bytes + (size_t)at * 8, sizeof word);
    }
    return word;
}

/* The first word of the command that is a known handle of that kind. */
static uint64_t call_search(const struct tows_record *record, const struct tows_record_call *call,
                            unsigned kind)
{
    for (uint32_t i = 0; i < call->body_size / 8; i++) {
        uint64_t word = call_word(call->body, call->body_size, i);
        if (TOW_ID_KIND(word) == kind && name_find(record, TOW_NAME_HANDLE, word) != NULL) {
            return word;
        }
    }
    return 0;
}

static uint64_t call_name(const struct tows_record *record, const struct tows_record_call *call,
                          const struct tows_record_rule *rule)
{
    switch (rule->from) {
    case TOW_RECORD_BODY:
        return call_word(call->body, call->body_size, rule->at);
    case TOW_RECORD_REPLY:
        return call_word(call->reply, call->reply_size, rule->at);
    case TOW_RECORD_SEARCH:
        return call_search(record, call, rule->at);
    default:
        return 0;
    }
}

/* The object in which an address lies begins at the highest name that is not above it. */
static struct object *object_around(const struct tows_record *record, unsigned kind,
                                    uint64_t address)
{
    struct object *found = object_find(record, kind, address);
    for (struct object *object = found == NULL ? record->objects : NULL; object != NULL;
         object = object->next) {
        if (!object->ended && object->kind == kind && object->own <= address &&
            (found == NULL || object->own > found->own)) {
            found = object;
        }
    }
    return found;
}

/* What the call is about; streams that CUDA has always are the context's. */
static struct object *call_object(struct tows_record *record, const struct tows_record_call *call,
                                  const struct tows_record_rule *rule, uint64_t value)
{
    bool of_context =
        rule->from == TOW_RECORD_CONTEXT ||
        (rule->from == TOW_RECORD_BODY && rule->kind == TOW_NAME_HANDLE && TOW_ID_KIND(value) == 0);
    if (of_context && call->context != 0) {
        return object_find(record, NAME_CONTEXT, call->context);
    }
    if (of_context || rule->from == TOW_RECORD_SESSION) {
        return &record->session;
    }
    return rule->kind == TOW_NAME_HANDLE ? object_find(record, TOW_NAME_HANDLE, value)
                                         : object_around(record, rule->kind, value);
}

/* Counts the objects whose names are in the command, and the context; with `uses` it lists them. */
static uint32_t call_uses(struct tows_record *record, const struct tows_record_call *call,
                          const struct object *own, struct object **uses)
{
    uint32_t count = 0;
    record->stamp++;
    for (uint32_t i = 0; i <= call->body_size / 8; i++) {
        bool last = i == call->body_size / 8;
        uint64_t word = last ? call->context : call_word(call->body, call->body_size, i);
        if (word == 0) {
            continue;
        }
        for (struct name *name = record->buckets[bucket_of(record, word)]; name != NULL;
             name = name->next_here) {
            struct object *object = name->object;
            if (name->value != word || last != (name->kind == NAME_CONTEXT) ||
                name->kind == NAME_LAST || object == own || object == &record->session ||
                object->stamp == record->stamp) {
                continue;
            }
            object->stamp = record->stamp;
            if (uses != NULL) {
                uses[count] = object;
                object->users++;
            }
            count++;
        }
    }
    return count;
}

static uint8_t *entry_copy(uint8_t *at, const void *bytes, size_t size)
{
    if (size > 0) {
        memcpy(at, bytes, size);
    }
    return at + (size + 7) / 8 * 8;
}

static struct entry *entry_add(struct tows_record *record, struct object *object,
                               const struct tows_record_call *call)
{
    uint32_t uses = call_uses(record, call, object, NULL);
    size_t head = sizeof(struct entry) + uses * sizeof(struct object *);
    size_t size = head + call->id_count * sizeof(uint64_t) + ((size_t)call->body_size + 7) / 8 * 8 +
                  ((size_t)call->reply_size + 7) / 8 * 8;
    struct entry *entry = record_alloc(record, size);
    if (entry == NULL) {
        return NULL;
    }
    uint8_t *at = (uint8_t *)entry + head;
    entry->call = *call;
    entry->call.ids = (uint64_t *)(void *)at;
    entry->call.body = at = entry_copy(at, call->ids, call->id_count * sizeof(uint64_t));
    entry->call.reply = at = entry_copy(at, call->body, call->body_size);
    entry_copy(at, call->reply, call->reply_size);
    entry->bytes = size;
    entry->use_count = call_uses(record, call, object, entry->uses);
    entry->object = object;
    entry->before = record->last;
    *(record->last != NULL ? &record->last->next : &record->first) = entry;
    record->last = entry;
    entry->before_of_it = object->last;
    *(object->last != NULL ? &object->last->next_of_it : &object->first) = entry;
    object->last = entry;
    record->size.calls++;
    return entry;
}

/* Handles of which nobody knew become the object's. */
static int ids_name(struct tows_record *record, struct object *object,
                    const struct tows_record_call *call)
{
    for (uint32_t i = 0; i < call->id_count; i++) {
        int error = name_find(record, TOW_NAME_HANDLE, call->ids[i]) == NULL
                        ? name_handle(record, object, call->ids[i])
                        : 0;
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

static bool ids_are_known(const struct tows_record *record, const struct tows_record_call *call)
{
    bool known = true;
    for (uint32_t i = 0; i < call->id_count; i++) {
        known = known && name_find(record, TOW_NAME_HANDLE, call->ids[i]) != NULL;
    }
    return known;
}

/* A command that was answered "send the image first" has bound nothing. */
static bool call_binds(const struct tows_record_call *call, uint64_t id)
{
    bool binds = false;
    for (uint32_t i = 0; i < call->id_count; i++) {
        binds = binds || call->ids[i] == id;
    }
    return binds;
}

/* ---- what a call says ---- */

static int take_made(struct tows_record *record, const struct tows_record_call *call,
                     const struct tows_record_rule *rule, uint64_t value)
{
    if (value == 0) {
        return -EPROTO;
    }
    if (rule->kind == TOW_NAME_HANDLE && !call_binds(call, value)) {
        return 0;
    }
    struct object *object = object_find(record, rule->kind, value);
    if (object != NULL && rule->kind == TOW_NAME_ALLOCATION) {
        object->made++;
        return entry_add(record, object, call) != NULL ? 0 : -EDQUOT;
    }
    if (object != NULL) {
        object_end(record, object); /* it has gone with something else */
    }
    object = object_make(record, rule->kind, value);
    if (object == NULL) {
        return -EDQUOT;
    }
    const struct tow_fn_info *info = tow_fn_info(call->fn);
    bool free_standing = rule->kind == TOW_NAME_HANDLE || info->flags & TOW_FN_NOCTX;
    object->context = free_standing ? 0 : call->context;
    int error = rule->kind == TOW_NAME_HANDLE ? name_handle(record, object, value)
                : name_add(record, object, rule->kind, value) == NULL ? -EDQUOT
                                                                      : 0;
    if (error == 0) {
        error = ids_name(record, object, call);
    }
    return error < 0 ? error : entry_add(record, object, call) != NULL ? 0 : -EDQUOT;
}

static int take_end(struct tows_record *record, const struct tows_record_call *call,
                    const struct tows_record_rule *rule, uint64_t value)
{
    struct name *name = name_find(record, rule->kind, value);
    if (name == NULL) {
        return 0; /* NULL, or gone with something else */
    }
    struct object *object = name->object;
    bool is_part = object->own != value || object->kind != rule->kind;
    bool ends = !is_part && --object->made == 0;
    if (entry_add(record, object, call) == NULL) {
        return -EDQUOT;
    }
    if (is_part) {
        name_remove(record, name);
    } else if (ends) {
        object_end(record, object);
    }
    return 0;
}

/* A number for what calls agree in. */
static uint64_t key_of(const struct tows_record *record, const struct tows_record_call *call,
                       const struct tows_record_rule *rule, const struct object *object)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ call->fn ^ (uint64_t)(uintptr_t)object;
    for (unsigned i = 0; i < rule->key_count; i++) {
        const struct tows_record_key *key = &tows_record_keys[rule->first_key + i];
        uint64_t found = key->size == 0 ? call_search(record, call, key->at) : 0;
        const uint8_t *bytes = key->size == 0 ? (const uint8_t *)&found : call->body + key->at;
        size_t size = key->size == 0                                    ? sizeof found
                      : (uint32_t)key->at + key->size > call->body_size ? 0
                                                                        : key->size;
        for (size_t at = 0; at < size; at++) {
            hash = (hash ^ bytes[at]) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

static int take_last(struct tows_record *record, const struct tows_record_call *call,
                     const struct tows_record_rule *rule, struct object *object)
{
    struct object *dead = NULL;
    uint64_t key = key_of(record, call, rule, object);
    struct name *name = name_find(record, NAME_LAST, key);
    if (name != NULL && name->object == object && name->entry->call.fn == call->fn) {
        entry_remove(record, name->entry, &dead);
        objects_bury(record, dead);
    }
    struct entry *entry = entry_add(record, object, call);
    name = entry != NULL ? name_add(record, object, NAME_LAST, key) : NULL;
    if (name == NULL) {
        return -EDQUOT;
    }
    name->entry = entry;
    entry->last = name;
    return 0;
}

int tows_record_take(struct tows_record *record, const struct tows_record_call *call)
{
    const struct tows_record_rule *rule = &tows_record_rules[call->fn];
    uint64_t value = call_name(record, call, rule);
    if (rule->what == TOW_RECORD_MAKES) {
        return take_made(record, call, rule, value);
    }
    if (rule->what == TOW_RECORD_ENDS) {
        return take_end(record, call, rule, value);
    }
    struct object *object = call_object(record, call, rule, value);
    if (object == NULL) {
        return -ENOENT;
    }
    if (rule->what == TOW_RECORD_LAST) {
        return take_last(record, call, rule, object);
    }
    if (rule->what == TOW_RECORD_FINDS && ids_are_known(record, call)) {
        return 0;
    }
    int error = ids_name(record, object, call);
    return error < 0 ? error : entry_add(record, object, call) != NULL ? 0 : -EDQUOT;
}

void tows_record_sweep(struct tows_record *record, bool (*is_live)(void *user, uint64_t id),
                       void *user)
{
    for (struct object *object = record->objects; object != NULL; object = object->next) {
        struct name *name = object->names;
        while (name != NULL) {
            struct name *next = name->next;
            if (name->kind == TOW_NAME_HANDLE && !is_live(user, name->value)) {
                handle_forget(record, name);
                next = object->names; /* a context's number may have been the next */
            }
            name = next;
        }
        if (!object->ended && object->kind == TOW_NAME_HANDLE && !is_live(user, object->own)) {
            object_close(record, object);
        }
    }
    objects_bury_closed(record);
}

/* ---- the whole ---- */

struct tows_record *tows_record_create(const struct tows_record_room *room)
{
    enum { BUCKETS = 256 };
    struct tows_record *record = calloc(1, sizeof *record);
    if (record == NULL) {
        return NULL;
    }
    record->room = room != NULL ? *room : (struct tows_record_room){NULL, NULL, NULL};
    record->session.made = 1;
    record->buckets = record_alloc(record, BUCKETS * sizeof *record->buckets);
    record->bucket_count = BUCKETS;
    if (record->buckets == NULL) {
        free(record);
        return NULL;
    }
    return record;
}

void tows_record_destroy(struct tows_record *record)
{
    if (record == NULL) {
        return;
    }
    struct object *dead = NULL;
    for (struct object *object = record->objects; object != NULL; object = object->next) {
        while (object->names != NULL) {
            name_remove(record, object->names);
        }
        object->ended = false; /* none is buried on the way */
    }
    while (record->session.names != NULL) {
        name_remove(record, record->session.names);
    }
    while (record->first != NULL) {
        entry_remove(record, record->first, &dead);
    }
    while (record->objects != NULL) {
        struct object *object = record->objects;
        record->objects = object->next;
        record_free(record, object, sizeof *object);
    }
    record_free(record, record->buckets, record->bucket_count * sizeof *record->buckets);
    free(record);
}

bool tows_record_knows(const struct tows_record *record, enum tows_name_kind kind, uint64_t value)
{
    return name_find(record, kind, value) != NULL;
}

struct tows_record_size tows_record_size(const struct tows_record *record)
{
    return record->size;
}

void tows_record_each(const struct tows_record *record,
                      void (*visit)(void *user, const struct tows_record_call *call), void *user)
{
    for (const struct entry *entry = record->first; entry != NULL; entry = entry->next) {
        visit(user, &entry->call);
    }
}
