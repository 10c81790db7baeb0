/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests of several launches, and of features that a family takes: what is read, and what is refused.
 */
#include "family.h"
#include "tuner_fixture.h"

/* The whole manifest of two launches: what stands in `launches` and `beside` it. */
static int load_launches(const char *launches, const char *beside, fa_diag *diag, int *ret_count)
{
    tuner_fixture f;
    char text[4000];
    snprintf(
        text, sizeof text,
        "{\"name\": \"small\", \"operation\": \"attn_fwd\", \"sm\": {\"min\": 80, \"max\": 90},"
        " \"tune\": {\"BLOCK_M\": [64, 128]}, \"default\": {\"BLOCK_M\": 64},"
        " \"launches\": %s%s}",
        launches, beside);
    int rc = fixture_load_text(&f, text, strlen(text), diag);
    if (rc == 0 && ret_count != NULL)
        *ret_count = f.families.family[0]->launch_count;
    fixture_free(&f);
    return rc;
}

#define LAUNCH(entry, grid) \
    "{\"kernel\": \"" entry "\", \"block\": 128, \"grid\": " grid ", \"shared_memory\": {}}"
#define GRID "[\"SEQ_Q\", 1, 1]"

static void a_manifest_may_have_several_launches_and_a_workspace(void)
{
    fa_diag diag = {{0}};
    int count = 0;
    CHECK_OK(load_launches("[" LAUNCH("one", GRID) "," LAUNCH("two", GRID) "]",
                           ", \"workspace\": \"BATCH * 4\"", &diag, &count),
             diag);
    CHECK_INT(count, 2);
}

static void what_is_wrong_with_a_launch_is_named_with_its_place(void)
{
    static const struct {
        const char *launches, *beside, *says;
    } wrong[] = {
        {"[]", "", "must be an array of 1 to 4"},
        {"[1]", "", "launches[0] must be an object"},
        {"[" LAUNCH("one", GRID) "," LAUNCH("2wo", GRID) "]", "", "launches[1]: \"kernel\""},
        {"[" LAUNCH("one", "[1, 1, 1, 1]") "]", "", "launches[0]: \"grid\" must be one to three"},
        {"[" LAUNCH("one", "[1, \"NOT_KNOWN\", 1]") "]", "", "launches[0]: grid[1]"},
        {"[{\"kernel\": \"one\", \"block\": 1}]", "", "launches[0]: \"grid\" is missing"},
        {"[{\"kernel\": \"one\", \"blocks\": 1}]", "", "launches[0]: the key \"blocks\""},
        {"[" LAUNCH("one", GRID) "]", ", \"block\": 32", "\"block\" is given beside"},
        {"[" LAUNCH("one", GRID) "]", ", \"workspace\": \"1 + \"", "workspace"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fa_diag diag = {{0}};
        CHECK_INT(load_launches(wrong[i].launches, wrong[i].beside, &diag, NULL), FA_EMANIFEST);
        CHECK_HAS(diag.text, wrong[i].says);
    }
}

/* ---- features -------------------------------------------------------------------------------*/
/* The only family of a fixture is this one, of any GPU from sm_80 on. */
static int load_taker(tuner_fixture *f, const char *beside, fa_diag *diag)
{
    char text[4000];
    snprintf(
        text, sizeof text,
        "{\"name\": \"small\", \"operation\": \"attn_fwd\", \"sm\": {\"min\": 80, \"max\": 90},"
        " \"tune\": {\"BLOCK_M\": [64, 128]}, \"default\": {\"BLOCK_M\": 64},"
        " \"kernel\": \"attn_fwd\", \"block\": 128, \"grid\": [\"SEQ_Q\", 1, 1],"
        " \"shared_memory\": {}%s}",
        beside);
    return fixture_load_text(f, text, strlen(text), diag);
}

static void a_family_serves_the_features_that_its_manifest_takes_and_no_other(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    fa_problem p = {
        .head_dim = 64, .batch = 2, .heads_q = 8, .heads_kv = 8, .seq_q = 1, .seq_k = 4096};
    CHECK_OK(load_taker(&f,
                        ", \"takes\": [\"lengths_k\", \"page\"], \"splits\": \"PAGE_SIZE / 8\","
                        " \"workspace\": \"PAGE_SIZE * BATCH\"",
                        &diag),
             diag);
    const fa_family *family = f.families.family[0];
    int dense = fa_family_supports(family, &p, &gpu_a100, &diag);
    p.lengths_k = FA_LENGTHS_SEQUSED;
    p.page = 64;
    int taken = fa_family_supports(family, &p, &gpu_a100, &diag);
    fa_space space = {0};
    int rc = fa_space_enumerate(&(fa_task){&f.families, &p, &gpu_a100}, &space, &diag);
    int splits = rc == 0 ? space.candidate[0].launches.splits : 0;
    int64_t bytes = rc == 0 ? space.candidate[0].launches.workspace_bytes : 0;
    fa_space_free(&space);
    p.kv_dtype = FA_KV_FP8;
    int refused = fa_family_supports(family, &p, &gpu_a100, &diag);
    fixture_free(&f);
    CHECK_INT(dense, 0);
    CHECK_INT(taken, 0);
    CHECK_INT(rc, 0);
    CHECK_INT(splits, 8);
    CHECK_INT(bytes, 128);
    CHECK_INT(refused, FA_ENOTSUP);
    CHECK_TEXT(diag.text, "small does not take kv_dtype = fp8");
}

static void what_a_manifest_may_not_take_is_named(void)
{
    static const struct {
        const char *beside, *says;
    } wrong[] = {
        {", \"takes\": \"page\"", "\"takes\" must be an array"},
        {", \"takes\": [1]", "\"\" is no feature of attn_fwd"},
        {", \"takes\": [\"head_dim\"]", "\"head_dim\" is no feature of attn_fwd"},
        {", \"beside_specific\": 1", "\"beside_specific\" must be true or false"},
        {", \"workspace\": \"PAGE_SIZE\"", "PAGE_SIZE"}, /* of a feature that is not taken */
        {", \"splits\": \"+\"", "splits"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tuner_fixture f;
        fa_diag diag = {{0}};
        int rc = load_taker(&f, wrong[i].beside, &diag);
        fixture_free(&f);
        CHECK_INT(rc, FA_EMANIFEST);
        CHECK_HAS(diag.text, wrong[i].says);
    }
}

int main(void)
{
    TEST(a_manifest_may_have_several_launches_and_a_workspace);
    TEST(what_is_wrong_with_a_launch_is_named_with_its_place);
    TEST(a_family_serves_the_features_that_its_manifest_takes_and_no_other);
    TEST(what_a_manifest_may_not_take_is_named);
    return check_done();
}
