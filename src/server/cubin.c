#include "server/cubin.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/cursor.h"

enum {
    MACHINE_CUDA = 190,
    TYPE_INFO = 0x70000000, /* of sections .nv.info and .nv.info.NAME */
    ENTRY_BIT = 0x10,       /* in st_other: a kernel */
    SYMBOL_MASK = 0xffffff, /* sh_info of a section of code: its symbol; above: older assemblers
                               have registers there */
    REGISTERS_MAX = 255,
    /* What names may cost, in bytes per byte of the image: sections may share one long name. */
    NAME_COST = 16,
};

/* A record: u8 format, u8 what, u16 value, or size of what follows. */
enum {
    FORMAT_SIZED = 4,
    RECORD_BANK = 0x0a,        /* u32 symbol, u16 offset, u16 size of all parameters */
    RECORD_MAX_THREADS = 0x05, /* u32 x 3 */
    RECORD_THREADS = 0x10,     /* u32 x 3: these and no others */
    RECORD_PARAM = 0x17,       /* u32, u16 ordinal, u16 offset, u32: size from bit 18 on */
    RECORD_PARAM_2 = 0x45,     /* u32, u16 ordinal, u16 offset, u16 size, u16 */
    RECORD_BANK_SIZE = 0x19,   /* the value is the size of all parameters */
    RECORD_REGISTERS = 0x2f,   /* u32 symbol, u32 count */
};

/* What belongs to a section of code, by its index. */
struct slot {
    uint32_t info;   /* index of its records; 0: none */
    uint32_t shared; /* index of its shared memory; 0: none */
    bool odd;        /* there are two of one kind */
};

struct reader {
    const uint8_t *bytes;
    size_t size;
    struct tow_dec sections; /* count times Elf64_Shdr */
    uint64_t count;
    Elf64_Shdr section_names, symbols, strings;
    uint64_t symbol_count;
    uint64_t name_budget;
    struct slot *slots;    /* owned: `count` of them */
    uint8_t *registers;    /* owned: by symbol; 0: nothing is said */
    unsigned of_functions; /* registers that what kernels call may need */
    struct tow_layout_param params[TOW_LAYOUT_PARAMS_MAX];
};

static void at(const struct reader *r, uint64_t offset, uint64_t size, struct tow_dec *ret_dec)
{
    *ret_dec = tow_dec_init(r->bytes, r->size);
    if (offset > r->size || size > r->size - offset) {
        tow_dec_fail(ret_dec);
    } else {
        *ret_dec = tow_dec_init(r->bytes + offset, (size_t)size);
    }
}

static bool section_at(const struct reader *r, uint64_t index, Elf64_Shdr *ret_section)
{
    struct tow_dec dec = r->sections;
    if (index >= r->count) {
        return false;
    }
    tow_dec_bytes(&dec, (size_t)index * sizeof *ret_section);
    tow_dec_copy(&dec, ret_section, sizeof *ret_section);
    return !dec.bad && (ret_section->sh_type == SHT_NOBITS ||
                        (ret_section->sh_offset <= r->size &&
                         ret_section->sh_size <= r->size - ret_section->sh_offset));
}

/* A name that ends within its table; NULL if it does not, or names have cost too much. */
static const char *name_in(struct reader *r, const Elf64_Shdr *table, uint32_t offset)
{
    struct tow_dec dec;
    at(r, table->sh_offset, table->sh_size, &dec);
    tow_dec_bytes(&dec, offset);
    size_t most = tow_dec_left(&dec) < r->name_budget ? tow_dec_left(&dec) : r->name_budget;
    size_t length = dec.bad ? most : strnlen((const char *)dec.at, most);
    r->name_budget -= length;
    return length < most ? (const char *)dec.at : NULL;
}

static bool symbol_at(const struct reader *r, uint64_t index, Elf64_Sym *ret_symbol)
{
    struct tow_dec dec;
    if (index >= r->symbol_count) {
        return false;
    }
    at(r, r->symbols.sh_offset, r->symbols.sh_size, &dec);
    tow_dec_bytes(&dec, (size_t)index * sizeof *ret_symbol);
    tow_dec_copy(&dec, ret_symbol, sizeof *ret_symbol);
    return !dec.bad;
}

static bool is_kernel(const Elf64_Sym *symbol)
{
    return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && (symbol->st_other & ENTRY_BIT) != 0;
}

/* ---- records ---- */

struct record {
    uint8_t format, what;
    uint16_t value;
    struct tow_dec content;
};

/* False at the end, and where something is wrong: then `dec` is bad. */
static bool next_record(struct tow_dec *dec, struct record *ret_record)
{
    if (tow_dec_left(dec) == 0) {
        return false;
    }
    ret_record->format = tow_dec_u8(dec);
    ret_record->what = tow_dec_u8(dec);
    ret_record->value = tow_dec_u16(dec);
    if (ret_record->format == 0 || ret_record->format > FORMAT_SIZED) {
        tow_dec_fail(dec);
    }
    size_t size = ret_record->format == FORMAT_SIZED ? ret_record->value : 0;
    const uint8_t *content = tow_dec_bytes(dec, size);
    ret_record->content = tow_dec_init(content, content != NULL ? size : 0);
    return !dec->bad;
}

