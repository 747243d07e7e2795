/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up variables: of PTX by its declarations, of a cubin by its sections. */
#include "server/worker/image_globals.h"

#include <ctype.h>
#include <elf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backend/unpack.h"
#include "wire/image.h"

static uint64_t sum_up(uint64_t one, uint64_t other)
{
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

static uint64_t product_of(uint64_t one, uint64_t other)
{
    uint64_t product;
    return __builtin_mul_overflow(one, other, &product) ? UINT64_MAX : product;
}

/* ---- PTX ---- */

/* A text that need not end with a NUL. */
struct text {
    const char *at, *end;
};

static void skip_blanks(struct text *text)
{
    while (text->at < text->end) {
        if (isspace((unsigned char)*text->at)) {
            text->at++;
        } else if (text->end - text->at > 1 && memcmp(text->at, "//", 2) == 0) {
            while (text->at < text->end && *text->at != '\n') {
                text->at++;
            }
        } else if (text->end - text->at > 1 && memcmp(text->at, "/*", 2) == 0) {
            text->at += 2;
            while (text->at < text->end &&
                   !(text->end - text->at > 1 && memcmp(text->at, "*/", 2) == 0)) {
                text->at++;
            }
            text->at = text->end - text->at > 1 ? text->at + 2 : text->end;
        } else {
            return;
        }
    }
}

/* A word, or one other character; false at the end. */
static bool next_token(struct text *text, struct text *ret_token)
{
    skip_blanks(text);
    if (text->at == text->end) {
        return false;
    }
    ret_token->at = text->at;
    if (*text->at == '"') { /* a file's name */
        do {
            text->at++;
        } while (text->at < text->end && *text->at != '"' && *text->at != '\n');
        text->at += text->at < text->end;
    } else {
        do {
            text->at++;
        } while (text->at < text->end &&
                 (isalnum((unsigned char)*text->at) || strchr("._$%", *text->at) != NULL) &&
                 (isalnum((unsigned char)text->at[-1]) || strchr("._$%", text->at[-1]) != NULL));
    }
    ret_token->end = text->at;
    return true;
}

static bool is_token(const struct text *token, const char *word)
{
    size_t length = (size_t)(token->end - token->at);
    return strlen(word) == length && memcmp(token->at, word, length) == 0;
}

/* ".u32": 4, ".v2": 2 and of a vector; anything else: 0. */
static unsigned read_type(const struct text *token, bool *ret_vector)
{
    static const char letters[] = "busf";
    size_t length = (size_t)(token->end - token->at);
    *ret_vector = length == 3 && memcmp(token->at, ".v", 2) == 0;
    if (*ret_vector) {
        return (unsigned)(token->at[2] - '0');
    }
    if (is_token(token, ".f16x2") || is_token(token, ".bf16x2")) {
        return 4;
    }
    if (is_token(token, ".bf16")) {
        return 2;
    }
    if (length < 3 || length > 5 || token->at[0] != '.' || strchr(letters, token->at[1]) == NULL) {
        return 0;
    }
    unsigned bits = 0;
    for (const char *at = token->at + 2; at < token->end; at++) {
        if (!isdigit((unsigned char)*at)) {
            return 0;
        }
        bits = 10 * bits + (unsigned)(*at - '0');
    }
    return bits / 8;
}

/* "4096", "0x1000", "0b11", "010" and "4096U"; else UINT64_MAX. */
static uint64_t read_number(const struct text *token)
{
    char digits[80];
    size_t length = (size_t)(token->end - token->at);
    length -= length > 1 && token->end[-1] == 'U';
    if (length >= sizeof digits || !isdigit((unsigned char)*token->at)) {
        return UINT64_MAX;
    }
    memcpy(digits, token->at, length);
    digits[length] = '\0';
    bool binary = digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B');
    char *end;
    uint64_t value = strtoull(digits + (binary ? 2 : 0), &end, binary ? 2 : 0);
    return *end == '\0' ? value : UINT64_MAX;
}

/* What stands behind "NAME[" up to the bracket: a number, or (no length) 0. What has to be
 * computed is as large as can be. */
static uint64_t read_dimension(struct text *text)
{
    struct text token;
    uint64_t value = 0;
    for (unsigned i = 0; next_token(text, &token) && !is_token(&token, "]"); i++) {
        value = i == 0 ? read_number(&token) : UINT64_MAX;
    }
    return value;
}

/* How many values there are in "{...}". */
static uint64_t count_values(struct text *text)
{
    struct text token;
    uint64_t count = 0;
    unsigned depth = 0;
    bool value = false;
    while (next_token(text, &token)) {
        if (is_token(&token, "{")) {
            depth++;
        } else if (is_token(&token, "}")) {
            depth -= depth > 0;
            count += value;
            value = false;
        } else if (is_token(&token, ",")) {
            count += value;
            value = false;
        } else {
            value = true;
        }
        if (depth == 0) {
            return count;
        }
    }
    return count;
}

/* Behind ".global": the declarations up to the semicolon. */
static uint64_t read_declarations(struct text *text)
{
    struct text token;
    uint64_t sum = 0, element = 0, vector = 1, variable = 0;
    bool open_ended = false, is_vector;
    while (next_token(text, &token) && !is_token(&token, ";")) {
        unsigned size = read_type(&token, &is_vector);
        if (is_vector) {
            vector = size;
        } else if (size != 0) {
            element = size;
        } else if (is_token(&token, ",")) {
            sum = sum_up(sum, variable);
            variable = 0;
        } else if (is_token(&token, "[")) {
            uint64_t dimension = read_dimension(text);
            open_ended |= dimension == 0;
            variable = product_of(variable, dimension != 0 ? dimension : 1);
        } else if (is_token(&token, "=")) {
            struct text rest = *text;
            if (next_token(&rest, &token) && is_token(&token, "{")) {
                uint64_t values = count_values(text);
                variable = open_ended ? product_of(variable, values) : variable;
            }
        } else if (*token.at != '.' &&
                   (isalpha((unsigned char)*token.at) != 0 || strchr("_$%", *token.at) != NULL)) {
            variable = variable == 0 ? product_of(element, vector) : variable;
        }
    }
    return sum_up(sum, variable);
}

static uint64_t globals_of_ptx(const char *bytes, size_t size)
{
    struct text text = {bytes, bytes + strnlen(bytes, size)}, token;
    uint64_t sum = 0;
    bool elsewhere = false; /* another module has it, or it is what a parameter points to */
    while (next_token(&text, &token)) {
        if (is_token(&token, ".global") && !elsewhere) {
            sum = sum_up(sum, read_declarations(&text));
        }
        elsewhere = is_token(&token, ".extern") || is_token(&token, ".ptr");
    }
    return sum;
}

/* ---- cubins ---- */

struct sections {
    const uint8_t *bytes;
    size_t size;
    Elf64_Ehdr head;
};

static bool read_section(const struct sections *sections, uint64_t number, Elf64_Shdr *ret)
{
    uint64_t at;
    if (__builtin_mul_overflow(number, (uint64_t)sections->head.e_shentsize, &at) ||
        __builtin_add_overflow(at, (uint64_t)sections->head.e_shoff, &at) || at > sections->size ||
        sections->size - at < sizeof *ret) {
        return false;
    }
    memcpy(ret, sections->bytes + at, sizeof *ret);
    return true;
}

/* Whether it has variables: .nv.global and .nv.global.init, whatever its flags say. */
static bool has_variables(const struct sections *sections, const Elf64_Shdr *names, uint64_t name)
{
    static const char wanted[] = ".nv.global";
    if (name >= names->sh_size || names->sh_offset > sections->size ||
        names->sh_size > sections->size - names->sh_offset) {
        return false;
    }
    const char *at = (const char *)sections->bytes + names->sh_offset + name;
    size_t length = strnlen(at, (size_t)(names->sh_size - name));
    return length >= sizeof wanted - 1 && memcmp(at, wanted, sizeof wanted - 1) == 0 &&
           (length == sizeof wanted - 1 || at[sizeof wanted - 1] == '.');
}

static uint64_t globals_of_cubin(const uint8_t *bytes, size_t size)
{
    struct sections sections = {.bytes = bytes, .size = size};
    Elf64_Shdr first, names, section;
    uint64_t sum = 0;
    if (size < sizeof sections.head) {
        return 0;
    }
    memcpy(&sections.head, bytes, sizeof sections.head);
    if (sections.head.e_shoff == 0 || sections.head.e_shentsize < sizeof section ||
        !read_section(&sections, 0, &first)) {
        return 0;
    }
    /* More than 16 bits hold is in the first section. */
    uint64_t count = sections.head.e_shnum != 0 ? sections.head.e_shnum : first.sh_size;
    uint64_t names_at =
        sections.head.e_shstrndx != SHN_XINDEX ? sections.head.e_shstrndx : first.sh_link;
    if (!read_section(&sections, names_at, &names)) {
        return 0;
    }
    for (uint64_t i = 0; i < count && read_section(&sections, i, &section); i++) {
        sum = sum_up(sum, has_variables(&sections, &names, section.sh_name) ? section.sh_size : 0);
    }
    return sum;
}

/* ---- fatbins, and what holds them ---- */

static uint64_t globals_of_entry(const struct tow_entry *entry, const uint8_t *bytes, size_t size)
{
    return entry->kind == TOW_ENTRY_PTX ? globals_of_ptx((const char *)bytes, size)
                                        : globals_of_cubin(bytes, size);
}

static uint64_t globals_of_fatbin(const uint8_t *bytes, size_t size, unsigned major)
{
    size_t at;
    uint64_t body, most = 0;
    struct tow_entry entry;
    if (tow_entry_first(bytes, size, &at, &body) < 0) {
        return 0;
    }
    while (tow_entry_next(bytes, size, &at, &entry) > 0) {
        if (entry.kind != TOW_ENTRY_PTX &&
            (entry.kind != TOW_ENTRY_ELF || entry.sm / 10 != major)) {
            continue;
        }
        uint64_t own = 0;
        uint8_t *unpacked = NULL;
        size_t length = 0;
        if (!entry.is_packed) {
            own = globals_of_entry(&entry, entry.payload, entry.size);
        } else if (tow_entry_unpack(&entry, &unpacked, &length) == 0) {
            own = globals_of_entry(&entry, unpacked, length);
            free(unpacked);
        } else { /* variables that are not zero are in there */
            own = entry.unpacked_size;
        }
        most = own > most ? own : most;
    }
    return most;
}

/* The image was measured when it came: what is read here lies in it. */
static bool is_readable(const struct tow_image_memory *memory, size_t offset, size_t n)
{
    (void)memory;
    (void)offset;
    (void)n;
    return true;
}

uint64_t tows_image_globals(const void *image, unsigned major)
{
    const struct tow_image_memory memory = {
        .base = image, .size = SIZE_MAX, .readable = is_readable};
    enum tow_image_form form;
    size_t size;
    if (tow_image_measure(&memory, &form, &size) < 0) {
        return 0;
    }
    if (form == TOW_IMAGE_PTX) {
        return globals_of_ptx(image, size);
    }
    if (form == TOW_IMAGE_CUBIN) {
        return globals_of_cubin(image, size);
    }
    if (form == TOW_IMAGE_FATBIN) {
        return globals_of_fatbin(image, size, major);
    }
    if (form != TOW_IMAGE_WRAPPER) {
        return 0;
    }
    struct tow_image_wrapper wrapper;
    memcpy(&wrapper, image, sizeof wrapper);
    uint64_t sum = wrapper.data != NULL ? tows_image_globals(wrapper.data, major) : 0;
    const void *const *parts = wrapper.version == 2 ? wrapper.extra : NULL;
    for (; parts != NULL && *parts != NULL; parts++) {
        sum = sum_up(sum, tows_image_globals(*parts, major));
    }
    return sum;
}
