/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and instances: the public face of loading. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/load/runtime.h"
#include "ptx/decode/decode.h"

static bool makes_calls(const struct tow_ptx_func *func)
{
    for (uint32_t i = 0; i < func->op_count; i++) {
        if (func->code[i].body == tow_ptx_call_op) {
            return true;
        }
    }
    return false;
}

static bool uses_stack_instructions(const struct tow_ptx_func *func)
{
    for (uint32_t i = 0; i < func->insn_count; i++) {
        if (strcmp(func->insns[i]->name, "alloca") == 0) {
            return true;
        }
    }
    return false;
}

/* As a driver counts: all that the module has, one behind the other. */
static uint32_t const_bytes(const struct tow_ptx_module *module)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < module->variable_count; i++) {
        const struct tow_ptx_variable *variable = &module->variables[i];
        if (variable->space == TOW_PTX_CONST) {
            uint64_t align = variable->align ? variable->align : 1;
            bytes = (bytes + align - 1) / align * align + variable->size;
        }
    }
    return bytes > INT32_MAX ? INT32_MAX : (uint32_t)bytes;
}

static void module_describe(struct tow_ptx_kernel *kernel, const struct tow_ptx_func *func)
{
    struct tow_ptx_kernel_info *info = &kernel->info;
    uint32_t local = (func->local_bytes + 15u) & ~15u;
    kernel->func = func;
    info->name = func->name;
    info->param_count = func->param_count;
    info->param_bytes = func->param_bytes;
    info->static_shared = (uint32_t)func->shared_bytes;
    info->local_bytes = func->local_bytes;
    info->max_threads = func->max_threads;
    info->min_ctas = func->min_ctas;
    info->explicit_cluster = func->explicit_cluster;
    memcpy(info->reqntid, func->reqntid, sizeof info->reqntid);
    memcpy(info->reqcluster, func->reqcluster, sizeof info->reqcluster);
    /* Registers here are virtual; hardware reuses them. A guess between the two. */
    uint32_t rows = func->frame_bytes / 128;
    info->registers = rows < 16 ? 16 : rows > 64 ? 64 : rows;
    if (func->max_registers && func->max_registers < info->registers) {
        info->registers = func->max_registers;
    }
    if (func->lacks && func->lacks->refused) {
        info->refused = func->lacks->refused;
        info->refused_line = func->lacks->refused_line;
    } else if (func->lacks) {
        info->undefined = func->lacks->name;
    }
    kernel->own_local = local;
    kernel->uses_stack = makes_calls(func) || uses_stack_instructions(func);
}

static int build_variables(struct tow_ptx_program *program, struct tow_ptx_module *module,
                           struct tow_ptx_diag *diag)
{
    for (uint32_t i = 0; i < program->var_count; i++) {
        struct tow_ptx_var *var = program->vars[i];
        module->vars[i] = var;
        module->variables[i] = (struct tow_ptx_variable){
            .name = var->name,
            .space = var->space == SP_CONST ? TOW_PTX_CONST : TOW_PTX_GLOBAL,
            .size = var->size,
            .align = var->align,
            .visible = var->visible,
            .managed = var->managed,
            .texture = var->texture};
        /* Symbols go away with the program: keep what an address refers to. */
        for (struct tow_ptx_reloc *reloc = var->relocs; reloc; reloc = reloc->next) {
            struct tow_ptx_symbol *symbol = tow_ptx_resolve(reloc->symbol);
            reloc->symbol = NULL;
            reloc->func = symbol->kind == SYM_FUNC ? symbol->func : NULL;
            reloc->var = symbol->kind == SYM_VAR ? symbol->var : NULL;
            if (reloc->func && !reloc->func->defined) {
                tow_ptx_want(program, symbol->func, reloc->line);
            }
            if (reloc->var && reloc->var->external) {
                return tow_ptx_fail(diag, -ENOENT, reloc->line,
                                    "'%s' is used in an initial value but not defined",
                                    reloc->var->name);
            }
            if (reloc->var && reloc->var->space != SP_GLOBAL && reloc->var->space != SP_CONST) {
                return tow_ptx_fail(diag, -EINVAL, reloc->line,
                                    "'%s' has no address that is known before a launch",
                                    reloc->var->name);
            }
        }
    }
    return 0;
}

