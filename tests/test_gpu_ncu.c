/* SPDX-License-Identifier: Apache-2.0
 *
 * ncu's log as figures: a recorded one, and what may stand in its place.
 */
#include "check.h"

#include "ncu.h"

#include <stdlib.h>
#include <string.h>

static const char header[] =
    "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\","
    "\"sm__inst_issued.avg.pct_of_peak_sustained_active\","
    "\"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio\"\n";

static int read_text(const char *text, int count, fa_profile_launch *launch, fa_diag *diag)
{
    fa_ncu_metrics unknown;
    return fa_ncu_read(text, strlen(text), count, 0, launch, &unknown, diag);
}

/* A launch of a log with one row of these values, in microseconds by its units. */
static fa_profile_launch row(const char *time, const char *share, const char *stall)
{
    fa_profile_launch launch = {.time_us = -2};
    fa_diag diag;
    char text[1024];
    snprintf(text, sizeof text,
             "%s\"\",\"\",\"us\",\"%%\",\"\"\n\"0\",\"k\",\"%s\",\"%s\",\"%s\"\n", header, time,
             share, stall);
    return read_text(text, 1, &launch, &diag) == 0 ? launch : (fa_profile_launch){.time_us = -2};
}

static void a_recorded_log_is_read(void)
{
    char path[512];
    fa_buf log = {0};
    fa_profile_launch launch = {0};
    fa_ncu_metrics unknown;
    snprintf(path, sizeof path, "%s/tests/data/ncu-attn_fwd.csv", getenv("FA_TEST_SOURCE"));
    CHECK_INT(fa_buf_read_file(&log, path, 1 << 20), 0);
    CHECK_INT(fa_ncu_read(log.data, log.size, 1, 0, &launch, &unknown, NULL), 0);
    CHECK(launch.time_us > 141.663 && launch.time_us < 141.665);
    CHECK(launch.tensor == 66.94 && launch.special == 35.2 && launch.issue == 34.83);
    CHECK(launch.shared == 42.43 && launch.l2 == 63 && launch.memory == 54.25);
    CHECK(launch.busy > 94 && launch.busy < 95);
    CHECK(launch.occupancy == 14.04);
    CHECK(launch.conflicts > 0.16 && launch.conflicts < 0.17);
    CHECK_TEXT(launch.stall[0].reason, "wait");
    CHECK_TEXT(launch.stall[1].reason, "long_scoreboard");
    CHECK_TEXT(launch.stall[2].reason, "barrier");
    CHECK(launch.stall[0].warps == 2.18 && launch.stall[2].warps == 0.59);
    fa_buf_free(&log);
}

static void numbers_are_read_as_any_locale_writes_them(void)
{
    static const struct {
        const char *text;
        double value;
    } numbers[] = {{"1234.5", 1234.5},
                   {"1,234.5", 1234.5},
                   {"1.234,5", 1234.5},
                   {"1 234,5", 1234.5},
                   {"1\xc2\xa0"
                    "234,5",
                    1234.5},
                   {"1\xe2\x80\xaf"
                    "234,5",
                    1234.5},
                   {"1'234.5", 1234.5},
                   {"1,234", 1234},
                   {"1,234,567", 1234567},
                   {"1.234.567", 1234567},
                   {"12,5", 12.5},
                   {"1.25e3", 1250},
                   {"0", -1} /* no launch takes no time */};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double time_us = row(numbers[i].text, "1", "1").time_us;
        CHECK(time_us > numbers[i].value - 1e-6 && time_us < numbers[i].value + 1e-6);
    }
}

