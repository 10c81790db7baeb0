/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of many winners a command line means: those on the GPU type that --gpu names, and of
 * problems that agree in every option that was given (CLI_GROUP_FILTER).
 */
#ifndef FA_CLI_FILTER_H
#define FA_CLI_FILTER_H

#include "options.h"

/* Whether both name one GPU type ("NVIDIA L4" is "L4"); also when `asked` is NULL. */
bool cli_gpu_is(const char *asked, const char *name);
bool cli_filter_keeps(const cli_options *options, const fa_problem *problem, const char *gpu);

#endif
