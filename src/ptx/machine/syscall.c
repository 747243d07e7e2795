/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the machine itself provides to device code: printf, malloc, assert, conditions of
 * graphs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/machine/control.h"

#define PRINT_MAX 8192u /* bytes of one printf */
#define TEXT_MAX 4096u  /* of a string argument */

static uint64_t syscall_argument(struct tow_ptx_warp *w, const struct tow_ptx_call *call,
                                 unsigned index, unsigned lane)
{
    const struct tow_ptx_arg *arg = &call->args[index];
    uint64_t value = 0;
    if (arg->is_imm) {
        return arg->bits;
    }
    if (arg->ref != PTX_NO_SLOT) {
        const void *row = tow_ptx_row(w, arg->ref);
        return arg->wide ? ((const uint64_t *)row)[lane] : ((const uint32_t *)row)[lane];
    }
    uint32_t base = w->groups[w->current].frame->local_base;
    memcpy(&value, w->local + (uint64_t)lane * w->local_stride + base + arg->offset,
           arg->bytes < 8 ? arg->bytes : 8);
    return value;
}

static void give_back(struct tow_ptx_warp *w, const struct tow_ptx_call *call, unsigned lane,
                      uint64_t value)
{
    if (!call->return_count) {
        return;
    }
    const struct tow_ptx_arg *arg = &call->returns[0];
    if (arg->ref != PTX_NO_SLOT) {
        void *row = tow_ptx_row(w, arg->ref);
        if (arg->wide) {
            ((uint64_t *)row)[lane] = value;
        } else {
            ((uint32_t *)row)[lane] = (uint32_t)value;
        }
        return;
    }
    uint32_t base = w->groups[w->current].frame->local_base;
    memcpy(w->local + (uint64_t)lane * w->local_stride + base + arg->offset, &value,
           arg->bytes < 8 ? arg->bytes : 8);
}

/* A NUL-terminated text in device memory; false after a fault. */
static bool read_text(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                      uint64_t address, char *text, size_t size)
{
    size_t at = 0;
    while (at + 1 < size) {
        uint64_t bytes;
        const uint8_t *from = tow_ptx_probe(w, lane, address + at, &bytes);
        if (!from) {
            tow_ptx_fault(w, o, TOW_PTX_FAULT_ADDRESS, lane, address + at,
                          "a string at 0x%llx is in no live allocation",
                          (unsigned long long)address);
            return false;
        }
        for (uint64_t i = 0; i < bytes && at + 1 < size; i++, at++) {
            text[at] = (char)from[i];
            if (!text[at]) {
                return true;
            }
        }
    }
    text[at] = 0;
    return true;
}

struct print {
    struct tow_ptx_warp *w;
    const struct tow_ptx_op *o;
    unsigned lane;
    uint64_t args; /* address of the argument buffer */
    uint64_t used;
    bool ended; /* no argument buffer left: the rest prints as it stands */
    char out[PRINT_MAX];
    size_t length;
};

static bool next_argument(struct print *print, unsigned bytes, uint64_t *ret_value)
{
    print->used = (print->used + bytes - 1) & ~(uint64_t)(bytes - 1);
    uint8_t *at = tow_ptx_at_lane(print->w, print->o, print->lane, print->args + print->used, bytes,
                                  ACCESS_READ);
    if (!at) {
        return false;
    }
    *ret_value = 0;
    memcpy(ret_value, at, bytes);
    print->used += bytes;
    return true;
}

static void syscall_put(struct print *print, const char *text, size_t length)
{
    size_t room = PRINT_MAX - print->length;
    length = length < room ? length : room;
    memcpy(print->out + print->length, text, length);
    print->length += length;
}

/* Flags, width and precision of `spec`, with numbers in the place of stars, to `form`; how many
 * characters of `spec` that took, or 0 if an argument is missing. */
