/* SPDX-License-Identifier: Apache-2.0
 *
 * What options and environment say, without opening anything.
 */
#ifndef FA_ENGINE_OPTIONS_H
#define FA_ENGINE_OPTIONS_H

#include "fa_tune.h"

#include "store.h"

int fa_options_copy(const fa_options *options, fa_options *ret_options, fa_diag *diag);
const char *fa_options_templates(const fa_options *options); /* NULL: built-in only */
int fa_options_worker(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
int fa_options_store(const fa_options *options, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
const char *fa_options_fleet(const fa_options *options); /* "": no fleet's store */
int fa_usable_cores(void); /* by affinity and a container's quota: 1 to FA_WORKERS_MAX */

#endif
