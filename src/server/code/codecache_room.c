/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the folder of code images, sums up whose they are, and removes the oldest. */
#include "server/code/codecache_room.h"

#include "server/code/codecache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FILES_MAX = 1 << 16, /* beyond this many the oldest go, however small they are */
    BLOCK = 4096,        /* what the smallest file takes of a disk */
    STALE_S = 3600,      /* a temporary file of a writer that died is removed after this */
    LOOK_SHARE = 64,     /* who has written this part of the limit looks what others wrote */
    SLACK_SHARE = 8,     /* so much more than needed goes, so that not every image has to look */
};

struct file {
    char name[TOW_CODECACHE_NAME_SIZE];
    uint64_t size; /* 0: it is gone */
    struct timespec used;
    uint64_t tenant;    /* 0: nobody's own */
    struct file *image; /* the one that this says was sent, or NULL */
    unsigned senders;   /* of an image */
};

struct files {
    struct file *all; /* owned; by name after the look */
    size_t count, room;
};

void tows_codecache_room_init(struct tows_codecache_room *room, const char *folder, uint64_t max,
                              uint64_t peer_max)
{
    memset(room, 0, sizeof *room);
    tow_mutex_init(&room->lock, SERVER_CODE_CACHE);
    room->folder = folder;
    room->max = max;
    room->peer_max = peer_max;
}

void tows_codecache_room_fini(struct tows_codecache_room *room)
{
    tow_mutex_fini(&room->lock);
    free(room->peers);
}

uint64_t tows_codecache_tenant(const char *tenant)
{
    uint8_t digest[TOW_SHA256_SIZE];
    uint64_t word;
    if (tenant == NULL) {
        return 0;
    }
    tow_sha256_of(tenant, strlen(tenant), digest);
    memcpy(&word, digest, sizeof word);
    return word != 0 ? word : 1;
}

static uint64_t room_cost(uint64_t size)
{
    return (size + BLOCK - 1) / BLOCK * BLOCK;
}

/* NULL: there is no memory for it, and it stays uncounted until the next look. */
static struct tows_codecache_peer *room_peer(struct tows_codecache_room *room, uint64_t tenant)
{
    for (size_t i = 0; i < room->peer_count; i++) {
        if (room->peers[i].tenant == tenant) {
            return &room->peers[i];
        }
    }
    if (room->peer_count == room->peer_room) {
        size_t more = room->peer_room == 0 ? 16 : room->peer_room * 2;
        struct tows_codecache_peer *peers = realloc(room->peers, more * sizeof *peers);
        if (peers == NULL) {
            return NULL;
        }
        room->peers = peers;
        room->peer_room = more;
    }
    room->peers[room->peer_count] = (struct tows_codecache_peer){.tenant = tenant};
    return &room->peers[room->peer_count++];
}

static void room_charge(struct tows_codecache_room *room, uint64_t tenant, uint64_t cost)
{
    struct tows_codecache_peer *peer =
        tenant != 0 && room->peer_max != 0 ? room_peer(room, tenant) : NULL;
    if (peer != NULL) {
        peer->used += cost;
    }
}

/* ---- looking ---- */

static bool parse_word(const char **at, uint64_t *ret_word)
{
    char *end;
    if (**at != '.' || strspn(*at + 1, "0123456789abcdef") != TOW_CODECACHE_WORD_DIGITS) {
        return false;
    }
    *ret_word = strtoull(*at + 1, &end, 16);
    *at = end;
    return true;
}

/* Of an image, or of what is known about one. */
static bool parse_name(const char *name, uint64_t *ret_key, uint64_t *ret_tenant)
{
    const char *at = name + TOW_CODECACHE_HASH_DIGITS;
    *ret_key = *ret_tenant = 0;
    if (strspn(name, "0123456789abcdef") != TOW_CODECACHE_HASH_DIGITS) {
        return false;
    }
    return *at == '\0' || (parse_word(&at, ret_key) &&
                           (*at == '\0' || (parse_word(&at, ret_tenant) && *at == '\0')));
}

