/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories of templates: what of them counts in a hash and in a closure. What is refused is in test_manifest.py.
 */
#include "problem.h"
#include "tuner_fixture.h"

#include "ops/tensors.h"

#include "buf.h"
#include "operation.h"
#include "spec.h"
#include "trial.h"

static tuner_fixture f;
static fa_diag diag;
static fa_templates *builtin;

/* An empty directory in place of the last. */
static void start(void)
{
    fixture_free(&f);
    CHECK(fixture_make(&f));
}

static void put(const char *name, const char *text)
{
    CHECK(fixture_write(&f, name, text, strlen(text)));
}

static void put_in(const char *folder, const char *name, const char *text)
{
    char path[192];
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

static void a_directory_replaces_and_joins_the_built_in_files(void)
{
    start();
    put("attn_params.h", "mine");
    put("zz.cuh", "new");
    put("README", "x");
    CHECK_OK(open_it(), diag);
    CHECK_INT(fa_templates_count(f.templates), fa_templates_count(builtin) + 1);
    CHECK_TEXT(fa_templates_find(f.templates, "attn_params.h")->text, "mine");
    for (int i = 1; i < fa_templates_count(f.templates); i++)
        CHECK(strcmp(fa_templates_at(f.templates, i - 1)->name,
                     fa_templates_at(f.templates, i)->name) < 0);
    CHECK(strcmp(fa_templates_hash(f.templates, NULL), fa_templates_hash(builtin, NULL)) != 0);
    CHECK(fa_templates_is_builtin(builtin) && !fa_templates_is_builtin(f.templates));
    CHECK(fa_templates_find(f.templates, "README") == NULL);
}

/* The generator and the library hash alike, and the hash does not say in which folders files lie. The contracts, which are
 * not in it, have folders alone. */
static void the_built_in_hash_is_the_hash_of_its_files(void)
{
    for (int in_folders = 0; in_folders < 2; in_folders++) {
        start();
        for (int i = 0; i < fa_templates_count(builtin); i++) {
            const fa_template_file *file = fa_templates_at(builtin, i);
            const char *slash = strchr(file->name, '/');
            const char *name = slash != NULL ? slash + 1 : file->name;
            if (in_folders)
                put_in(file->folder, name, file->text);
            else if (slash == NULL)
                put(name, file->text);
        }
        CHECK_OK(open_it(), diag);
        CHECK_TEXT(fa_templates_hash(f.templates, NULL), fa_templates_hash(builtin, NULL));
        CHECK(!in_folders || fa_templates_count(f.templates) == fa_templates_count(builtin));
    }
}

static const char contract[] = "{\"name\": \"mine\", \"title\": \"something of mine\", "
                               "\"sizes\": {\"n\": {}}}";

static void a_folder_without_a_contract_is_no_operation(void)
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

static void what_a_directory_brings_of_one_operation_leaves_the_closures_of_others(void)
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

/* The text of a JSON object with one member set; the caller frees it. */
static char *with_member(const char *text, const char *key, const char *value)
{
    cJSON *json = cJSON_Parse(text);
    cJSON_DeleteItemFromObjectCaseSensitive(json, key);
    cJSON_AddItemToObject(json, key, cJSON_Parse(value));
    char *out = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return out;
}

/* The hash over all files where a directory brings an operation of this contract. */
static const char *closure_with(const char *text, const char *manifest)
{
    start();
    put_in("told", "operation.json", text);
    put_in("told", "told.json", manifest);
    int rc = open_it();
    return rc == 0 ? fa_templates_hash(f.templates, NULL) : diag.text;
}

static void a_contract_changes_the_closure_by_what_kernels_are_proved_by_alone(void)
{
    static const char base[] =
        "{\"name\":\"told\",\"title\":\"told\",\"reference\":\"told.cu\",\"tolerance\":{\"ulps\":2},"
        "\"sizes\":{\"n\":{},\"m\":{}},\"arguments\":"
        "[{\"name\":\"y\",\"type\":\"fp32\",\"shape\":[4],\"is\":\"out\"}]}";
    static const struct {
        const char *key, *value;
        bool differs;
    } changes[] = {
        {"title", "\"told in other words\"", false},
        {"flops", "\"3\"", false},
        {"sizes", "{\"n\":{\"label\":\"N\"},\"m\":4}", false},
        {"sizes", "{\"m\":{},\"n\":{}}", true},
        {"sizes", "{\"n\":{},\"m\":false}", true},
        {"tolerance", "{\"ulps\":1}", true},
        {"reference", "\"other.cu\"", true},
        {"arguments", "[{\"name\":\"y\",\"type\":\"fp16\",\"shape\":[4],\"is\":\"out\"}]", true},
    };
    char before[FA_HASH_HEX], name[24];
    snprintf(before, sizeof before, "%s", closure_with(base, "{}"));
    CHECK_INT(strlen(before), FA_HASH_HEX - 1);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        snprintf(name, sizeof name, "\"told_%zu\"", i); /* "told" is known as it was */
        char *renamed = with_member(base, "name", name);
        char *text = with_member(renamed, changes[i].key, changes[i].value);
        const char *after = closure_with(text, "{}");
        free(renamed);
        free(text);
        CHECK_INT(strlen(after), FA_HASH_HEX - 1);
        CHECK_INT(strcmp(before, after) != 0, changes[i].differs);
    }
}

