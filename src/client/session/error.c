#include "client/session/error.h"

#include <stdatomic.h>
#include <stddef.h>

#include "gen/core_client.h"

static const char *describe(CUresult error)
{
    switch (error) {
    case CUDA_SUCCESS:
        return "no error";
    case CUDA_ERROR_INVALID_VALUE:
        return "an argument has a value that is not allowed";
    case CUDA_ERROR_OUT_OF_MEMORY:
        return "there is not enough memory";
    case CUDA_ERROR_NOT_INITIALIZED:
        return "the driver is not initialised, or was initialised before this process was forked";
    case CUDA_ERROR_DEINITIALIZED:
        return "the driver is shutting down";
    case CUDA_ERROR_PROFILER_DISABLED:
        return "the profiler is disabled";
    case CUDA_ERROR_PROFILER_NOT_INITIALIZED:
        return "the profiler is not initialised";
    case CUDA_ERROR_PROFILER_ALREADY_STARTED:
        return "the profiler is already started";
    case CUDA_ERROR_PROFILER_ALREADY_STOPPED:
        return "the profiler is already stopped";
    case CUDA_ERROR_STUB_LIBRARY:
        return "the driver library is only a stub for linking";
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
        return "the call needs a newer driver";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
        return "the device, or the server that has it, is not available";
    case CUDA_ERROR_NO_DEVICE:
        return "no device can be used";
    case CUDA_ERROR_INVALID_DEVICE:
        return "there is no such device";
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
        return "the device has no licence";
    case CUDA_ERROR_INVALID_IMAGE:
        return "the device code is damaged or of an unknown form";
    case CUDA_ERROR_INVALID_CONTEXT:
        return "the context is not valid, or none is current";
    case CUDA_ERROR_CONTEXT_ALREADY_CURRENT:
        return "the context is already current";
    case CUDA_ERROR_MAP_FAILED:
        return "mapping failed";
    case CUDA_ERROR_UNMAP_FAILED:
        return "unmapping failed";
    case CUDA_ERROR_ARRAY_IS_MAPPED:
        return "the array is mapped";
    case CUDA_ERROR_ALREADY_MAPPED:
        return "the resource is already mapped";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        return "there is no code in the image that this device can run";
    case CUDA_ERROR_ALREADY_ACQUIRED:
        return "the resource is already acquired";
    case CUDA_ERROR_NOT_MAPPED:
        return "the resource is not mapped";
    case CUDA_ERROR_NOT_MAPPED_AS_ARRAY:
        return "the resource is not mapped as an array";
    case CUDA_ERROR_NOT_MAPPED_AS_POINTER:
        return "the resource is not mapped as a pointer";
    case CUDA_ERROR_ECC_UNCORRECTABLE:
        return "the memory has an error that ECC could not correct";
    case CUDA_ERROR_UNSUPPORTED_LIMIT:
        return "the device does not have this limit";
    case CUDA_ERROR_CONTEXT_ALREADY_IN_USE:
        return "another thread uses the context exclusively";
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
        return "the two devices cannot access each other";
    case CUDA_ERROR_INVALID_PTX:
        return "the PTX code could not be compiled";
    case CUDA_ERROR_INVALID_GRAPHICS_CONTEXT:
        return "the graphics context is not valid";
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
        return "NVLink had an error that could not be corrected";
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
        return "the PTX compiler was not found";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return "the PTX code is of a version that the driver does not know";
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
        return "compiling PTX is disabled";
    case CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY:
        return "the device cannot restrict execution in this way";
    case CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC:
        return "the code synchronises on the device, which this device does not support";
    case CUDA_ERROR_CONTAINED:
        return "a memory error was contained; the process must be restarted";
    case CUDA_ERROR_INVALID_SOURCE:
        return "the device code source is not valid";
    case CUDA_ERROR_FILE_NOT_FOUND:
        return "the file was not found";
    case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
        return "a symbol of a shared object was not found";
    case CUDA_ERROR_SHARED_OBJECT_INIT_FAILED:
        return "a shared object could not be initialised";
    case CUDA_ERROR_OPERATING_SYSTEM:
        return "a call of the operating system failed";
    case CUDA_ERROR_INVALID_HANDLE:
        return "the handle does not name a live object";
    case CUDA_ERROR_ILLEGAL_STATE:
        return "the object is in a state that does not allow this";
    case CUDA_ERROR_LOSSY_QUERY:
        return "the answer would lose information";
    case CUDA_ERROR_NOT_FOUND:
        return "no such name";
    case CUDA_ERROR_NOT_READY:
        return "the work is not finished yet";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
        return "a kernel accessed memory that it must not";
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
        return "the launch needs more registers or memory than there are";
    case CUDA_ERROR_LAUNCH_TIMEOUT:
        return "a kernel ran for too long and was stopped";
    case CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING:
        return "the launch uses textures in a mode that does not fit";
    case CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
        return "access between the devices is already enabled";
    case CUDA_ERROR_PEER_ACCESS_NOT_ENABLED:
        return "access between the devices is not enabled";
    case CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE:
        return "the primary context is active";
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return "the context has been destroyed";
    case CUDA_ERROR_ASSERT:
        return "an assertion in device code failed";
    case CUDA_ERROR_TOO_MANY_PEERS:
        return "no more devices can be connected";
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
        return "some of this host memory is already registered";
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
        return "this host memory is not registered";
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
        return "the stack of a kernel is damaged";
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        return "a kernel executed an instruction that does not exist";
    case CUDA_ERROR_MISALIGNED_ADDRESS:
        return "a kernel accessed memory at a misaligned address";
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        return "an instruction got an address of the wrong address space";
    case CUDA_ERROR_INVALID_PC:
        return "a kernel jumped to an address that has no code";
    case CUDA_ERROR_LAUNCH_FAILED:
        return "a kernel failed";
    case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
        return "the cooperative launch has more blocks than can run at once";
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
        return "a kernel ended without freeing its tensor memory";
    case CUDA_ERROR_NOT_PERMITTED:
        return "the operation is not permitted";
    case CUDA_ERROR_NOT_SUPPORTED:
        return "the operation is not supported";
    case CUDA_ERROR_SYSTEM_NOT_READY:
        return "the system is not ready for CUDA yet";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "parts of the driver, or client and server, do not fit together";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return "the compatibility driver does not support this device";
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
        return "the multi-process server cannot be reached";
    case CUDA_ERROR_MPS_RPC_FAILURE:
        return "talking to the multi-process server failed";
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
        return "the multi-process server is not ready";
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
        return "the multi-process server has too many clients";
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
        return "the multi-process server has too many connections";
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
        return "the multi-process server ended this client";
    case CUDA_ERROR_CDP_NOT_SUPPORTED:
        return "the device cannot launch kernels by itself";
    case CUDA_ERROR_CDP_VERSION_MISMATCH:
        return "versions of device-side launching do not fit together";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
        return "the operation is not allowed while a stream captures";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
        return "the capture was made invalid by an earlier error";
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
        return "the operation would join two captures";
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
        return "the capture did not begin in this stream";
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
        return "the capture has work that was not joined to the stream it began in";
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
        return "the capture would depend on work outside of it";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        return "the default stream would be drawn into the capture";
    case CUDA_ERROR_CAPTURED_EVENT:
        return "the event was last recorded in a capture";
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
        return "another thread began this capture";
    case CUDA_ERROR_TIMEOUT:
        return "the time for waiting is over";
    case CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE:
        return "the graph cannot be updated in this way";
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return "a device outside of CUDA reported an error";
    case CUDA_ERROR_INVALID_CLUSTER_SIZE:
        return "the cluster has a size that is not allowed";
    case CUDA_ERROR_FUNCTION_NOT_LOADED:
        return "the function is not loaded";
    case CUDA_ERROR_INVALID_RESOURCE_TYPE:
        return "the resource is of the wrong type";
    case CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION:
        return "the resources do not fit together";
    case CUDA_ERROR_KEY_ROTATION:
        return "the device changes its encryption keys";
    case CUDA_ERROR_UNKNOWN:
        return "an unknown error";
    default:
        return NULL;
    }
}

