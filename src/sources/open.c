/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a session: the sources of winners, in the order in which they are asked. A service is asked before the local
 * store and tuner.
 */
#include "remote.h"
#include "session.h"
#include "system_bundles.h"

int fa_open(const fa_options *options, fa_tuner **ret_tuner, fa_diag *diag)
{
    static fa_source_maker *const makers[] = {fa_service_make, fa_system_make};
    return fa_session_open(options, makers, sizeof makers / sizeof *makers, ret_tuner, diag);
}
