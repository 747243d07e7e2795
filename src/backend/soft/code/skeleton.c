/* SPDX-License-Identifier: Apache-2.0 */
/* Skeletons, for --device dry: what code says of itself, as PTX whose kernels do nothing.
 *
 * Of PTX text the bodies of functions go. A cubin's kernels are symbols with a bit of their own;
 * their parameters are records in the section .nv.info.NAME, its variables are objects. All of that
 * is checked against the length: it came from outside.
 */
#include "backend/soft/code/image.h"
#include "backend/soft/ground/state.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/unpack.h"

enum {
    ENTRY_BIT = 0x10, /* in st_other: a kernel */
    FORMAT_SIZED = 4, /* of a record: its value is the size of what follows */
    RECORD_PARAM = 0x17,
    RECORD_PARAM_2 = 0x45, /* of kernels with much */
    PARAMS_MAX = 4096,
};

struct elf {
    const uint8_t *bytes;
    size_t size;
    const uint8_t *sections; /* borrowed: count times Elf64_Shdr, perhaps not aligned */
    uint64_t count;
    Elf64_Shdr names;
};

struct param {
    unsigned offset, size;
};

static bool section_at(const struct elf *elf, uint64_t index, Elf64_Shdr *ret_section)
{
    if (index >= elf->count) {
        return false;
    }
    memcpy(ret_section, elf->sections + index * sizeof *ret_section, sizeof *ret_section);
    return ret_section->sh_type == SHT_NOBITS ||
           (ret_section->sh_offset <= elf->size &&
            ret_section->sh_size <= elf->size - ret_section->sh_offset);
}

/* A name that ends within its table; NULL if it does not. */
static const char *name_in(const struct elf *elf, const Elf64_Shdr *table, uint32_t at)
{
    if (table->sh_type != SHT_STRTAB || at >= table->sh_size) {
        return NULL;
    }
    const char *name = (const char *)elf->bytes + table->sh_offset + at;
    return memchr(name, '\0', table->sh_size - at) != NULL ? name : NULL;
}

static bool elf_open(const uint8_t *bytes, size_t size, struct elf *ret_elf)
{
    Elf64_Ehdr head;
    if (size < sizeof head) {
        return false;
    }
    memcpy(&head, bytes, sizeof head);
    *ret_elf = (struct elf){.bytes = bytes, .size = size, .count = head.e_shnum};
    if (head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shoff > size ||
        size - head.e_shoff < sizeof(Elf64_Shdr)) {
        return false;
    }
    ret_elf->sections = bytes + head.e_shoff;
    uint64_t room = (size - head.e_shoff) / sizeof(Elf64_Shdr);
    uint64_t names = head.e_shstrndx;
    Elf64_Shdr first;
    memcpy(&first, ret_elf->sections, sizeof first);
    if (ret_elf->count == 0) {
        ret_elf->count = first.sh_size; /* more than 16 bits of them */
    }
    if (names == SHN_XINDEX) {
        names = first.sh_link;
    }
    return ret_elf->count <= room && section_at(ret_elf, names, &ret_elf->names);
}

