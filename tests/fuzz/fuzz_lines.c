/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of JSON lines: a sweep's plan, baselines, records. The first byte chooses.
 */
#include "fuzz.h"

#include "options.h"
#include "bundle_files.h"

long fuzz_taken;

static void read_plan(const char *path)
{
    const cli_options options = {.request.effort = FA_EFFORT_MEASURE,
                                 .sweep = {.gpu = "L4,H200", .plan = path}};
    cli_grid grid = {0};
    fa_diag why = {{0}};
    int rc = cli_grid_make(&options, &grid, &why);
    fuzz_taken += rc == 0;
    FUZZ_CHECK(rc == 0 || why.text[0] != 0);
    for (int32_t i = 0; rc == 0 && i < grid.count; i++)
        FUZZ_CHECK(fa_problem_check(&grid.item[i].problem, NULL) == 0);
    cli_grid_free(&grid);
}

static void read_records(const char *path)
{
    fa_lines lines = {0};
    fa_diag why = {{0}};
    const fa_import_options source = {.file = path};
    int rc = fa_lines_read(&source, &lines, &why);
    FUZZ_CHECK(rc == 0 || why.text[0] != 0);
    fuzz_taken += rc == 0;
    for (size_t i = 0; rc == 0 && i < lines.count; i++)
        FUZZ_CHECK(lines.line[i].answer.gpu.sm > 0 &&
                   fa_problem_check(&lines.line[i].answer.problem, NULL) == 0);
    if (rc == 0)
        fa_lines_free(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *path = fuzz_file(data + 1, size - 1);
    if (data[0] == 'p')
        read_plan(path);
    else if (data[0] == 'b' || data[0] == 'r') /* baselines, winners */
        read_records(path);
    return 0;
}
