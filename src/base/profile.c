/* SPDX-License-Identifier: Apache-2.0 */

#include "error.h"
#include "json.h"
#include "trial.h"

#include <string.h>

#define FA_BOUND_NAME(name, value, text) [value] = (text),
static const char *const bound_names[] = {FA_BOUNDS(FA_BOUND_NAME) NULL};

#define FIGURE(words, member)                       \
    {                                               \
        words, offsetof(fa_profile_launch, member), \
    }
const fa_profile_figure fa_profile_figures[FA_PROFILE_FIGURES] = {
    FIGURE("SMs busy", busy),
    FIGURE("tensor cores", tensor),
    FIGURE("special functions", special),
    FIGURE("issue slots", issue),
    FIGURE("shared memory", shared),
    FIGURE("L2", l2),
    FIGURE("memory", memory),
    FIGURE("occupancy", occupancy),
    FIGURE("bank conflicts", conflicts),
};

double fa_profile_figure_of(const fa_profile_launch *launch, int figure)
{
    double value;
    memcpy(&value, (const char *)launch + fa_profile_figures[figure].offset, sizeof value);
    return value;
}

/* ---- one launch -----------------------------------------------------------------------------*/
static cJSON *write_stalls(const void *stalls)
{
    const fa_profile_stall *stall = stalls;
    cJSON *object = cJSON_CreateObject();
    for (int i = 0; i < FA_PROFILE_STALLS && stall[i].reason[0] != 0; i++)
        fa_json_add_number(object, stall[i].reason, stall[i].warps);
    return object;
}

static int read_stalls(const cJSON *json, void *ret_stalls, fa_diag *diag)
{
    fa_profile_stall stall[FA_PROFILE_STALLS] = {{{0}, 0}};
    int count = 0;
    const cJSON *item;
    cJSON_ArrayForEach (item, json) {
        if (count == FA_PROFILE_STALLS || item->string == NULL || item->string[0] == 0 ||
            strlen(item->string) >= FA_NAME_MAX || !cJSON_IsNumber(item))
            return fa_fail(diag, FA_EINVAL, "profile: its stalls are not named numbers");
        memcpy(stall[count].reason, item->string, strlen(item->string) + 1);
        stall[count++].warps = item->valuedouble;
    }
    memcpy(ret_stalls, stall, sizeof stall);
    return 0;
}

#define SHARE(name, member) \
    FA_MEMBER(name, NUMBER, fa_profile_launch, member, .rules = FA_MEMBER_MINUS)
static const fa_member launch_members[] = {
    FA_MEMBER("kernel", TEXT, fa_profile_launch, kernel),
    SHARE("time_us", time_us),
    SHARE("sm_busy_percent", busy),
    SHARE("tensor_percent", tensor),
    SHARE("special_percent", special),
    SHARE("issue_percent", issue),
    SHARE("shared_percent", shared),
    SHARE("l2_percent", l2),
    SHARE("memory_percent", memory),
    SHARE("occupancy_percent", occupancy),
    SHARE("bank_conflict_percent", conflicts),
    FA_MEMBER("stalls", OTHER, fa_profile_launch, stall, .write = write_stalls,
              .read = read_stalls),
    {.key = NULL},
};

/* ---- all of them ----------------------------------------------------------------------------*/
static const fa_member profile_members[] = {
    FA_CONFIG_MEMBER(fa_profile, config),
    FA_MEMBER("longest", COUNT, fa_profile, longest, .most = FA_PROFILE_LAUNCHES - 1),
    FA_MEMBER("bound", CHOICE, fa_profile, bound, .names = bound_names),
    FA_MEMBER("sentence", TEXT, fa_profile, sentence),
    FA_MEMBER("driver_version", COUNT, fa_profile, driver_version),
    FA_MEMBER("unix_time", COUNT64, fa_profile, unix_time),
    {.key = NULL},
};

cJSON *fa_profile_to_json(const fa_profile *profile)
{
    cJSON *json = fa_struct_to_json(profile_members, profile);
    cJSON *launches = fa_json_add_array(json, "launches");
    for (int i = 0; i < profile->launch_count; i++)
        fa_json_push(launches, fa_struct_to_json(launch_members, &profile->launch[i]));
    return json;
}

int fa_profile_from_json(const cJSON *json, fa_profile *ret_profile, fa_diag *diag)
{
    fa_profile profile = {.size = sizeof profile};
    const cJSON *launches = cJSON_GetObjectItemCaseSensitive(json, "launches"), *item;
    int count = cJSON_GetArraySize(launches);
    int rc = fa_struct_from_json(json, profile_members, &profile, "profile", diag);
    if (rc == 0 && (!cJSON_IsArray(launches) || count < 1 || count > FA_PROFILE_LAUNCHES ||
                    profile.longest >= count))
        rc = fa_fail(diag, FA_EINVAL, "profile: \"launches\" are not 1 to %d", FA_PROFILE_LAUNCHES);
    cJSON_ArrayForEach (item, launches) {
        if (rc == 0)
            rc = fa_struct_from_json(item, launch_members, &profile.launch[profile.launch_count++],
                                     "profile", diag);
    }
    if (rc == 0)
        *ret_profile = profile;
    return rc;
}
