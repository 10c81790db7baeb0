/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's contexts and streams for callers that link no CUDA.
 *
 * Workload: fa_enter_device() before each call of an attention layer: one driver call where the context is
 * right, as it nearly always is.
 */
#include "driver.h"
#include "error.h"
#include "session.h"

/* The driver of the tuner, opened where it has not been. */
static int take_driver(fa_tuner *tuner, fa_driver **ret_driver, fa_diag *diag)
{
    int rc = fa_tuner_check(tuner, diag);
    if (rc != 0)
        return rc;
    *ret_driver = atomic_load_explicit(&tuner->launch_driver, memory_order_acquire);
    if (*ret_driver != NULL)
        return 0;
    pthread_mutex_lock(&tuner->work);
    rc = fa_tuner_driver(tuner, diag);
    *ret_driver = tuner->driver;
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

int fa_enter_device(fa_tuner *tuner, int32_t ordinal, bool *ret_entered, fa_diag *diag)
{
    fa_driver *driver = NULL;
    int rc = ret_entered == NULL ? fa_fail(diag, FA_EINVAL, "ret_entered is NULL")
                                 : take_driver(tuner, &driver, diag);
    if (rc != 0)
        return rc;
    *ret_entered = false;
    if (fa_driver_is_on(driver, ordinal))
        return 0;
    rc = fa_driver_enter(driver, ordinal, diag);
    *ret_entered = rc == 0;
    return rc;
}

void fa_leave_device(fa_tuner *tuner)
{
    fa_driver *driver = NULL;
    if (take_driver(tuner, &driver, NULL) == 0)
        fa_driver_leave(driver);
}

int fa_stream_is_captured(fa_tuner *tuner, void *stream, bool *ret_captured, fa_diag *diag)
{
    fa_driver *driver = NULL;
    int rc = ret_captured == NULL ? fa_fail(diag, FA_EINVAL, "ret_captured is NULL")
                                  : take_driver(tuner, &driver, diag);
    return rc == 0 ? fa_stream_captured(driver, stream, ret_captured, diag) : rc;
}

int fa_wait_for_stream(fa_tuner *tuner, void *stream, fa_diag *diag)
{
    fa_driver *driver = NULL;
    int rc = take_driver(tuner, &driver, diag);
    return rc == 0 ? fa_stream_synchronize(driver, stream, diag) : rc;
}
