/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the CUDA driver API that fa-tune uses: types, constants and the table of functions,
 * declared here so that no CUDA header is needed. Private to src/gpu/.
 *
 * Names, values and signatures are those of the driver's binary interface, which NVIDIA keeps
 * stable: a function that changed got a new symbol (_v2), and that is the symbol listed.
 */
#ifndef FA_GPU_DRIVER_API_H
#define FA_GPU_DRIVER_API_H

#include "buf.h"
#include "driver.h"

#include <pthread.h>

typedef int cu_result;
typedef int cu_device;
typedef struct cu_context_state *cu_context;
typedef struct cu_module_state *cu_module;
typedef struct cu_graph_state *cu_graph;
typedef struct cu_user_object_state *cu_user_object;

/* CUresult */
enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_STUB_LIBRARY = 34,
    CU_NO_DEVICE = 100,
    CU_WRONG_ARCHITECTURE = 209, /* CUDA_ERROR_NO_BINARY_FOR_GPU */
    CU_NOT_FOUND = 500,
    CU_CAPTURE_IMPLICIT = 906,
};

/* CUstreamCaptureStatus; CUstreamCaptureMode; CU_STREAM_NON_BLOCKING; CU_EVENT_DISABLE_TIMING;
 * CU_USER_OBJECT_NO_DESTRUCTOR_SYNC; CU_GRAPH_USER_OBJECT_MOVE */
enum { CU_CAPTURE_NONE = 0, CU_CAPTURE_ACTIVE = 1 };
enum { CU_CAPTURE_RELAXED = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_DISABLE_TIMING = 2 };
enum { CU_NO_DESTRUCTOR_SYNC = 1 };
enum { CU_USER_OBJECT_MOVE = 1 };

/* CUdevice_attribute */
enum {
    CU_CLOCK_RATE_KHZ = 13,
    CU_SM_COUNT = 16,
    CU_MEMORY_CLOCK_KHZ = 36,
    CU_MEMORY_BUS_BITS = 37,
    CU_L2_BYTES = 38,
    CU_THREADS_PER_SM = 39,
    CU_COMPUTE_MAJOR = 75,
    CU_COMPUTE_MINOR = 76,
    CU_SMEM_PER_SM = 81,
    CU_REGS_PER_SM = 82,
    CU_SMEM_PER_BLOCK_OPTIN = 97,
    CU_BLOCKS_PER_SM = 106,
    CU_SMEM_RESERVED = 111,
};

/* CUfunction_attribute */
enum {
    CU_FUNCTION_SMEM = 1, /* static */
    CU_FUNCTION_MAX_DYNAMIC_SMEM = 8,
};

/* CUtensorMapL2promotion; the 0 of the others says no interleave and zeros out of bounds. */
enum { CU_MAP_PROMOTE_128 = 2, CU_MAP_PROMOTE_256 };

/* CUlaunchAttribute, CUlaunchConfig. */
enum { CU_LAUNCH_COOPERATIVE = 2, CU_LAUNCH_PROGRAMMATIC = 6 };
struct cu_launch_attribute {
    int id;
    char pad[4];
    union {
        uint64_t room[8];
        int on;
    } value;
};
struct cu_launch_config {
    uint32_t grid[3], block[3], smem_bytes;
    fa_stream stream;
    struct cu_launch_attribute *attribute;
    uint32_t attribute_count;
};
_Static_assert(sizeof(struct cu_launch_attribute) == 72 && sizeof(struct cu_launch_config) == 56,
               "as cuda.h has them");

struct cu_uuid {
    unsigned char bytes[16];
};

