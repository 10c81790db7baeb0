/* SPDX-License-Identifier: Apache-2.0
 *
 * The stages of the queue, as they are stored.
 */
#ifndef FA_DB_QUEUE_H
#define FA_DB_QUEUE_H

#include "store.h"

extern const char *const fa_db_stage_names[]; /* by fa_queue_stage */

#endif
