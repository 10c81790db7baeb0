/* SPDX-License-Identifier: Apache-2.0
 *
 * A device's primary context, current from hold_context() to drop_context(), which ends it where nobody else holds it.
 */
#ifndef FA_TESTS_DEVICE_CONTEXT_H
#define FA_TESTS_DEVICE_CONTEXT_H

#include "driver_api.h"

#include <dlfcn.h>

static inline int hold_context(fa_driver *driver, int ordinal, fa_diag *diag)
{
    cu_context context = NULL;
    cu_result result = driver->primary_retain(&context, ordinal);
    if (result == CU_OK)
        result = driver->context_push(context);
    return fa_driver_fail(driver, result, "a test's context", diag, "opening device %d", ordinal);
}

static inline void drop_context(fa_driver *driver, int ordinal)
{
    cu_context context = NULL;
    cu_result (*release)(cu_device);
    *(void **)&release = dlsym(driver->library, "cuDevicePrimaryCtxRelease_v2");
    driver->context_pop(&context);
    release(ordinal);
}

static inline void *current_context(fa_driver *driver)
{
    cu_context context = NULL;
    return driver->context_current(&context) == CU_OK ? context : NULL;
}

#endif
