/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tunables move a bound, read off spaces that are made up here.
 */
#include "check.h"

#include "job.h"

#include <string.h>

enum { MOST = 8 };

static fa_trial trial_of(int32_t block, int32_t stages, int32_t warps)
{
    fa_trial trial = {.status = FA_STATUS_COMPILED,
                      .threads = 32 * warps,
                      .smem_bytes = 256 * block * stages,
                      .blocks_per_sm = 2,
                      .grid = {(uint32_t)(4096 / block), 1, 1}};
    trial.config = (fa_config){.family = "f",
                               .count = 3,
                               .tunable = {{"BLOCK", block}, {"STAGES", stages}, {"WARPS", warps}}};
    return trial;
}

static fa_profile profile_of(const fa_trial *trial)
{
    fa_profile profile = {.config = trial->config, .launch_count = 1};
    profile.launch[0] = (fa_profile_launch){.kernel = "k", .time_us = 1, .busy = 100, .memory = 90};
    return profile;
}

static void a_tunable_that_changes_the_grid_moves_what_memory_bounds(void)
{
    const fa_trial space[] = {trial_of(64, 2, 4), trial_of(128, 2, 4), trial_of(64, 3, 4),
                              trial_of(64, 2, 8)};
    fa_profile profile = profile_of(&space[0]);
    fa_bound_tell(&profile, space, 4);
    CHECK_INT(profile.bound, FA_BOUND_MEMORY);
    CHECK_TEXT(
        profile.sentence,
        "k is bound by the GPU's memory (90% of the peak); the tile of a block moves that: BLOCK");
}

static void the_tile_of_a_persistent_kernel_shows_in_its_shared_memory(void)
{
    fa_trial space[] = {trial_of(64, 2, 4), trial_of(128, 2, 4), trial_of(64, 3, 4),
                        trial_of(64, 2, 8)};
    for (int i = 0; i < 4; i++)
        space[i].grid[0] = 132;
    space[0].median_us = 10; /* STAGES has the larger effect */
    space[1].median_us = 11;
    space[2].median_us = 15;
    fa_profile profile = profile_of(&space[0]);
    fa_bound_tell(&profile, space, 4);
    CHECK_HAS(profile.sentence, "; the size of its tiles in shared memory moves that: STAGES, BLOCK");
    CHECK(strstr(profile.sentence, "WARPS") == NULL);
}

/* PERSISTENT sets the grid to the GPU's number of SMs, for which BLOCK and MIN_BLOCKS change nothing of the tile. */
static fa_trial scheduled(int32_t block, int32_t persistent, int32_t min_blocks)
{
    fa_trial trial = trial_of(block, 2, 4);
    trial.blocks_per_sm = min_blocks;
    if (persistent)
        trial.grid[0] = (uint32_t)(4 * min_blocks);
    trial.config.tunable[1] = (fa_tunable){"PERSISTENT", persistent};
    trial.config.tunable[2] = (fa_tunable){"MIN_BLOCKS", min_blocks};
    return trial;
}

static void how_blocks_are_scheduled_is_no_tile(void)
{
    for (int32_t persistent = 0; persistent < 2; persistent++) {
        fa_trial space[] = {scheduled(64, persistent, 1), scheduled(128, persistent, 1),
                            scheduled(64, !persistent, 1), scheduled(64, persistent, 2)};
        space[0].median_us = 10; /* scheduling has the larger effect */
        space[1].median_us = 11;
        space[2].median_us = space[3].median_us = 20;
        space[3].blocks_per_sm = 0; /* it was not compiled */
        fa_profile profile = profile_of(&space[0]);
        profile.gpu.sm_count = 4;
        fa_bound_tell(&profile, space, 4);
        CHECK_HAS(profile.sentence, persistent
                                        ? "; the size of its tiles in shared memory moves that: BLOCK"
                                        : "; the tile of a block moves that: BLOCK");
        CHECK(strstr(profile.sentence, "PERSISTENT") == NULL);
        CHECK(strstr(profile.sentence, "MIN_BLOCKS") == NULL);
        profile.launch[0].busy = 50;
        fa_bound_tell(&profile, space, 4);
        CHECK_HAS(profile.sentence, "; the number of blocks moves that: ");
        CHECK_HAS(profile.sentence, "PERSISTENT");
    }
}

static void barriers_in_shared_memory_are_no_tile(void)
{
    fa_trial space[] = {trial_of(64, 2, 4), trial_of(128, 2, 4), trial_of(64, 2, 8)};
    for (int i = 0; i < 3; i++)
        space[i].grid[0] = 132;
    space[2].smem_bytes += 64;
    fa_profile profile = profile_of(&space[0]);
    fa_bound_tell(&profile, space, 3);
    CHECK_HAS(profile.sentence, " moves that: BLOCK");
    CHECK(strstr(profile.sentence, "WARPS") == NULL);
}

static void tunables_that_only_change_together_are_both_named(void)
{
    const fa_trial space[] = {trial_of(64, 2, 4), trial_of(128, 2, 8), trial_of(128, 3, 8)};
    fa_profile profile = profile_of(&space[0]);
    fa_bound_tell(&profile, space, 3);
    CHECK_HAS(profile.sentence, "the tile of a block moves that: BLOCK, WARPS, STAGES");
    fa_bound_tell(&profile, space, 2); /* nothing is known of other STAGES */
    CHECK_HAS(profile.sentence, "the tile of a block moves that: BLOCK, WARPS");
}

static void impossible_configs_and_other_families_say_nothing(void)
{
    fa_trial space[] = {trial_of(64, 2, 4), trial_of(128, 2, 4), trial_of(32, 2, 4)};
    space[1].threads = space[1].smem_bytes = 0;
    strcpy(space[2].config.family, "g");
    fa_profile profile = profile_of(&space[0]);
    fa_bound_tell(&profile, space, 3);
    CHECK_HAS(profile.sentence, "; no tunable of its space moves that");
    fa_bound_tell(&profile, space, 0);
    CHECK_HAS(profile.sentence, "; no tunable of its space moves that");
}

static void what_was_not_counted_is_no_bound(void)
{
    const fa_trial space[] = {trial_of(64, 2, 4)};
    fa_profile profile = profile_of(&space[0]);
    profile.launch[0] =
        (fa_profile_launch){.kernel = "k", -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, {{{0}, 0}}};
    profile.launch[1] = profile.launch[0];
    profile.launch_count = 2;
    fa_bound_tell(&profile, space, 1);
    CHECK_INT(profile.bound, FA_BOUND_UNKNOWN);
    CHECK_HAS(profile.sentence, "k has a bound that cannot be told");
    strcpy(profile.launch[0].stall[0].reason, "not_selected");
    strcpy(profile.launch[0].stall[1].reason, "a_new_reason");
    profile.launch[0].l2 = 10;
    fa_bound_tell(&profile, space, 1);
    CHECK_INT(profile.bound, FA_BOUND_LATENCY);
    CHECK_HAS(profile.sentence,
              "is bound by waits (a_new_reason 0.0, and no unit reaches 60% of its peak)");
}

int main(void)
{
    TEST(a_tunable_that_changes_the_grid_moves_what_memory_bounds);
    TEST(the_tile_of_a_persistent_kernel_shows_in_its_shared_memory);
    TEST(how_blocks_are_scheduled_is_no_tile);
    TEST(barriers_in_shared_memory_are_no_tile);
    TEST(tunables_that_only_change_together_are_both_named);
    TEST(impossible_configs_and_other_families_say_nothing);
    TEST(what_was_not_counted_is_no_bound);
    return check_done();
}
