/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of ncu. Of what is taken, each figure is a share or was not counted, and stalls come largest first.
 */
#include "fuzz.h"

#include "ncu.h"
#include "trial.h"

long fuzz_taken;

static void check(const fa_profile_launch *launch)
{
    FUZZ_CHECK(launch->time_us > 0 || launch->time_us == -1);
    for (int i = 0; i < FA_PROFILE_FIGURES; i++) {
        double share = fa_profile_figure_of(launch, i);
        FUZZ_CHECK(share == -1 || (share >= 0 && share <= 100));
    }
    for (int i = 1; i < FA_PROFILE_STALLS; i++)
        FUZZ_CHECK(launch->stall[i].warps <= launch->stall[i - 1].warps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fa_profile_launch launch[FA_PROFILE_LAUNCHES];
    fa_ncu_metrics unknown = 0;
    fa_diag why = {{0}};
    int rc = fa_ncu_read((const char *)data, size, 1, 0, launch, &unknown, &why);
    FUZZ_CHECK(rc == 0 || why.text[0] != 0);
    FUZZ_CHECK((rc == FA_EVERSION) == (unknown != 0));
    if (rc != 0)
        return 0;
    fuzz_taken++;
    check(&launch[0]);
    return 0;
}
