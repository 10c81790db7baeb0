/* SPDX-License-Identifier: Apache-2.0 */
#include "remote.h"
#include "session.h"
#include "system_bundles.h"

static int make(fa_tuner *tuner, const fa_options *options, fa_diag *diag)
{
    int rc = fa_service_make(options, &tuner->service, diag);
    return rc != 0 ? rc : fa_system_make(tuner, &tuner->system, diag);
}

int fa_open(const fa_options *options, fa_tuner **ret_tuner, fa_diag *diag)
{
    return fa_session_open(options, make, ret_tuner, diag);
}
