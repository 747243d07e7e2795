/* SPDX-License-Identifier: Apache-2.0 */
/* Finds objects again in the cubin that was linked of them.
 *
 * Each function has a section .text.NAME. The linker copies it and fills in addresses, for which
 * the object has relocations: all other instructions must be equal. Names alone would not do, since
 * a program may compile another kernel of the same name. */
#include "client/code/linked_cubin.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INSTRUCTION = 16, /* bytes */
    NAME_MAX_BYTES = 4096,
};

struct elf {
    const uint8_t *bytes;
    size_t size;
    Elf64_Ehdr head;
    const char *names; /* of the sections */
    size_t names_size;
};

static bool section_read(const struct elf *elf, unsigned index, Elf64_Shdr *ret_section)
{
    if (index >= elf->head.e_shnum) {
        return false;
    }
    memcpy(ret_section, elf->bytes + elf->head.e_shoff + index * sizeof *ret_section,
           sizeof *ret_section);
    return ret_section->sh_type == SHT_NOBITS ||
           (ret_section->sh_offset <= elf->size &&
            ret_section->sh_size <= elf->size - ret_section->sh_offset);
}

static bool elf_open(const void *bytes, size_t n, struct elf *ret_elf)
{
    struct elf elf = {.bytes = bytes, .size = n};
    if (n < sizeof elf.head || memcmp(bytes, ELFMAG, SELFMAG) != 0) {
        return false;
    }
    memcpy(&elf.head, bytes, sizeof elf.head);
    Elf64_Shdr names;
    if (elf.head.e_ident[EI_CLASS] != ELFCLASS64 || elf.head.e_shentsize != sizeof names ||
        elf.head.e_shoff > n || elf.head.e_shnum > (n - elf.head.e_shoff) / sizeof names ||
        !section_read(&elf, elf.head.e_shstrndx, &names) || names.sh_type != SHT_STRTAB) {
        return false;
    }
    elf.names = (const char *)elf.bytes + names.sh_offset;
    elf.names_size = names.sh_size;
    *ret_elf = elf;
    return true;
}

/* "" where the file is damaged. */
static const char *section_name(const struct elf *elf, const Elf64_Shdr *section)
{
    if (section->sh_name >= elf->names_size ||
        memchr(elf->names + section->sh_name, 0, elf->names_size - section->sh_name) == NULL) {
        return "";
    }
    return elf->names + section->sh_name;
}

static bool section_find(const struct elf *elf, const char *prefix, const char *name,
                         Elf64_Shdr *ret_section)
{
    char whole[NAME_MAX_BYTES];
    int length = snprintf(whole, sizeof whole, "%s%s", prefix, name);
    if (length < 0 || length >= (int)sizeof whole) {
        return false;
    }
    for (unsigned i = 0; i < elf->head.e_shnum; i++) {
        if (section_read(elf, i, ret_section) &&
            strcmp(section_name(elf, ret_section), whole) == 0) {
            return true;
        }
    }
    return false;
}

/* Marks the instructions of section `name` that the linker fills in. */
static void mark_relocated(const struct elf *elf, const char *name, uint8_t *marks, size_t count)
{
    static const struct {
        const char *prefix;
        size_t entry;
    } kinds[] = {{".rel", sizeof(Elf64_Rel)}, {".rela", sizeof(Elf64_Rela)}};
    for (unsigned kind = 0; kind < 2; kind++) {
        Elf64_Shdr section;
        if (!section_find(elf, kinds[kind].prefix, name, &section) ||
            section.sh_type == SHT_NOBITS) {
            continue;
        }
        for (uint64_t at = 0; at + kinds[kind].entry <= section.sh_size; at += kinds[kind].entry) {
            uint64_t offset;
            memcpy(&offset, elf->bytes + section.sh_offset + at, sizeof offset);
            if (offset / INSTRUCTION < count) {
                marks[offset / INSTRUCTION] = 1;
            }
        }
    }
}