static void what_is_no_number_is_not_counted(void)
{
    static const char *const none[] = {"n/a",  "",   "-1", "nan",     "inf", "1e999", "12x",
                                       "0x10", "--", "e",  "(!) nan", "1e",  "400"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(row("1", none[i], "1").issue < 0);
    CHECK_TEXT(row("1", "1", "n/a").stall[0].reason, "");
    CHECK(row("n/a", "5", "1").issue > 4.9);
    CHECK(row("1", "1", "1").tensor < 0); /* it has no column */
}

static void times_have_their_unit(void)
{
    static const struct {
        const char *unit;
        double us;
    } units[] = {{"ns", 0.05},     {"nsecond", 0.05}, {"us", 50},
                 {"msecond", 5e4}, {"s", 5e7},        {"fortnight", -1}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        fa_profile_launch launch;
        char text[1024];
        snprintf(text, sizeof text,
                 "%s\"\",\"\",\"%s\",\"\",\"\"\n\"0\",\"k\",\"50\",\"1\",\"1\"\n", header,
                 units[i].unit);
        CHECK_INT(read_text(text, 1, &launch, NULL), 0);
        CHECK(launch.time_us > units[i].us - 1e-6 && launch.time_us < units[i].us + 1e-6);
    }
}

static void what_ncu_refuses_has_a_sentence(void)
{
    fa_profile_launch launch;
    fa_diag diag;
    CHECK_INT(read_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", 1,
                        &launch, &diag),
              FA_ENOTSUP);
    CHECK_HAS(diag.text, "NVreg_RestrictProfilingToAdminUsers=0");
    CHECK_INT(read_text("==WARNING== Note: Running with unmodified GPU clocks.\n"
                        "==PROF== Connected to process 1489 (/usr/bin/python3.12)\n"
                        "==WARNING== No kernels were profiled.\n"
                        "==WARNING== Profiling kernels launched by child processes requires the "
                        "--target-processes all option.\nAvailable Kernels:\n1. attn_fwd\n",
                        1, &launch, &diag),
              FA_EWORKER);
    CHECK_HAS(diag.text, "No kernels were profiled");
    CHECK_INT(read_text("==WARNING== a\n==ERROR== b\n==ERROR== c\n", 1, &launch, &diag),
              FA_EWORKER);
    CHECK_HAS(diag.text, "==ERROR== b");
    CHECK_INT(read_text("", 1, &launch, &diag), FA_EWORKER);
    CHECK_INT(read_text(header, 1, &launch, &diag), FA_EWORKER);
}

static void metrics_that_ncu_does_not_know_are_named_once(void)
{
    static const char text[] = "==ERROR== Failed to find metric sm__cycles_active.avg\n";
    fa_profile_launch launch;
    fa_ncu_metrics unknown = 0;
    fa_buf names = {0};
    CHECK_INT(fa_ncu_read(text, strlen(text), 1, 0, &launch, &unknown, NULL), FA_EVERSION);
    CHECK(unknown != 0);
    fa_ncu_names(unknown, &names);
    CHECK(strstr(names.data, "sm__cycles_active.avg") == NULL);
    CHECK_HAS(names.data, "gpu__time_duration.sum,gpc__cycles_elapsed.max,");
    CHECK_INT(fa_ncu_read(text, strlen(text), 1, unknown, &launch, &unknown, NULL), FA_EWORKER);
    fa_buf_free(&names);
}

static void other_launches_than_those_of_the_config_are_refused(void)
{
    fa_profile_launch launch[FA_PROFILE_LAUNCHES] = {{.time_us = -2}};
    fa_buf text = {0};
    fa_buf_text(&text, header);
    for (int i = 1; i <= 6; i++) {
        fa_buf_printf(&text, "\"%d\",\"k\",\"1\",\"1\",\"1\"\n", i);
        CHECK_INT(read_text(text.data, i % 4 + 1, launch, NULL), FA_ECORRUPT);
    }
    CHECK(launch[0].time_us == -2);
    fa_buf_free(&text);
}

/* Each beginning of a log, in memory that ends where it ends. */
static void a_log_may_end_anywhere(void)
{
    char path[512];
    fa_buf log = {0};
    snprintf(path, sizeof path, "%s/tests/data/ncu-attn_fwd.csv", getenv("FA_TEST_SOURCE"));
    CHECK_INT(fa_buf_read_file(&log, path, 1 << 20), 0);
    for (size_t size = 0; size < log.size; size++) {
        fa_profile_launch launch;
        fa_ncu_metrics unknown;
        char *cut = malloc(size + 1);
        char *text = memcpy(cut + 1, log.data, size); /* nothing behind it */
        int rc = fa_ncu_read(text, size, 1, 0, &launch, &unknown, NULL);
        CHECK(rc == 0 || rc == FA_EWORKER);
        free(cut);
    }
    fa_buf_free(&log);
}

int main(void)
{
    TEST(a_recorded_log_is_read);
    TEST(numbers_are_read_as_any_locale_writes_them);
    TEST(what_is_no_number_is_not_counted);
    TEST(times_have_their_unit);
    TEST(what_ncu_refuses_has_a_sentence);
    TEST(metrics_that_ncu_does_not_know_are_named_once);
    TEST(other_launches_than_those_of_the_config_are_refused);
    TEST(a_log_may_end_anywhere);
    return check_done();
}
