/* SPDX-License-Identifier: Apache-2.0 */
/* What rooms below call of rooms above: the one place where such calls are tied. */
#include "backend/soft/code/launch.h"
#include "backend/soft/code/module.h"
#include "backend/soft/copy/copy.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/entry/entry.h"
#include "backend/soft/graph/graph.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/hooks.h"
#include "backend/soft/memory/array.h"
#include "backend/soft/memory/ipc.h"
#include "backend/soft/memory/pool.h"
#include "backend/soft/memory/texture.h"
#include "backend/soft/stream/event.h"
#include "base/log.h"

static void unexpected_end(struct tow_soft_object *object)
{
    tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR, "internal: object of kind %d in a context", object->kind);
    tow_soft_object_remove(object);
}

static const struct tow_soft_work_ops *const work_ops[TOW_SOFT_WORK_KINDS] = {
    [TOW_SOFT_WORK_KERNEL] = &tow_soft_kernel_ops, [TOW_SOFT_WORK_COPY] = &tow_soft_copy_ops,
    [TOW_SOFT_WORK_SET] = &tow_soft_set_ops,       [TOW_SOFT_WORK_FREE] = &tow_soft_free_ops,
    [TOW_SOFT_WORK_GRAPH] = &tow_soft_plan_ops,    [TOW_SOFT_WORK_CHILD] = &tow_soft_child_ops,
    [TOW_SOFT_WORK_BRANCH] = &tow_soft_branch_ops,
};

const struct tow_soft_hooks tow_soft_hooks = {
    .pages_gone = tow_soft_ipc_forget,
    .ctx_ends = tow_soft_graphs_forget,
    .condition_set = tow_soft_condition_set,
    .work = work_ops,
    .ends =
        {
            [TOW_SOFT_NONE] = unexpected_end,          [TOW_SOFT_CTX] = unexpected_end,
            [TOW_SOFT_STREAM] = tow_soft_stream_end,   [TOW_SOFT_EVENT] = tow_soft_event_end,
            [TOW_SOFT_MODULE] = tow_soft_module_end,   [TOW_SOFT_FUNCTION] = unexpected_end,
            [TOW_SOFT_LIBRARY] = unexpected_end,       [TOW_SOFT_KERNEL] = unexpected_end,
            [TOW_SOFT_LINK] = tow_soft_link_end,       [TOW_SOFT_ARRAY] = tow_soft_array_end,
            [TOW_SOFT_MIPMAP] = tow_soft_mipmap_end,   [TOW_SOFT_TEXTURE] = tow_soft_texture_end,
            [TOW_SOFT_SURFACE] = tow_soft_texture_end, [TOW_SOFT_POOL] = unexpected_end,
            [TOW_SOFT_MEMORY] = unexpected_end,        [TOW_SOFT_GRAPH] = unexpected_end,
            [TOW_SOFT_NODE] = unexpected_end,          [TOW_SOFT_EXEC] = tow_soft_exec_end,
            [TOW_SOFT_USER_OBJECT] = unexpected_end,   [TOW_SOFT_GREEN] = unexpected_end,
            [TOW_SOFT_RESOURCES] = unexpected_end,     [TOW_SOFT_CONDITION] = unexpected_end,
        },
};