static void a_manifest_changes_the_closure_by_what_may_be_compiled_and_is_launched_alone(void)
{
    static const struct {
        const char *manifest;
        bool differs;
    } cases[] = {
        {"{\"defines\":{\"A\":\"N + 1\"},\"restrictions\":[{\"require\":\"A > 1\",\"why\":\"a\"}]}",
         false},
        {"{\"restrictions\": [{\"is\": \"does-not-pay\", \"require\": \"A < 9\"},\n"
         "{\"is\": \"budget\", \"require\": \"A>1\"}], \"defines\": {\"A\": \"N+1\"}, \"default\": {}}",
         false},
        {"{\"defines\":{\"A\":\"N + 1\"},\"restrictions\":[{\"require\":\"A > 2\"}]}", true},
        {"{\"defines\":{\"A\":\"N + 2\"},\"restrictions\":[{\"require\":\"A > 1\"}]}", true},
        {"{\"defines\":{\"A\":\"N + 1\"},\"restrictions\":[{\"require\":\"A > 1\"}],\"grid\":2}",
         true},
        {"{\"defines\":{\"A\":\"N + 1\"},\"restrictions\":[{\"require\":\"A > 1\"}], no JSON",
         true}};
    char before[FA_HASH_HEX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *after = closure_with(contract, cases[i].manifest);
        CHECK_INT(strlen(after), FA_HASH_HEX - 1);
        if (i == 0)
            snprintf(before, sizeof before, "%s", after);
        CHECK_INT(strcmp(before, after) != 0, cases[i].differs);
    }
}

static int read_numbered(const char *grid, int number, const fa_operation **ret_operation)
{
    fa_buf text = {0};
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
    fa_buf_free(&text);
    return rc;
}

static void specifications_that_are_refused_leave_nothing_behind(void)
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
    TEST(a_directory_replaces_and_joins_the_built_in_files);
    TEST(the_built_in_hash_is_the_hash_of_its_files);
    TEST(a_folder_without_a_contract_is_no_operation);
    TEST(specifications_that_are_refused_leave_nothing_behind);
    TEST(what_a_directory_brings_of_one_operation_leaves_the_closures_of_others);
    TEST(a_contract_changes_the_closure_by_what_kernels_are_proved_by_alone);
    TEST(a_manifest_changes_the_closure_by_what_may_be_compiled_and_is_launched_alone);
    fixture_free(&f);
    fa_templates_close(&builtin);
    return check_done();
}