static void read_registers(struct reader *r, const Elf64_Shdr *section)
{
    struct tow_dec dec;
    struct record record;
    at(r, section->sh_offset, section->sh_size, &dec);
    while (next_record(&dec, &record)) {
        if (record.format != FORMAT_SIZED || record.what != RECORD_REGISTERS) {
            continue;
        }
        uint32_t index = tow_dec_u32(&record.content), count = tow_dec_u32(&record.content);
        Elf64_Sym symbol;
        if (record.content.bad || !symbol_at(r, index, &symbol)) {
            continue;
        }
        uint8_t most = count > REGISTERS_MAX ? REGISTERS_MAX : (uint8_t)count;
        r->registers[index] = most > r->registers[index] ? most : r->registers[index];
        if (!is_kernel(&symbol) && most > r->of_functions) {
            r->of_functions = most;
        }
    }
}

static unsigned product(struct tow_dec *dec)
{
    uint64_t x = tow_dec_u32(dec), y = tow_dec_u32(dec), z = tow_dec_u32(dec);
    uint64_t most = UINT16_MAX;
    return x > most || y > most || z > most || x * y > most || x * y * z > most
               ? (unsigned)most
               : (unsigned)(x * y * z);
}

/* False if they are not as all others are. */
static bool read_kernel(struct reader *r, const Elf64_Shdr *section,
                        struct tow_cubin_kernel *ret_kernel)
{
    struct tow_dec dec;
    struct record record;
    unsigned count = 0, seen = 0;
    uint32_t all = 0;
    bool fine = true;
    at(r, section->sh_offset, section->sh_size, &dec);
    while (fine && next_record(&dec, &record)) {
        bool sized = record.format == FORMAT_SIZED;
        struct tow_dec *in = &record.content;
        if (sized && (record.what == RECORD_PARAM || record.what == RECORD_PARAM_2)) {
            tow_dec_u32(in);
            unsigned ordinal = tow_dec_u16(in), offset = tow_dec_u16(in);
            uint32_t size = tow_dec_u32(in);
            size = record.what == RECORD_PARAM ? size >> 18 : size & UINT16_MAX;
            if (in->bad || size == 0 || ordinal >= TOW_LAYOUT_PARAMS_MAX) {
                fine = false;
                break;
            }
            for (; count <= ordinal; count++) {
                r->params[count].size = 0;
            }
            fine = r->params[ordinal].size == 0;
            r->params[ordinal] = (struct tow_layout_param){(uint16_t)offset, (uint16_t)size};
            seen++;
        } else if (sized && (record.what == RECORD_MAX_THREADS || record.what == RECORD_THREADS)) {
            ret_kernel->threads = product(in);
            fine = !in->bad && ret_kernel->threads != 0;
        } else if (sized && record.what == RECORD_BANK) {
            tow_dec_u32(in);
            tow_dec_u16(in);
            uint32_t size = tow_dec_u16(in);
            fine = !in->bad && (all == 0 || all == size);
            all = size;
        } else if (!sized && record.what == RECORD_BANK_SIZE) {
            fine = all == 0 || all == record.value;
            all = record.value;
        }
    }
    if (!fine || dec.bad || seen != count) {
        return false;
    }
    uint32_t end = 0;
    for (unsigned i = 0; i < count; i++) {
        if (r->params[i].offset < end) {
            return false;
        }
        end = (uint32_t)r->params[i].offset + r->params[i].size;
    }
    ret_kernel->params = r->params;
    ret_kernel->param_count = count;
    return end == all && end <= TOW_LAUNCH_ARGS_MAX;
}

/* ---- sections ---- */