static size_t conversion_form(struct print *print, const char *spec, char form[64], size_t *ret_n)
{
    size_t at = 1, n = 1;
    uint64_t value;
    form[0] = '%';
    while (spec[at] && strchr("-+ #0", spec[at]) && n < 16) {
        form[n++] = spec[at++];
    }
    for (unsigned part = 0; part < 2; part++) {
        if (part == 1) {
            if (spec[at] != '.') {
                break;
            }
            form[n++] = spec[at++];
        }
        if (spec[at] == '*') {
            if (!next_argument(print, 4, &value)) {
                return 0;
            }
            int number = (int)value;
            number = number > 1000 ? 1000 : number < -1000 ? -1000 : number;
            n += (size_t)snprintf(form + n, 12, "%d", part == 1 && number < 0 ? 0 : number);
            at++;
        } else {
            unsigned number = 0, digits = 0;
            while (spec[at] >= '0' && spec[at] <= '9') {
                number = number < 100000 ? number * 10 + (unsigned)(spec[at] - '0') : number;
                at++;
                digits++;
            }
            if (digits) {
                n += (size_t)snprintf(form + n, 12, "%u", number > 1000 ? 1000 : number);
            }
        }
    }
    *ret_n = n;
    return at;
}

/* A conversion: "%", flags, width and precision as C's printf takes them, what stands before the
 * letter, and the text that it becomes. */
struct conversion {
    char form[64];
    size_t n; /* characters of `form` before the letter */
    unsigned longs, shorts;
    char text[TEXT_MAX + 512];
};

static int convert_integer(struct print *print, struct conversion *c, char letter)
{
    uint64_t value;
    if (!next_argument(print, c->longs ? 8 : 4, &value)) {
        return -1;
    }
    if (letter == 'd' || letter == 'i') {
        memcpy(c->form + c->n, "lld", 4);
        return snprintf(c->text, sizeof c->text, c->form,
                        c->longs        ? (long long)value
                        : c->shorts > 1 ? (long long)(signed char)value
                        : c->shorts     ? (long long)(short)value
                                        : (long long)(int)value);
    }
    memcpy(c->form + c->n, "ll", 2);
    c->form[c->n + 2] = letter;
    c->form[c->n + 3] = 0;
    value = c->shorts > 1 ? (uint8_t)value : c->shorts ? (uint16_t)value : value;
    return snprintf(c->text, sizeof c->text, c->form, (unsigned long long)value);
}

/* A character, a pointer or a number that is none of the integers. */
static int convert_word(struct print *print, struct conversion *c, char letter)
{
    uint64_t value;
    if (!next_argument(print, letter == 'c' ? 4 : 8, &value)) {
        return -1;
    }
    c->form[c->n] = letter;
    c->form[c->n + 1] = 0;
    if (letter == 'c') {
        return snprintf(c->text, sizeof c->text, c->form, (int)(char)value);
    }
    if (letter == 'p') {
        return snprintf(c->text, sizeof c->text, c->form, (void *)(uintptr_t)value);
    }
    double number;
    memcpy(&number, &value, 8);
    return snprintf(c->text, sizeof c->text, c->form, number);
}

static int convert_string(struct print *print, struct conversion *c)
{
    char string[TEXT_MAX];
    uint64_t value;
    if (!next_argument(print, 8, &value)) {
        return -1;
    }
    if (!value) {
        snprintf(string, sizeof string, "(null)");
    } else if (!read_text(print->w, print->o, print->lane, value, string, sizeof string)) {
        return -1;
    }
    c->form[c->n] = 's';
    c->form[c->n + 1] = 0;
    return snprintf(c->text, sizeof c->text, c->form, string);
}

/* One conversion, `spec` from '%' on. Returns the characters taken, 0 after a fault. */
static size_t syscall_convert(struct print *print, const char *spec)
{
    struct conversion c;
    c.n = c.longs = c.shorts = 0;
    size_t at = conversion_form(print, spec, c.form, &c.n);
    if (at == 0) {
        return 0;
    }
    while (spec[at] && strchr("hlLjzt", spec[at])) {
        c.longs += spec[at] != 'h';
        c.shorts += spec[at] == 'h';
        at++;
    }
    int length;
    char letter = spec[at];
    if (letter == '%') {
        syscall_put(print, "%", 1);
        return at + 1;
    } else if (letter && strchr("diuxXo", letter)) {
        length = convert_integer(print, &c, letter);
    } else if (letter && strchr("cfFeEgGaAp", letter)) {
        length = convert_word(print, &c, letter);
    } else if (letter == 's') {
        length = convert_string(print, &c);
    } else { /* not a conversion: as it stands */
        syscall_put(print, spec, letter ? at + 1 : at);
        return letter ? at + 1 : at;
    }
    if (length < 0) {
        return 0;
    }
    syscall_put(print, c.text, (size_t)length < sizeof c.text ? (size_t)length : sizeof c.text - 1);
    return at + 1;
}