static unsigned half_at(const uint8_t *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

/* The records of one kernel: its parameters by number. Returns how many. */
static unsigned read_params(const uint8_t *at, size_t left, struct param *params)
{
    unsigned count = 0;
    while (left >= 4) {
        unsigned format = at[0], attribute = at[1], value = half_at(at + 2);
        at += 4;
        left -= 4;
        if (format != FORMAT_SIZED) {
            continue;
        }
        if (value > left) {
            break;
        }
        if ((attribute == RECORD_PARAM || attribute == RECORD_PARAM_2) && value >= 12) {
            unsigned number = half_at(at + 4), offset = half_at(at + 6);
            unsigned word = half_at(at + 8) | half_at(at + 10) << 16;
            unsigned size = attribute == RECORD_PARAM ? word >> 18 : word & 0xffff;
            if (number < PARAMS_MAX) {
                params[number] = (struct param){offset, size};
                count = number + 1 > count ? number + 1 : count;
            }
        }
        at += value;
        left -= value;
    }
    return count;
}

static void write_params(FILE *out, const struct elf *elf, const char *kernel, struct param *params)
{
    unsigned count = 0;
    memset(params, 0, PARAMS_MAX * sizeof *params);
    for (uint64_t i = 0; i < elf->count && count == 0; i++) {
        Elf64_Shdr section;
        const char *name;
        if (section_at(elf, i, &section) && section.sh_type != SHT_NOBITS &&
            (name = name_in(elf, &elf->names, section.sh_name)) != NULL &&
            strncmp(name, ".nv.info.", 9) == 0 && strcmp(name + 9, kernel) == 0) {
            count = read_params(elf->bytes + section.sh_offset, section.sh_size, params);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        /* As much alignment as its place has puts it there again. */
        unsigned align = params[i].offset == 0 ? 16 : params[i].offset & -params[i].offset;
        fprintf(out, "%s.param .align %u .b8 p%u[%u]", i == 0 ? "" : ", ", align > 16 ? 16 : align,
                i, params[i].size == 0 ? 1 : params[i].size);
    }
}

static void write_symbol(FILE *out, const struct elf *elf, const Elf64_Sym *symbol,
                         const char *name, struct param *params)
{
    Elf64_Shdr section;
    const char *in = symbol->st_shndx != SHN_UNDEF && section_at(elf, symbol->st_shndx, &section)
                         ? name_in(elf, &elf->names, section.sh_name)
                         : NULL;
    if (in == NULL || name[0] == '\0') {
        return;
    }
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if (type == STT_FUNC && (symbol->st_other & ENTRY_BIT) != 0) {
        fprintf(out, ".visible .entry %s(", name);
        write_params(out, elf, name, params);
        fprintf(out, ")\n{\nret;\n}\n");
    } else if (type == STT_OBJECT && symbol->st_size != 0 &&
               (strncmp(in, ".nv.global", 10) == 0 || strncmp(in, ".nv.constant3", 13) == 0)) {
        fprintf(out, ".visible %s .align 16 .b8 %s[%llu];\n", in[4] == 'c' ? ".const" : ".global",
                name, (unsigned long long)symbol->st_size);
    }
}

int tow_soft_skeleton_of_cubin(const uint8_t *bytes, size_t size, char **ret_text)
{
    struct elf elf;
    if (!elf_open(bytes, size, &elf)) {
        return -EINVAL;
    }
    char *text = NULL;
    size_t length = 0;
    struct param *params = malloc(PARAMS_MAX * sizeof *params);
    FILE *out = params != NULL ? open_memstream(&text, &length) : NULL;
    if (out == NULL) {
        free(params);
        return -ENOMEM;
    }
    fprintf(out, ".version 9.0\n.target sm_%d\n.address_size 64\n", tow_soft.capability);
    bool fits = true;
    for (uint64_t i = 0; i < elf.count && fits; i++) {
        Elf64_Shdr table, strings;
        if (!section_at(&elf, i, &table) || table.sh_type != SHT_SYMTAB ||
            !section_at(&elf, table.sh_link, &strings)) {
            continue;
        }
        for (uint64_t k = 0; k < table.sh_size / sizeof(Elf64_Sym) && fits; k++) {
            Elf64_Sym symbol;
            memcpy(&symbol, bytes + table.sh_offset + k * sizeof symbol, sizeof symbol);
            const char *name = name_in(&elf, &strings, symbol.st_name);
            if (name != NULL) {
                write_symbol(out, &elf, &symbol, name, params);
                fits = ftello(out) <= (off_t)TOW_UNPACKED_MAX; /* records may stand for many */
            }
        }
    }
    free(params);
    if (fclose(out) != 0 || !fits) {
        free(text);
        return fits ? -ENOMEM : -EINVAL;
    }
    *ret_text = text;
    return 0;
}

/* What is neither code nor declaration: to its end, or `at`. */
static const char *skip_aside(const char *at)
{
    const char *end = NULL;
    if (at[0] == '/' && at[1] == '/') {
        end = strchr(at, '\n');
    } else if (at[0] == '/' && at[1] == '*') {
        end = strstr(at + 2, "*/");
        end = end != NULL ? end + 2 : NULL;
    } else if (at[0] == '"') {
        end = strchr(at + 1, '"');
        end = end != NULL ? end + 1 : NULL;
    } else {
        return at;
    }
    return end != NULL ? end : at + strlen(at);
}

static bool starts_code(const char *at)
{
    return strncmp(at, ".entry", 6) == 0 || strncmp(at, ".func", 5) == 0;
}

void tow_soft_skeleton_of_text(char *text)
{
    char *to = text;
    bool code = false; /* from .entry or .func to its end */
    int depth = 0;     /* of braces in it */
    for (const char *at = text; *at != '\0';) {
        const char *behind = skip_aside(at);
        if (behind == at) {
            behind = at + 1;
            if (depth == 0 && (starts_code(at) || *at == ';')) {
                code = *at != ';';
            }
            if (code && *at == '{' && depth++ == 0) {
                *to++ = '{';
            } else if (code && *at == '}' && --depth == 0) {
                code = false;
            }
        }
        if (depth == 0) {
            memmove(to, at, (size_t)(behind - at));
            to += behind - at;
        }
        at = behind;
    }
    *to = '\0';
}