static int module_build(struct tow_ptx_program *program, struct tow_ptx_module *module,
                        struct tow_ptx_diag *diag)
{
    size_t kernels = 0;
    module->func_count = program->func_count;
    module->variable_count = program->var_count;
    module->funcs = tow_ptx_arena_alloc(&module->arena, (program->func_count + 1) * sizeof(void *));
    module->vars = tow_ptx_arena_alloc(&module->arena, (program->var_count + 1) * sizeof(void *));
    module->variables =
        tow_ptx_arena_alloc(&module->arena, (program->var_count + 1) * sizeof *module->variables);
    for (uint32_t i = 0; i < program->func_count; i++) {
        kernels += program->funcs[i]->entry && program->funcs[i]->defined;
    }
    module->kernels = tow_ptx_arena_alloc(&module->arena, (kernels + 1) * sizeof *module->kernels);
    if (!module->funcs || !module->vars || !module->variables || !module->kernels) {
        return tow_ptx_fail(diag, -ENOMEM, 0, "out of memory while building the module");
    }
    int error = build_variables(program, module, diag);
    if (error) {
        return error;
    }
    if (tow_ptx_reach(program, module)) {
        return tow_ptx_fail(diag, -ENOMEM, 0, "out of memory while building the module");
    }
    if (program->func_count) {
        memcpy(module->funcs, program->funcs, program->func_count * sizeof(void *));
    }
    for (uint32_t i = 0; i < program->func_count; i++) {
        struct tow_ptx_func *func = program->funcs[i];
        if (!func->entry || !func->defined) {
            continue;
        }
        struct tow_ptx_kernel *kernel = &module->kernels[module->kernel_count++];
        struct tow_ptx_param *params =
            tow_ptx_arena_alloc(&module->arena, (func->param_count + 1) * sizeof *params);
        if (!params) {
            return tow_ptx_fail(diag, -ENOMEM, 0, "out of memory while building the module");
        }
        for (uint32_t k = 0; k < func->param_count; k++) {
            params[k] = (struct tow_ptx_param){.offset = (uint32_t)func->params[k]->offset,
                                               .size = (uint32_t)func->params[k]->size,
                                               .align = func->params[k]->align};
        }
        kernel->module = module;
        kernel->info.params = params;
        module_describe(kernel, func);
        kernel->info.const_bytes = const_bytes(module);
    }
    return 0;
}

/* A text of which nothing can run is refused as a whole. */
static int refuse_useless(struct tow_ptx_program *program, struct tow_ptx_module *module,
                          struct tow_ptx_diag *diag)
{
    module->refuses = program->refused != 0;
    for (size_t i = 0; i < module->kernel_count; i++) {
        if (!module->kernels[i].func->lacks) {
            return 0;
        }
    }
    for (uint32_t i = 0; i < program->func_count; i++) {
        if (program->funcs[i]->refused) {
            program->text = program->funcs[i]->text;
            return tow_ptx_refuse(diag, program->funcs[i]->refused,
                                  program->funcs[i]->refused_line);
        }
    }
    return 0;
}

int tow_ptx_load(const struct tow_ptx_text *texts, size_t count, struct tow_ptx_diag *ret_diag,
                 struct tow_ptx_module **ret_module)
{
    struct tow_ptx_diag diag = {0};
    struct tow_ptx_program program = {0};
    struct tow_ptx_module *module = calloc(1, sizeof *module);
    int error = -ENOMEM;
    if (!module) {
        tow_ptx_fail(ret_diag, error, 0, "out of memory while reading the program");
        return error;
    }
    program.keep = &module->arena;
    error = 0;
    for (size_t i = 0; i < count && error == 0; i++) {
        error = tow_ptx_parse(&program, &texts[i], &diag);
    }
    const struct tow_ptx_text *runtime = error == 0 ? tow_ptx_runtime_for(&program) : NULL;
    if (runtime) {
        error = tow_ptx_parse(&program, runtime, &diag);
    }
    if (error == 0 && (error = tow_ptx_link(&program, &diag)) == 0 &&
        (error = tow_ptx_decode(&program, module, &diag)) == 0 &&
        (error = module_build(&program, module, &diag)) == 0) {
        error = refuse_useless(&program, module, &diag);
    }
    const char *text = program.text;
    tow_ptx_program_fini(&program);
    if (error) {
        if (count > 1 && text && diag.line) {
            char message[sizeof diag.message];
            memcpy(message, diag.message, sizeof message);
            tow_ptx_fail(&diag, error, diag.line, "%.80s: %.380s", text, message);
        }
        *ret_diag = diag;
        tow_ptx_unload(module);
        return error;
    }
    *ret_module = module;
    return 0;
}

