/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations as people type them.
 */
#include "check.h"

#include "wording.h"

static const double day = 86400;

static void a_number_and_its_unit_are_seconds_and_a_number_alone_is_too(void)
{
    static const struct {
        const char *text;
        double seconds;
    } taken[] = {{"90", 90},    {"90s", 90},  {"30m", 1800}, {"2h", 7200},
                 {"1d", 86400}, {"1.5m", 90}, {".5", 0.5}};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        double seconds = 0;
        CHECK(fa_duration_parse(taken[i].text, day, &seconds));
        CHECK(fabs(seconds - taken[i].seconds) < 1e-9);
    }
}

static void what_is_no_time_within_the_bounds_is_refused_and_changes_nothing(void)
{
    static const char *const refused[] = {
        "",    "s",   "0",  "0s",  "-5",    "+5",
        " 5",  "5 s", "5x", "5ms", "1.2.3", "1e3",
        "nan", "inf", "2d", "25h", "86401", "99999999999999999999999999999999h"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        double seconds = 7;
        CHECK(!fa_duration_parse(refused[i], day, &seconds));
        CHECK(seconds == 7);
    }
}

int main(void)
{
    TEST(a_number_and_its_unit_are_seconds_and_a_number_alone_is_too);
    TEST(what_is_no_time_within_the_bounds_is_refused_and_changes_nothing);
    return check_done();
}