static bool starts(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static void note(struct reader *r, uint32_t code, uint32_t index, uint32_t *(*of)(struct slot *))
{
    if (code == 0 || code >= r->count) {
        return;
    }
    uint32_t *into = of(&r->slots[code]);
    r->slots[code].odd = r->slots[code].odd || *into != 0;
    *into = index;
}

static uint32_t *info_of(struct slot *slot)
{
    return &slot->info;
}

static uint32_t *shared_of(struct slot *slot)
{
    return &slot->shared;
}

/* Finds the one table of symbols. */
static bool find_symbols(struct reader *r)
{
    Elf64_Shdr section;
    unsigned found = 0;
    for (uint64_t i = 0; i < r->count; i++) {
        if (!section_at(r, i, &section)) {
            return false;
        }
        if (section.sh_type == SHT_SYMTAB) {
            r->symbols = section;
            found++;
        }
    }
    r->symbol_count = r->symbols.sh_size / sizeof(Elf64_Sym);
    return found == 1 && section_at(r, r->symbols.sh_link, &r->strings) &&
           r->strings.sh_type == SHT_STRTAB;
}

/* Which records and which shared memory belong to which code. */
static void find_parts(struct reader *r)
{
    Elf64_Shdr section;
    for (uint64_t i = 1; i < r->count && section_at(r, i, &section); i++) {
        if (section.sh_type != TYPE_INFO && section.sh_type != SHT_NOBITS) {
            continue;
        }
        const char *name = name_in(r, &r->section_names, section.sh_name);
        if (name == NULL) {
            continue;
        }
        if (section.sh_type == SHT_NOBITS && starts(name, ".nv.shared.")) {
            note(r, section.sh_info, (uint32_t)i, shared_of);
        } else if (section.sh_type == TYPE_INFO && starts(name, ".nv.info.")) {
            note(r, section.sh_info, (uint32_t)i, info_of);
        } else if (section.sh_type == TYPE_INFO && strcmp(name, ".nv.info") == 0) {
            read_registers(r, &section);
        }
    }
}

/* The part of a section's name behind `prefix` is the kernel's. */
static bool is_of(struct reader *r, uint32_t index, const char *prefix, const char *kernel,
                  Elf64_Shdr *ret_section)
{
    const char *name = section_at(r, index, ret_section)
                           ? name_in(r, &r->section_names, ret_section->sh_name)
                           : NULL;
    return name != NULL && starts(name, prefix) && strcmp(name + strlen(prefix), kernel) == 0;
}

static bool kernel_at(struct reader *r, uint32_t index, struct tow_cubin_kernel *ret_kernel)
{
    Elf64_Shdr code, part;
    Elf64_Sym symbol;
    const struct slot *slot = &r->slots[index];
    if (slot->info == 0 || slot->odd || !section_at(r, index, &code) ||
        code.sh_type != SHT_PROGBITS || !symbol_at(r, code.sh_info & SYMBOL_MASK, &symbol) ||
        !is_kernel(&symbol) || (symbol.st_shndx != index && symbol.st_shndx != SHN_XINDEX)) {
        return false;
    }
    const char *name = name_in(r, &r->strings, symbol.st_name);
    *ret_kernel = (struct tow_cubin_kernel){.name = name};
    if (name == NULL || name[0] == '\0' || !is_of(r, index, ".text.", name, &code)) {
        return false;
    }
    if (slot->shared != 0) {
        if (!is_of(r, slot->shared, ".nv.shared.", name, &part)) {
            return false;
        }
        ret_kernel->shared = part.sh_size;
    }
    /* What it calls may need more than itself; of what is called without a name nobody knows. */
    unsigned own = r->registers[code.sh_info & SYMBOL_MASK];
    ret_kernel->registers = own == 0                ? REGISTERS_MAX
                            : own > r->of_functions ? own
                                                    : r->of_functions;
    return is_of(r, slot->info, ".nv.info.", name, &part) && read_kernel(r, &part, ret_kernel);
}

static bool begin(struct reader *r)
{
    Elf64_Ehdr head;
    struct tow_dec dec = tow_dec_init(r->bytes, r->size);
    tow_dec_copy(&dec, &head, sizeof head);
    if (dec.bad || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB ||
        head.e_machine != MACHINE_CUDA || head.e_type != ET_EXEC ||
        head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shoff > r->size) {
        return false;
    }
    at(r, head.e_shoff, r->size - head.e_shoff, &r->sections);
    Elf64_Shdr first;
    r->count = 1;
    if (!section_at(r, 0, &first)) {
        return false;
    }
    /* What needs more than 16 bits is in the first section. */
    r->count = head.e_shnum != 0 ? head.e_shnum : first.sh_size;
    uint64_t names = head.e_shstrndx != SHN_XINDEX ? head.e_shstrndx : first.sh_link;
    r->name_budget = (uint64_t)r->size * NAME_COST;
    return r->count <= tow_dec_left(&r->sections) / sizeof(Elf64_Shdr) && r->count <= UINT32_MAX &&
           section_at(r, names, &r->section_names) && r->section_names.sh_type == SHT_STRTAB &&
           find_symbols(r);
}

int tow_cubin_kernels(const uint8_t *bytes, size_t size,
                      bool (*each)(void *user, const struct tow_cubin_kernel *kernel), void *user)
{
    struct reader *r = malloc(sizeof *r);
    if (r == NULL) {
        return -ENOMEM;
    }
    memset(r, 0, offsetof(struct reader, params));
    r->bytes = bytes;
    r->size = size;
    int error = -EINVAL;
    if (begin(r)) {
        r->slots = calloc(r->count, sizeof *r->slots);
        r->registers = calloc(r->symbol_count + 1, 1);
        error = r->slots == NULL || r->registers == NULL ? -ENOMEM : 0;
    }
    if (error == 0) {
        struct tow_cubin_kernel kernel;
        bool more = true;
        find_parts(r);
        for (uint64_t i = 1; i < r->count && more; i++) {
            more = !kernel_at(r, (uint32_t)i, &kernel) || each(user, &kernel);
        }
    }
    free(r->registers);
    free(r->slots);
    free(r);
    return error;
}
