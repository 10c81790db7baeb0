/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of a fleet's queue and of those who work on it.
 */
#include "options_table.h"

const cli_option_spec cli_options_fleet[] = {
    {"--enqueue", CLI_GROUP_SWEEP, KIND_FLAG, CLI_AT(fleet.enqueue), 0, 0, NULL, NULL,
     "enter the sweep into the fleet's queue for its workers, and return"},
    {"--once", CLI_GROUP_WORKER, KIND_FLAG, CLI_AT(fleet.once), 0, 0, NULL, NULL,
     "end after one problem"},
    {"--idle-exit", CLI_GROUP_WORKER, KIND_SECONDS, CLI_AT(fleet.idle_exit_s), 0, 31536000, NULL,
     "TIME", "end when there was nothing to do for so long: 90s, 30m, 2h (never)"},
    {"--follow", CLI_GROUP_QUEUE, KIND_FLAG, CLI_AT(fleet.follow), 0, 0, NULL, NULL,
     "tell how it goes on until nothing is left to do"},
    {"--stop", CLI_GROUP_QUEUE, KIND_TEXT, CLI_AT(fleet.stop), 0, 0, NULL, "KEY",
     "take this sweep out of the workers' hands until it is enqueued again"},
};
const size_t cli_options_fleet_count = sizeof cli_options_fleet / sizeof *cli_options_fleet;