static int sys_vprintf(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                       const struct tow_ptx_call *call)
{
    FOR_LANES(l, w->exec)
    {
        char format[TEXT_MAX];
        struct print print = {.w = w, .o = o, .lane = l};
        uint64_t address = syscall_argument(w, call, 0, l);
        print.args = syscall_argument(w, call, 1, l);
        if (!read_text(w, o, l, address, format, sizeof format)) {
            return -1;
        }
        int count = 0;
        for (const char *at = format; *at;) {
            size_t plain = strcspn(at, "%");
            syscall_put(&print, at, plain);
            at += plain;
            if (*at) {
                size_t taken = syscall_convert(&print, at);
                if (!taken) {
                    return -1;
                }
                count++;
                at += taken;
            }
        }
        w->launch->env->print(w->launch->env_user, print.out, print.length);
        give_back(w, call, l, (uint64_t)count);
    }
    return 0;
}

static int sys_malloc(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                      const struct tow_ptx_call *call)
{
    (void)o;
    FOR_LANES(l, w->exec)
    {
        uint64_t bytes = syscall_argument(w, call, 0, l);
        give_back(w, call, l, w->launch->env->heap_alloc(w->launch->env_user, bytes));
    }
    return 0;
}

static int sys_free(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                    const struct tow_ptx_call *call)
{
    FOR_LANES(l, w->exec)
    {
        uint64_t address = syscall_argument(w, call, 0, l);
        if (address && w->launch->env->heap_free(w->launch->env_user, address) < 0) {
            tow_ptx_fault(w, o, TOW_PTX_FAULT_ADDRESS, l, address,
                          "free of 0x%llx, which malloc did not return",
                          (unsigned long long)address);
            return -1;
        }
    }
    /* What the freed memory was found in may be remembered: forget it. */
    memset(w->runner->sites, 0, sizeof w->runner->sites);
    return 0;
}

/* __assertfail(message, file, line, function, character size) */
static int sys_assertfail(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                          const struct tow_ptx_call *call)
{
    unsigned first = (unsigned)__builtin_ctz(w->exec);
    char texts[3][1024];
    unsigned line = 0;
    FOR_LANES(l, w->exec)
    {
        static const unsigned indexes[3] = {0, 1, 3};
        for (unsigned i = 0; i < 3; i++) {
            uint64_t address = syscall_argument(w, call, indexes[i], l);
            texts[i][0] = 0;
            if (address && !read_text(w, o, l, address, texts[i], sizeof texts[i])) {
                return -1;
            }
        }
        line = (unsigned)syscall_argument(w, call, 2, l);
        const uint32_t *rows = (const uint32_t *)w->sregs;
        uint32_t thread[3] = {rows[l], rows[LANES + l], rows[2 * LANES + l]};
        w->launch->env->assert_failed(w->launch->env_user, texts[0], texts[1], line, texts[2],
                                      w->block->id, thread);
    }
    tow_ptx_fault(w, o, TOW_PTX_FAULT_ASSERT, first, 0, "assertion '%.80s' failed at %.80s:%u",
                  texts[0], texts[1], line);
    return -1;
}

static int sys_abort(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                     const struct tow_ptx_call *call)
{
    (void)call;
    tow_ptx_fault(w, o, TOW_PTX_FAULT_TRAP, (unsigned)__builtin_ctz(w->exec), 0,
                  "the kernel called abort");
    return -1;
}

/* cudaGraphSetConditional(handle, value). Several threads at once are undefined: here the last one
 * wins. */
static int sys_set_conditional(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                               const struct tow_ptx_call *call)
{
    FOR_LANES(l, w->exec)
    {
        uint64_t handle = syscall_argument(w, call, 0, l);
        uint32_t value = (uint32_t)syscall_argument(w, call, 1, l);
        if (w->launch->env->set_condition(w->launch->env_user, handle, value) < 0) {
            tow_ptx_fault(w, o, TOW_PTX_FAULT_ADDRESS, l, handle,
                          "0x%llx is the handle of no condition", (unsigned long long)handle);
            return -1;
        }
    }
    return 0;
}

const struct tow_ptx_syscall *tow_ptx_syscall_find(const char *name)
{
    static const struct tow_ptx_syscall table[] = {
        {"vprintf", 2, sys_vprintf}, {"malloc", 1, sys_malloc},
        {"free", 1, sys_free},       {"__assertfail", 5, sys_assertfail},
        {"abort", 0, sys_abort},     {"cudaGraphSetConditional", 2, sys_set_conditional},
    };
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(name, table[i].name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}