void tow_ptx_unload(struct tow_ptx_module *module)
{
    if (module) {
        free(module->consts);
        tow_ptx_arena_fini(&module->arena);
        free(module);
    }
}

size_t tow_ptx_kernel_count(const struct tow_ptx_module *module)
{
    return module->kernel_count;
}

const struct tow_ptx_kernel *tow_ptx_kernel_at(const struct tow_ptx_module *module, size_t index)
{
    return index < module->kernel_count ? &module->kernels[index] : NULL;
}

const struct tow_ptx_kernel *tow_ptx_kernel_find(const struct tow_ptx_module *module,
                                                 const char *name)
{
    for (size_t i = 0; i < module->kernel_count; i++) {
        if (strcmp(module->kernels[i].info.name, name) == 0) {
            return &module->kernels[i];
        }
    }
    return NULL;
}

bool tow_ptx_refuses(const struct tow_ptx_module *module)
{
    return module->refuses;
}

size_t tow_ptx_undefined_count(const struct tow_ptx_module *module)
{
    return module->undefined_count;
}

const struct tow_ptx_undefined *tow_ptx_undefined_at(const struct tow_ptx_module *module,
                                                     size_t index)
{
    return index < module->undefined_count ? &module->undefined[index] : NULL;
}

void tow_ptx_kernel_describe(const struct tow_ptx_kernel *kernel,
                             struct tow_ptx_kernel_info *ret_info)
{
    *ret_info = kernel->info;
}

size_t tow_ptx_variable_count(const struct tow_ptx_module *module)
{
    return module->variable_count;
}

const struct tow_ptx_variable *tow_ptx_variable_at(const struct tow_ptx_module *module,
                                                   size_t index)
{
    return index < module->variable_count ? &module->variables[index] : NULL;
}

int tow_ptx_instantiate(const struct tow_ptx_module *module, const uint64_t *addresses,
                        struct tow_ptx_instance **ret_instance)
{
    struct tow_ptx_instance *instance = calloc(1, sizeof *instance);
    uint64_t *copy = calloc(module->variable_count + 1, sizeof *copy);
    if (!instance || !copy) {
        free(instance);
        free(copy);
        return -ENOMEM;
    }
    if (module->variable_count) {
        memcpy(copy, addresses, module->variable_count * sizeof *copy);
    }
    instance->module = module;
    instance->addresses = copy;
    for (size_t i = 0; i < module->variable_count; i++) {
        const struct tow_ptx_var *var = module->vars[i];
        uint8_t *at = (uint8_t *)(uintptr_t)copy[i];
        uint64_t given = var->init ? var->init_bytes : 0;
        if (given) {
            memcpy(at, var->init, given);
        }
        if (var->size > given) {
            memset(at + given, 0, var->size - given);
        }
        for (const struct tow_ptx_reloc *reloc = var->relocs; reloc; reloc = reloc->next) {
            uint64_t value = (uint64_t)reloc->addend;
            value += reloc->func ? WINDOW_FUNCTION + (uint64_t)reloc->func->index * FUNCTION_STRIDE
                                 : copy[reloc->var->index];
            if (reloc->mask) {
                value = (value & reloc->mask) >> __builtin_ctzll(reloc->mask);
            }
            memcpy(at + reloc->offset, &value, reloc->bytes < 8 ? reloc->bytes : 8);
        }
    }
    *ret_instance = instance;
    return 0;
}

void tow_ptx_instance_free(struct tow_ptx_instance *instance)
{
    if (instance) {
        free(instance->addresses);
        free(instance);
    }
}