static bool same_code(const struct elf *cubin, const Elf64_Shdr *linked, const struct elf *object,
                      const char *name)
{
    Elf64_Shdr section;
    if (!section_find(object, "", name, &section) || section.sh_type != SHT_PROGBITS ||
        section.sh_size != linked->sh_size) {
        return false;
    }
    size_t count = section.sh_size / INSTRUCTION, different = 0;
    uint8_t *marks = calloc(count + 1, 1);
    if (marks == NULL) {
        return false;
    }
    mark_relocated(object, name, marks, count);
    for (size_t i = 0; i < count; i++) {
        different += !marks[i] &&
                     memcmp(cubin->bytes + linked->sh_offset + i * INSTRUCTION,
                            object->bytes + section.sh_offset + i * INSTRUCTION, INSTRUCTION) != 0;
    }
    free(marks);
    return different == 0;
}

bool towc_linked_is_object(const void *elf, size_t n)
{
    struct elf view;
    return elf_open(elf, n, &view) && view.head.e_type == ET_REL;
}

struct towc_linked_object *towc_linked_object_create(const void *elf, size_t n, const char *text,
                                                     size_t text_size)
{
    struct towc_linked_object *object = malloc(sizeof *object + n + text_size);
    if (object != NULL) {
        *object = (struct towc_linked_object){.elf_size = n, .text_size = text_size};
        object->text = (char *)object->elf + n;
        memcpy(object->elf, elf, n);
        memcpy(object->text, text, text_size);
    }
    return object;
}

/* Marks the newest object that has this function. */
static bool mark_owner(const struct elf *cubin, const Elf64_Shdr *section, const char *name,
                       struct towc_linked_object *objects)
{
    for (struct towc_linked_object *each = objects; each != NULL; each = each->next) {
        struct elf object;
        if (elf_open(each->elf, each->elf_size, &object) &&
            same_code(cubin, section, &object, name)) {
            each->used = true;
            return true;
        }
    }
    return false;
}

static int write_texts(const struct towc_linked_object *objects, struct tow_buf *ptx)
{
    unsigned count = 0;
    int error = 0;
    for (const struct towc_linked_object *each = objects; each != NULL; each = each->next) {
        count += each->used;
    }
    if (count > 1) {
        error = tow_buf_printf(ptx, "// towline linked");
        for (const struct towc_linked_object *each = objects; each != NULL; each = each->next) {
            if (each->used && error >= 0) {
                error = tow_buf_printf(ptx, " %zu", each->text_size);
            }
        }
        error = error < 0 ? error : tow_buf_printf(ptx, "\n");
    }
    for (const struct towc_linked_object *each = objects; each != NULL; each = each->next) {
        if (each->used && error >= 0) {
            error = tow_buf_append(ptx, each->text, each->text_size);
        }
    }
    return error < 0 ? error : count > 0 ? 0 : -ENOENT;
}

int towc_linked_ptx_of(const void *bytes, size_t n, struct towc_linked_object *objects,
                       struct tow_buf *ptx)
{
    static const char text[] = ".text.";
    struct elf cubin;
    if (!elf_open(bytes, n, &cubin)) {
        return -ENOENT;
    }
    for (struct towc_linked_object *each = objects; each != NULL; each = each->next) {
        each->used = false;
    }
    for (unsigned i = 0; i < cubin.head.e_shnum; i++) {
        Elf64_Shdr section, constants;
        const char *name = section_read(&cubin, i, &section) ? section_name(&cubin, &section) : "";
        if (strncmp(name, text, sizeof text - 1) != 0 || section.sh_type != SHT_PROGBITS) {
            continue;
        }
        /* A function may come from a library without PTX: who calls it is refused when launched. A
         * kernel, which alone has parameters in constants, must be known, if it is not of the
         * device runtime, which no program can ask for. */
        if (strstr(name, "_cuda_device_runtime_cu_") == NULL &&
            !mark_owner(&cubin, &section, name, objects) &&
            section_find(&cubin, ".nv.constant0.", name + sizeof text - 1, &constants)) {
            return -ENOENT;
        }
    }
    return write_texts(objects, ptx);
}