/* X(member, symbol, arguments): every one returns a cu_result. */
#define CU_FUNCTIONS(X)                                                                            \
    X(init, "cuInit", (unsigned))                                                                  \
    X(driver_version, "cuDriverGetVersion", (int *))                                               \
    X(error_name, "cuGetErrorName", (cu_result, const char **))                                    \
    X(error_text, "cuGetErrorString", (cu_result, const char **))                                  \
    X(count_devices, "cuDeviceGetCount", (int *))                                                  \
    X(device_get, "cuDeviceGet", (cu_device *, int))                                               \
    X(device_name, "cuDeviceGetName", (char *, int, cu_device))                                    \
    X(device_uuid, "cuDeviceGetUuid_v2", (struct cu_uuid *, cu_device))                            \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, cu_device))                           \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (cu_context *, cu_device))                       \
    X(context_current, "cuCtxGetCurrent", (cu_context *))                                          \
    X(context_push, "cuCtxPushCurrent_v2", (cu_context))                                           \
    X(context_pop, "cuCtxPopCurrent_v2", (cu_context *))                                           \
    X(context_id, "cuCtxGetId", (cu_context, unsigned long long *))                                \
    X(context_device, "cuCtxGetDevice", (cu_device *))                                             \
    X(module_load, "cuModuleLoadData", (cu_module *, const void *))                                \
    X(module_unload, "cuModuleUnload", (cu_module))                                                \
    X(module_function, "cuModuleGetFunction", (fa_function *, cu_module, const char *))            \
    X(module_variable, "cuModuleGetGlobal_v2",                                                     \
      (fa_device_ptr *, size_t *, cu_module, const char *))                                        \
    X(function_set, "cuFuncSetAttribute", (fa_function, int, int))                                 \
    X(function_get, "cuFuncGetAttribute", (int *, int, fa_function))                               \
    X(launch, "cuLaunchKernel",                                                                    \
      (fa_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,          \
       fa_stream, void **, void **))                                                               \
    X(memory_alloc, "cuMemAlloc_v2", (fa_device_ptr *, size_t))                                    \
    X(memory_free, "cuMemFree_v2", (fa_device_ptr))                                                \
    X(memory_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                        \
    X(copy_to_device, "cuMemcpyHtoD_v2", (fa_device_ptr, const void *, size_t))                    \
    X(copy_from_device, "cuMemcpyDtoH_v2", (void *, fa_device_ptr, size_t))                        \
    X(copy_on_device, "cuMemcpyDtoDAsync_v2", (fa_device_ptr, fa_device_ptr, size_t, fa_stream))   \
    X(fill8, "cuMemsetD8Async", (fa_device_ptr, unsigned char, size_t, fa_stream))                 \
    X(fill16, "cuMemsetD16Async", (fa_device_ptr, unsigned short, size_t, fa_stream))              \
    X(fill32, "cuMemsetD32Async", (fa_device_ptr, unsigned, size_t, fa_stream))                    \
    X(stream_create, "cuStreamCreate", (fa_stream *, unsigned))                                    \
    X(stream_destroy, "cuStreamDestroy_v2", (fa_stream))                                           \
    X(stream_synchronize, "cuStreamSynchronize", (fa_stream))                                      \
    X(stream_wait, "cuStreamWaitEvent", (fa_stream, fa_event, unsigned))                           \
    X(stream_capturing, "cuStreamIsCapturing", (fa_stream, int *))                                 \
    X(stream_capture, "cuStreamGetCaptureInfo_v2",                                                 \
      (fa_stream, int *, uint64_t *, cu_graph *, const void *, size_t *))                          \
    X(stream_id, "cuStreamGetId", (fa_stream, unsigned long long *))                               \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *))                                  \
    X(user_object_create, "cuUserObjectCreate",                                                    \
      (cu_user_object *, void *, void (*)(void *), unsigned, unsigned))                            \
    X(user_object_release, "cuUserObjectRelease", (cu_user_object, unsigned))                      \
    X(graph_retain, "cuGraphRetainUserObject", (cu_graph, cu_user_object, unsigned, unsigned))     \
    X(event_create, "cuEventCreate", (fa_event *, unsigned))                                       \
    X(event_destroy, "cuEventDestroy_v2", (fa_event))                                              \
    X(event_record, "cuEventRecord", (fa_event, fa_stream))                                        \
    X(event_query, "cuEventQuery", (fa_event))                                                     \
    X(event_synchronize, "cuEventSynchronize", (fa_event))                                         \
    X(event_elapsed, "cuEventElapsedTime", (float *, fa_event, fa_event))                          \
    X(launch_with, "cuLaunchKernelEx",                                                             \
      (const struct cu_launch_config *, fa_function, void **, void **))                            \
    X(profiler_start, "cuProfilerStart", (void))                                                   \
    X(profiler_stop, "cuProfilerStop", (void))                                                     \
    X(tensor_map_encode, "cuTensorMapEncodeTiled",                                                 \
      (void *, int, uint32_t, fa_device_ptr, const uint64_t *, const uint64_t *, const uint32_t *, \
       const uint32_t *, int, int, int, int))

enum { FA_MAX_DEVICES = 64 };

struct fa_driver {
    void *library;
    char path[4096];
    int references; /* guarded by the open lock */
    int version;
    int device_count;
    cu_context kept[FA_MAX_DEVICES]; /* primary context that is retained for good; atomic access */
#define CU_MEMBER(member, symbol, arguments) cu_result(*member) arguments;
    CU_FUNCTIONS(CU_MEMBER)
#undef CU_MEMBER
};

struct fa_module {
    fa_driver *driver;
    cu_module module;
    cu_context context; /* that it is loaded in */
    unsigned long long context_id;
    pthread_mutex_t entered; /* held between fa_module_enter() and fa_module_leave() */
    bool captured;           /* the stream that entered is */
    fa_event left;  /* recorded by the last that left and was not captured; NULL: none was */
    fa_buf mangled; /* the symbols of its kernels and variables of C++ linkage, each with its NUL */
};

/* True in a process that was forked from one that had opened the driver. A load, no system call. */
bool fa_driver_forked(void);
/* Whether this context is still there. Where it has gone, so have its modules and all its memory, and
 * their handles and addresses may be somebody else's. */
bool fa_driver_context_lives(const fa_driver *driver, cu_context context, unsigned long long id);
/* 0 for CU_OK; else notes the result and fails with "CALL gave NAME (number): text" after the doing. 209 gives
 * FA_ENOTSUP, everything else FA_ECUDA. */
int fa_driver_fail(const fa_driver *driver, cu_result result, const char *call, fa_diag *diag,
                   const char *format, ...) __attribute__((cold, format(printf, 5, 6)));
int fa_driver_fail_forked(fa_diag *diag) __attribute__((cold));
#define FA_RETURN_IF_FORKED(diag) FA_OR_RETURN(fa_driver_forked() ? fa_driver_fail_forked(diag) : 0)
/* 0 when `call`, a call of the driver, answers CU_OK; else its failure with a sentence. In a forked child nothing is
 * called. */
#define FA_DRIVER_CALL(driver, diag, call, name, ...) \
    (fa_driver_forked() ? fa_driver_fail_forked(diag) \
                        : fa_driver_fail(driver, call, name, diag, __VA_ARGS__))

#endif
