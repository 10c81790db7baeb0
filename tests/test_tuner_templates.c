/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories of templates: what of them counts in a hash and in a closure. What is refused is in test_manifest.py.
 */
#define CHECK_OWN_MAIN
#include "tuner_fixture.h"

#include "ops/tensors.h"

#include "buf.h"
#include "operation.h"
#include "spec.h"

static tuner_fixture f;
static fa_templates *builtin;

/* An empty directory in place of the last. */
static void start(void)
{
    fixture_free(&f);
    fixture_make(&f);
}

static void put(const char *name, const char *text)
{
    CHECK(fixture_write(&f, name, text));
}

static void put_in(const char *folder, const char *name, const char *text)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", f.directory, folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    put(path, text);
}

static int open_it(void)
{
    fa_templates_close(&f.templates);
    return fa_templates_open(f.directory, &f.templates, &diag);
}

TEST(a_directory_replaces_and_joins_the_built_in_files)
{
    start();
    put("attn_params.h", "mine");
    put("zz.cuh", "new");
    put("README", "x");
    CHECK_OK(open_it(), diag);
    CHECK_INT(f.templates->count, builtin->count + 1);
    CHECK_TEXT(fa_templates_find(f.templates, "attn_params.h")->text, "mine");
    for (int i = 1; i < f.templates->count; i++)
        CHECK(strcmp(f.templates->file[i - 1].name, f.templates->file[i].name) < 0);
    CHECK(strcmp(fa_templates_hash(f.templates, fa_operation_of(NULL)),
                 fa_templates_hash(builtin, fa_operation_of(NULL))) != 0);
    CHECK(builtin->builtin && !f.templates->builtin);
    CHECK(fa_templates_find(f.templates, "README") == NULL);
}

static const char contract[] = "{\"name\": \"mine\", \"title\": \"something of mine\", "
                               "\"sizes\": {\"n\": {}}}";

TEST(a_folder_without_a_contract_is_no_operation)
{
    const fa_operation *known = NULL;
    start();
    put_in("mine", "mine.json", "{}");
    put_in("mine", "mine.cu", "x");
    CHECK_INT(open_it(), FA_EINVAL);
    put_in("mine", "operation.json", contract);
    CHECK_OK(open_it(), diag);
    CHECK_OK(fa_operation_find("mine", &known, &diag), diag);
    CHECK_INT(known->field_count, 1);
    CHECK_TEXT(fa_templates_find(f.templates, "mine.json")->folder, "mine");
    CHECK(fa_templates_find(f.templates, "mine/operation.json") != NULL);
    CHECK(fa_templates_find(f.templates, "operation.json") == NULL);
}

TEST(what_a_directory_brings_of_one_operation_leaves_the_closures_of_others)
{
    const fa_operation *mine = NULL, *attention = fa_operation_of(NULL);
    start();
    put_in("mine", "operation.json", contract);
    put_in("mine", "mine.json", "{}");
    put_in("mine", "mine.cu", "x");
    CHECK_OK(open_it(), diag);
    CHECK_OK(fa_operation_find("mine", &mine, &diag), diag);
    const char *others = fa_templates_hash(builtin, attention);
    CHECK_TEXT(fa_templates_hash(f.templates, attention), others);
    CHECK(strcmp(fa_templates_hash(f.templates, mine), others) != 0);
    put("more.json", "{}"); /* of no folder: of any operation */
    CHECK_OK(open_it(), diag);
    CHECK(strcmp(fa_templates_hash(f.templates, attention), others) != 0);
}

TEST(a_file_of_a_directory_changes_the_closure_of_its_operation_by_every_byte)
{
    const fa_operation *attention = fa_operation_of(NULL);
    char before[FA_HASH_HEX];
    start();
    put_in("attn_fwd", "mine.json", "{\"why\": \"a\"}");
    CHECK_OK(open_it(), diag);
    snprintf(before, sizeof before, "%s", fa_templates_hash(f.templates, attention));
    CHECK(strcmp(before, fa_templates_hash(builtin, attention)) != 0);
    CHECK_OK(open_it(), diag);
    CHECK_TEXT(fa_templates_hash(f.templates, attention), before);
    put_in("attn_fwd", "mine.json", "{\"why\": \"b\"}");
    CHECK_OK(open_it(), diag);
    CHECK(strcmp(before, fa_templates_hash(f.templates, attention)) != 0);
}

static int read_numbered(const char *grid, int number, const fa_operation **ret_operation)
{
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    fa_buf_printf(
        &text,
        "{\"kernel\":\"set\",\"sizes\":{\"n\":%d},\"tune\":{\"B\":[64]},\"block\":\"B\","
        "\"grid\":\"%s\",\"arguments\":[{\"name\":\"y\",\"type\":\"f32\",\"shape\":[\"n\"],"
        "\"is\":\"out\"},{\"name\":\"n\"}]}",
        number, grid);
    int rc = text.data != NULL ? fa_spec_make("sent", text.data,
                                              "__global__ void set(float *y, int n) { y[0] = n; }",
                                              ret_operation, &diag)
                               : FA_ENOMEM;
    return rc;
}

TEST(specifications_that_are_refused_leave_nothing_behind)
{
    const fa_operation *operation = NULL;
    int refused = 0, known = 0;
    for (; fa_operation_at(known) != NULL; known++)
        continue;
    for (int i = 1; i <= FA_OPERATIONS_MAX; i++)
        refused += read_numbered("nowhere", i, &operation) == FA_EMANIFEST;
    CHECK_INT(refused, FA_OPERATIONS_MAX);
    CHECK_HAS(diag.text, "nowhere");
    CHECK(fa_operation_at(known) == NULL);
    CHECK_OK(read_numbered("ceil_div(n, B)", 1, &operation), diag);
    CHECK(fa_operation_at(known) == operation);
}

int main(void)
{
    if (fa_templates_open(NULL, &builtin, &diag) != 0)
        return 1;
    check_all();
    fixture_free(&f);
    fa_templates_close(&builtin);
    return check_done();
}