static struct file *files_add(struct files *files)
{
    if (files->count == files->room) {
        size_t room = files->room == 0 ? 256 : files->room * 2;
        struct file *more = realloc(files->all, room * sizeof *more);
        if (more == NULL) {
            return NULL;
        }
        files->all = more;
        files->room = room;
    }
    return &files->all[files->count++];
}

/* Lists the images; what dead writers left behind is removed on the way. */
static int room_list(struct tows_codecache_room *room, struct files *files)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    DIR *dir = opendir(room->folder);
    if (dir == NULL) {
        return -errno;
    }
    int error = 0;
    room->used = 0;
    for (struct dirent *entry = readdir(dir);
         entry != NULL && files->count < FILES_MAX && error == 0; entry = readdir(dir)) {
        struct stat st;
        uint64_t key, tenant;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode)) {
            continue;
        }
        uint64_t cost = room_cost((uint64_t)st.st_size);
        if (!parse_name(entry->d_name, &key, &tenant)) {
            if (now.tv_sec - st.st_mtim.tv_sec <= STALE_S ||
                unlinkat(dirfd(dir), entry->d_name, 0) < 0) {
                room->used += cost;
            }
            continue;
        }
        struct file *file = files_add(files);
        if (file == NULL) {
            error = -ENOMEM;
            break;
        }
        *file = (struct file){.size = cost, .used = st.st_mtim, .tenant = tenant};
        snprintf(file->name, sizeof file->name, "%s", entry->d_name);
        room->used += cost;
    }
    closedir(dir);
    return error;
}

