/* SPDX-License-Identifier: Apache-2.0
 *
 * What a caller that links no CUDA itself needs around a launch: a device's context, what is loaded in
 * it already, and whether a stream is being captured. Part of fa_tune.h. Safe to call from any thread.
 */
#ifndef FA_DEVICE_H
#define FA_DEVICE_H

#include "fa_tune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes sure that the calling thread's current context is one of the device. Where it is not, or where
 * there is none, the device's primary context is made current, *ret_entered is true, and one
 * fa_leave_device() on this thread is owed. That context stays retained until the process ends, as it
 * is shared with everybody else in the process. Opens the driver on the first call. */
FA_API int fa_enter_device(fa_tuner *tuner, int32_t ordinal, bool *ret_entered, fa_diag *diag);
FA_API void fa_leave_device(fa_tuner *tuner);

/* The kernel that fa_get_best_kernel() would find in this process: nothing is read, loaded, tuned or
 * allocated, so it may be called while a stream is captured. FA_ENOTFOUND, without a sentence: there
 * is none. Any effort but PATIENT. */
FA_API int fa_get_loaded_kernel(fa_tuner *tuner, const fa_problem *problem, fa_effort effort,
                                const fa_kernel **ret_kernel, fa_diag *diag);
/* The CUDA ordinal of the device that the kernel is loaded on: that of the context which was current when the
 * kernel was asked for. */
FA_API int32_t fa_kernel_device(const fa_kernel *kernel);

/* Whether work on the stream (a CUstream; NULL: the default stream) is captured into a graph now. */
FA_API int fa_stream_is_captured(fa_tuner *tuner, void *stream, bool *ret_captured, fa_diag *diag);
/* Waits until all that was enqueued on the stream has ended. */
FA_API int fa_wait_for_stream(fa_tuner *tuner, void *stream, fa_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
