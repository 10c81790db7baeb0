/* SPDX-License-Identifier: Apache-2.0
 *
 * Recorded spaces: cache files of Kernel Tuner and T4. What is taken has points and an optimum.
 */
#include "fuzz.h"

#include "walk.h"

long fuzz_taken;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fa_recorded recorded;
    fa_diag why = {{0}};
    int rc = fa_recorded_read(fuzz_file(data, size), &recorded, &why);
    FUZZ_CHECK(rc == 0 || why.text[0] != 0);
    if (rc != 0)
        return 0;
    fuzz_taken++;
    FUZZ_CHECK(recorded.about.points > 0 && recorded.about.optimum > 0);
    fa_recorded_free(&recorded);
    return 0;
}