static int by_name(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_age(const void *a, const void *b)
{
    const struct file *x = *(struct file *const *)a, *y = *(struct file *const *)b;
    if (x->used.tv_sec != y->used.tv_sec) {
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    }
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static bool says_sent(const struct file *file)
{
    const char *at = file->name + TOW_CODECACHE_HASH_DIGITS;
    uint64_t key = 0;
    return file->tenant != 0 && parse_word(&at, &key) && key == TOW_CODECACHE_SENT;
}

/* An image stands in front of what is known about it. */
static void room_sum_up(struct tows_codecache_room *room, struct files *files)
{
    struct file *image = NULL;
    if (files->count > 0) { /* else there is no array */
        qsort(files->all, files->count, sizeof *files->all, by_name);
    }
    room->peer_count = 0;
    for (size_t i = 0; i < files->count; i++) {
        struct file *file = &files->all[i];
        if (file->name[TOW_CODECACHE_HASH_DIGITS] == '\0') {
            image = file;
        } else if (says_sent(file) && image != NULL &&
                   memcmp(file->name, image->name, TOW_CODECACHE_HASH_DIGITS) == 0) {
            file->image = image;
            image->senders++;
        }
        room_charge(room, file->tenant, file->size + (file->image != NULL ? image->size : 0));
    }
}

/* ---- removing ---- */

/* Whether it is gone. */
static bool room_remove(struct tows_codecache_room *room, struct file *file)
{
    char *path = NULL;
    if (file->size == 0) {
        return true;
    }
    if (asprintf(&path, "%s/%s", room->folder, file->name) < 0) {
        return false;
    }
    bool gone = unlink(path) == 0 || errno == ENOENT;
    free(path);
    if (gone) {
        room->used -= file->size;
        file->size = 0;
    }
    return gone;
}

static uint64_t goal_of(uint64_t max, uint64_t extra)
{
    uint64_t goal = max - max / SLACK_SHARE;
    return goal > extra ? goal - extra : 0;
}

/* The oldest of a tenant's go, and with the last who has sent it an image. */
static void room_trim_peer(struct tows_codecache_room *room, struct file **oldest, size_t count,
                           struct tows_codecache_peer *peer, uint64_t extra)
{
    uint64_t goal = goal_of(room->peer_max, extra);
    for (size_t i = 0; i < count && peer->used > goal; i++) {
        struct file *file = oldest[i];
        uint64_t charged = file->size + (file->image != NULL ? file->image->size : 0);
        if (file->tenant != peer->tenant || !room_remove(room, file)) {
            continue;
        }
        peer->used -= charged < peer->used ? charged : peer->used;
        if (file->image != NULL && --file->image->senders == 0) {
            room_remove(room, file->image);
        }
    }
}

static void room_trim(struct tows_codecache_room *room, struct file **oldest, size_t count,
                      uint64_t extra)
{
    uint64_t goal = goal_of(room->max, extra);
    size_t surplus = count == FILES_MAX ? FILES_MAX / SLACK_SHARE : 0;
    for (size_t i = 0; i < count && (room->used > goal || i < surplus); i++) {
        room_remove(room, oldest[i]);
    }
}

/* With the lock held: looks, and makes room for `extra` bytes of a tenant's. */
static int room_look(struct tows_codecache_room *room, uint64_t tenant, uint64_t extra)
{
    struct files files = {0};
    int error = room_list(room, &files);
    struct file **oldest = NULL;
    if (error == 0 && files.count > 0) {
        oldest = malloc(files.count * sizeof *oldest);
        error = oldest == NULL ? -ENOMEM : 0;
    }
    if (error == 0) {
        room_sum_up(room, &files);
        for (size_t i = 0; i < files.count; i++) {
            oldest[i] = &files.all[i];
        }
        if (files.count > 0) {
            qsort(oldest, files.count, sizeof *oldest, by_age);
        }
        struct tows_codecache_peer *peer =
            tenant != 0 && room->peer_max != 0 ? room_peer(room, tenant) : NULL;
        if (peer != NULL && peer->used + extra > room->peer_max) {
            room_trim_peer(room, oldest, files.count, peer, extra);
        }
        if (room->used + extra > room->max || files.count == FILES_MAX) {
            room_trim(room, oldest, files.count, extra);
        }
        room->looked = true;
        room->written = 0;
    }
    free(oldest);
    free(files.all);
    return error;
}

static void room_add(struct tows_codecache_room *room, uint64_t tenant, uint64_t cost)
{
    room->used += cost;
    room_charge(room, tenant, cost);
}

bool tows_codecache_room_fits(const struct tows_codecache_room *room, uint64_t tenant,
                              uint64_t size)
{
    uint64_t cost = room_cost(size);
    return cost <= room->max && (tenant == 0 || room->peer_max == 0 || cost <= room->peer_max);
}

int tows_codecache_room_make(struct tows_codecache_room *room, uint64_t tenant, uint64_t size)
{
    uint64_t cost = room_cost(size);
    int error = 0;
    tow_mutex_lock(&room->lock);
    struct tows_codecache_peer *peer =
        tenant != 0 && room->peer_max != 0 ? room_peer(room, tenant) : NULL;
    if (!room->looked || room->used + cost > room->max ||
        room->written + cost > room->max / LOOK_SHARE ||
        (peer != NULL && peer->used + cost > room->peer_max)) {
        error = room_look(room, tenant, cost);
    }
    if (error == 0) {
        room_add(room, tenant, cost);
        room->written += cost;
    }
    tow_mutex_unlock(&room->lock);
    return error;
}

void tows_codecache_room_count(struct tows_codecache_room *room, uint64_t tenant, uint64_t size)
{
    tow_mutex_lock(&room->lock);
    if (room->looked || room_look(room, 0, 0) == 0) {
        room_add(room, tenant, room_cost(size));
    }
    tow_mutex_unlock(&room->lock);
}

uint64_t tows_codecache_room_used(struct tows_codecache_room *room)
{
    tow_mutex_lock(&room->lock);
    uint64_t used = room->used;
    tow_mutex_unlock(&room->lock);
    return used;
}

uint64_t tows_codecache_room_used_by(struct tows_codecache_room *room, uint64_t tenant)
{
    uint64_t used = 0;
    tow_mutex_lock(&room->lock);
    for (size_t i = 0; i < room->peer_count; i++) {
        used = room->peers[i].tenant == tenant ? room->peers[i].used : used;
    }
    tow_mutex_unlock(&room->lock);
    return used;
}
