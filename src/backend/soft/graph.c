/* Graphs. */
#include "backend/soft/soft.h"

struct tow_soft_graph *tow_soft_graph_clone(const struct tow_soft_graph *graph)
{
    (void)graph;
    return NULL;
}
void tow_soft_graph_free(struct tow_soft_graph *graph)
{
    (void)graph;
}
struct tow_soft_exec *tow_soft_exec_ref(struct tow_soft_exec *exec)
{
    return exec;
}
void tow_soft_exec_unref(struct tow_soft_exec *exec)
{
    (void)exec;
}
CUresult tow_soft_exec_run(struct tow_soft_exec *exec, struct tow_soft_ctx *ctx)
{
    (void)exec;
    (void)ctx;
    return CUDA_ERROR_NOT_SUPPORTED;
}
void tow_soft_condition_ref(struct tow_soft_condition *condition)
{
    (void)condition;
}
void tow_soft_condition_unref(struct tow_soft_condition *condition)
{
    (void)condition;
}
CUresult tow_soft_capture_add(struct tow_soft_stream *stream, struct tow_soft_work *work)
{
    (void)stream;
    tow_soft_work_fini(work);
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult tow_soft_capture_wait(struct tow_soft_stream *stream, struct tow_soft_event *event,
                               bool external, bool *ret_done)
{
    (void)stream;
    (void)event;
    (void)external;
    *ret_done = false;
    return CUDA_SUCCESS;
}
CUresult tow_soft_capture_record(struct tow_soft_stream *stream, struct tow_soft_event *event,
                                 bool external, bool *ret_done)
{
    return tow_soft_capture_wait(stream, event, external, ret_done);
}
CUresult tow_soft_capture_forbid(struct tow_soft_ctx *ctx, struct tow_soft_stream *stream)
{
    (void)ctx;
    (void)stream;
    return CUDA_SUCCESS;
}
CUresult tow_soft_capture_forbid_legacy(struct tow_soft_ctx *ctx)
{
    (void)ctx;
    return CUDA_SUCCESS;
}
CUresult tow_soft_capture_forbid_implicit(struct tow_soft_ctx *ctx)
{
    (void)ctx;
    return CUDA_SUCCESS;
}
CUresult tow_soft_capture_unsafe(struct tow_soft_ctx *ctx)
{
    (void)ctx;
    return CUDA_SUCCESS;
}
void tow_soft_capture_stream_gone(struct tow_soft_stream *stream)
{
    (void)stream;
}
void tow_soft_captures_drop(struct tow_soft_ctx *ctx)
{
    (void)ctx;
}
void tow_soft_graphs_forget(struct tow_soft_ctx *ctx)
{
    (void)ctx;
}
void tow_soft_graphs_fini(void)
{
}
void tow_soft_fill_graph(struct tow_driver *driver)
{
    (void)driver;
}
void tow_soft_fill_graph_exec(struct tow_driver *driver)
{
    (void)driver;
}
void tow_soft_fill_capture(struct tow_driver *driver)
{
    (void)driver;
}
CUresult tow_soft_capture_alloc(struct tow_soft_stream *stream, uint64_t size, int device,
                                CUdeviceptr *ret_ptr)
{
    (void)stream;
    (void)size;
    (void)device;
    (void)ret_ptr;
    return CUDA_ERROR_NOT_SUPPORTED;
}