static const char *name_of(CUresult error)
{
    switch ((int)error) {
#define TOW_RESULT(name, value)                                                                    \
    case value:                                                                                    \
        return #name;
#include "gen/error_names.h"
#undef TOW_RESULT
    default:
        return NULL;
    }
}

CUresult tow_cuGetErrorName(CUresult error, const char **pStr)
{
    if (pStr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = name_of(error);
    return *pStr != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Process-wide: an error's text is the same for all. Of the first driver that a server told of.
 * Programs keep the pointers: never changed, never freed. */
static char *_Atomic known[TOW_SNAPSHOT_RESULTS];

void tow_error_take(struct tow_snapshot *snapshot)
{
    for (unsigned i = 0; i < TOW_SNAPSHOT_RESULTS; i++) {
        char *none = NULL;
        if (snapshot->texts[i] != NULL &&
            atomic_compare_exchange_strong(&known[i], &none, snapshot->texts[i])) {
            snapshot->texts[i] = NULL;
        }
    }
}

CUresult tow_cuGetErrorString(CUresult error, const char **pStr)
{
    if (pStr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = (unsigned)error < TOW_SNAPSHOT_RESULTS ? atomic_load(&known[error]) : NULL;
    if (*pStr != NULL) {
        return CUDA_SUCCESS;
    }
    *pStr = describe(error);
    if (*pStr == NULL) {
        /* A code that the table has and this file does not describe yet still has its name. */
        *pStr = name_of(error);
    }
    return *pStr != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
