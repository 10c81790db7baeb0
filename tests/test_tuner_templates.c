/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories of templates: what of them counts in a hash and in a closure, and, as hostile input, what is refused
 * and in which words.
 */
#include "tuner_fixture.h"

#include "ops/tensors.h"

#include "buf.h"
#include "operation.h"
#include "spec.h"
#include "trial.h"

static void a_directory_replaces_and_joins_the_built_in_files(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    fa_templates *builtin = NULL;
    CHECK(fixture_make(&f));
    CHECK_OK(fa_templates_open(NULL, &builtin, &diag), diag);
    bool wrote = fixture_write(&f, "attn_params.h", "mine", 4) &&
                 fixture_write(&f, "zz.cuh", "new", 3) && fixture_write(&f, "README", "x", 1);
    int rc = fa_templates_open(f.directory, &f.templates, &diag);
    int more = rc == 0 ? fa_templates_count(f.templates) - fa_templates_count(builtin) : 0;
    const fa_template_file *replaced =
        rc == 0 ? fa_templates_find(f.templates, "attn_params.h") : NULL;
    char text[16] = "";
    if (replaced != NULL)
        snprintf(text, sizeof text, "%s", replaced->text);
    bool sorted = rc == 0;
    for (int i = 1; rc == 0 && i < fa_templates_count(f.templates); i++)
        sorted = sorted && strcmp(fa_templates_at(f.templates, i - 1)->name,
                                  fa_templates_at(f.templates, i)->name) < 0;
    bool differs = rc == 0 && strcmp(fa_templates_hash(f.templates, NULL),
                                     fa_templates_hash(builtin, NULL)) != 0;
    bool flags =
        rc == 0 && fa_templates_is_builtin(builtin) && !fa_templates_is_builtin(f.templates);
    bool readme = rc == 0 && fa_templates_find(f.templates, "README") != NULL;
    fa_templates_close(&builtin);
    fixture_free(&f);
    CHECK(wrote);
    CHECK_OK(rc, diag);
    CHECK_INT(more, 1);
    CHECK_TEXT(text, "mine");
    CHECK(sorted && differs && flags && !readme);
}

static bool write_in(const tuner_fixture *f, const char *folder, const char *name, const char *text)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", f->directory, folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fixture_write(f, path, text, strlen(text));
}

/* The generator and the library hash alike, and the hash does not say in which folders files lie. The contracts, which are
 * not in it, have folders alone. */
static void the_built_in_hash_is_the_hash_of_its_files(void)
{
    for (int in_folders = 0; in_folders < 2; in_folders++) {
        tuner_fixture f;
        fa_diag diag = {{0}};
        fa_templates *builtin = NULL;
        bool wrote = true;
        CHECK(fixture_make(&f));
        CHECK_OK(fa_templates_open(NULL, &builtin, &diag), diag);
        for (int i = 0; i < fa_templates_count(builtin); i++) {
            const fa_template_file *file = fa_templates_at(builtin, i);
            const char *slash = strchr(file->name, '/');
            const char *name = slash != NULL ? slash + 1 : file->name;
            if (in_folders)
                wrote &= write_in(&f, file->folder, name, file->text);
            else if (slash == NULL)
                wrote &= fixture_write(&f, name, file->text, file->size);
        }
        int rc = fa_templates_open(f.directory, &f.templates, &diag);
        bool same = rc == 0 && strcmp(fa_templates_hash(f.templates, NULL),
                                      fa_templates_hash(builtin, NULL)) == 0;
        int more = rc == 0 ? fa_templates_count(f.templates) - fa_templates_count(builtin) : -1;
        fa_templates_close(&builtin);
        fixture_free(&f);
        CHECK(wrote);
        CHECK_OK(rc, diag);
        CHECK(same && (!in_folders || more == 0));
    }
}

static const char contract[] = "{\"name\": \"mine\", \"title\": \"something of mine\", "
                               "\"fields\": [{\"name\": \"n\", \"kind\": \"integer\"}]}";

static void a_folder_without_a_contract_is_no_operation(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    CHECK(fixture_make(&f));
    bool wrote = write_in(&f, "mine", "mine.json", "{}") && write_in(&f, "mine", "mine.cu", "x");
    int without = fa_templates_open(f.directory, &f.templates, &diag);
    wrote = wrote && write_in(&f, "mine", "operation.json", contract);
    int with = fa_templates_open(f.directory, &f.templates, &diag);
    const fa_operation *known = NULL;
    bool found = fa_operation_find("mine", &known, NULL) == 0 && known->field_count == 1;
    const fa_template_file *manifest =
        with == 0 ? fa_templates_find(f.templates, "mine.json") : NULL;
    bool in_folder = manifest != NULL && strcmp(manifest->folder, "mine") == 0 &&
                     fa_templates_find(f.templates, "mine/operation.json") != NULL &&
                     fa_templates_find(f.templates, "operation.json") == NULL;
    fixture_free(&f);
    CHECK(wrote);
    CHECK_INT(without, FA_EINVAL);
    CHECK_INT(with, 0);
    CHECK(in_folder && found);
}

static void what_a_directory_brings_of_one_operation_leaves_the_closures_of_others(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    fa_templates *builtin = NULL;
    const fa_operation *mine = NULL;
    CHECK(fixture_make(&f));
    CHECK_OK(fa_templates_open(NULL, &builtin, &diag), diag);
    bool wrote = write_in(&f, "mine", "operation.json", contract) &&
                 write_in(&f, "mine", "mine.json", "{}") && write_in(&f, "mine", "mine.cu", "x");
    int rc = fa_templates_open(f.directory, &f.templates, &diag);
    CHECK_OK(rc, diag);
    CHECK_OK(fa_operation_find("mine", &mine, &diag), diag);
    const fa_operation *attention = fa_operation_of(NULL);
    bool same = strcmp(fa_templates_hash(f.templates, attention),
                       fa_templates_hash(builtin, attention)) == 0;
    bool own = strcmp(fa_templates_hash(f.templates, mine),
                      fa_templates_hash(f.templates, attention)) != 0;
    wrote = wrote && fixture_write(&f, "more.json", "{}", 2); /* of no folder: of any operation */
    fa_templates_close(&f.templates);
    rc = fa_templates_open(f.directory, &f.templates, &diag);
    bool differs = rc == 0 && strcmp(fa_templates_hash(f.templates, attention),
                                     fa_templates_hash(builtin, attention)) != 0;
    fa_templates_close(&builtin);
    fixture_free(&f);
    CHECK(wrote);
    CHECK(same && own && differs);
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
static int closure_with(const char *text, const char *manifest, char ret_hash[FA_HASH_HEX],
                        fa_diag *diag)
{
    tuner_fixture f;
    if (!fixture_make(&f))
        return FA_EIO;
    int rc =
        write_in(&f, "told", "operation.json", text) && write_in(&f, "told", "told.json", manifest)
            ? fa_templates_open(f.directory, &f.templates, diag)
            : FA_EIO;
    if (rc == 0)
        snprintf(ret_hash, FA_HASH_HEX, "%s", fa_templates_hash(f.templates, NULL));
    fixture_free(&f);
    return rc;
}

static void a_contract_changes_the_closure_by_what_kernels_are_proved_by_alone(void)
{
    static const char base[] =
        "{\"name\":\"told\",\"title\":\"told\",\"reference\":\"told.cu\",\"tolerance\":{\"ulps\":2},"
        "\"fields\":[{\"name\":\"n\",\"kind\":\"integer\"},"
        "{\"name\":\"m\",\"kind\":\"integer\"}],\"arguments\":"
        "[{\"name\":\"y\",\"type\":\"fp32\",\"shape\":[4],\"is\":\"out\"}]}";
    static const struct {
        const char *key, *value;
        bool differs;
    } changes[] = {
        {"title", "\"told in other words\"", false},
        {"flops", "\"3\"", false},
        {"fields",
         "[{\"name\":\"n\",\"kind\":\"integer\",\"label\":\"N\"},"
         "{\"name\":\"m\",\"kind\":\"integer\"}]",
         false},
        {"fields",
         "[{\"name\":\"m\",\"kind\":\"integer\"},"
         "{\"name\":\"n\",\"kind\":\"integer\"}]",
         true},
        {"tolerance", "{\"ulps\":1}", true},
        {"reference", "\"other.cu\"", true},
        {"arguments", "[{\"name\":\"y\",\"type\":\"fp16\",\"shape\":[4],\"is\":\"out\"}]", true},
    };
    char before[FA_HASH_HEX] = "", after[FA_HASH_HEX] = "", name[24];
    fa_diag diag = {{0}};
    CHECK_OK(closure_with(base, "{}", before, &diag), diag);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        snprintf(name, sizeof name, "\"told_%zu\"", i); /* "told" is known as it was */
        char *renamed = with_member(base, "name", name);
        char *text = with_member(renamed, changes[i].key, changes[i].value);
        int rc = closure_with(text, "{}", after, &diag);
        free(renamed);
        free(text);
        CHECK_OK(rc, diag);
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
    char before[FA_HASH_HEX] = "", after[FA_HASH_HEX] = "";
    fa_diag diag = {{0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(closure_with(contract, cases[i].manifest, i == 0 ? before : after, &diag), diag);
        CHECK_INT(i > 0 && strcmp(before, after) != 0, cases[i].differs);
    }
}

static void one_name_stands_for_one_file_in_all_folders(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    CHECK(fixture_make(&f));
    bool wrote = write_in(&f, "attn_fwd", "attn_params.h", "x") &&
                 fixture_write(&f, "attn_params.h", "x", 1);
    int twice = fa_templates_open(f.directory, &f.templates, &diag);
    bool says = strstr(diag.text, "attn_params.h: appears twice") != NULL;
    fixture_free(&f);
    CHECK(fixture_make(&f));
    wrote = wrote && write_in(&f, "mine", "operation.json", contract) &&
            write_in(&f, "mine", "attn_params.h", "x");
    int taken = fa_templates_open(f.directory, &f.templates, &diag);
    fixture_free(&f);
    CHECK(wrote);
    CHECK_INT(twice, FA_EINVAL);
    CHECK(says);
    CHECK_INT(taken, FA_EINVAL);
    CHECK_HAS(diag.text, "is the name of a file of attn_fwd");
}

/* Without outputs there would be nothing to launch, and nothing that could be wrong. */
static void an_operation_of_which_no_tensor_is_an_output_has_no_proof(void)
{
    static const char silent[] =
        "{\"name\": \"silent\", \"title\": \"nothing\", \"tolerance\": {\"absolute\": 1},"
        "\"fields\": [{\"name\": \"n\", \"kind\": \"integer\", \"macro\": \"N\"}],"
        "\"arguments\": [{\"name\": \"x\", \"type\": \"fp32\", \"shape\": [\"N\"], \"is\": \"in\"}]}";
    fa_problem problem = {.value = {4}};
    fa_tensor_list list;
    fa_diag diag = {{0}};
    CHECK_OK(fa_operation_register(silent, sizeof silent - 1, "silent", &problem.operation, &diag),
             diag);
    CHECK_INT(fa_tensors_read(&problem, &list, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "arguments: none is an output");
}

/* `blocks`: more values than 64, behind a comma. */
static int read_numbered(const char *blocks, const char *grid, int number,
                         const fa_operation **ret_operation, fa_diag *diag)
{
    fa_buf text = {0};
    fa_buf_printf(
        &text,
        "{\"kernel\":\"set\",\"sizes\":{\"n\":%d},\"tune\":{\"B\":[64%s]},\"block\":\"B\","
        "\"grid\":\"%s\",\"arguments\":[{\"name\":\"y\",\"type\":\"f32\",\"shape\":[\"n\"],"
        "\"is\":\"out\"},{\"name\":\"n\"}]}",
        number, blocks, grid);
    int rc = text.data != NULL ? fa_spec_make("sent", text.data,
                                              "__global__ void set(float *y, int n) { y[0] = n; }",
                                              ret_operation, diag)
                               : FA_ENOMEM;
    fa_buf_free(&text);
    return rc;
}

static void specifications_that_are_refused_leave_nothing_behind(void)
{
    const fa_operation *operation = NULL;
    fa_diag diag = {{0}};
    int refused = 0, known = 0;
    for (; fa_operation_at(known) != NULL; known++)
        continue;
    for (int i = 1; i <= FA_OPERATIONS_MAX; i++)
        refused += read_numbered("", "nowhere", i, &operation, &diag) == FA_EMANIFEST;
    CHECK_INT(refused, FA_OPERATIONS_MAX);
    CHECK_HAS(diag.text, "nowhere");
    CHECK(fa_operation_at(known) == NULL);
    CHECK_OK(read_numbered("", "ceil_div(n, B)", 1, &operation, &diag), diag);
    CHECK(fa_operation_at(known) == operation);
}

static void fractions_of_a_domain_that_is_too_long_are_not_kept(void)
{
    const fa_operation *operation = NULL;
    fa_diag diag = {{0}};
    fa_buf many = {0};
    int32_t value = 0;
    for (int i = 0; i < 5000; i++) /* more than a process keeps */
        fa_buf_printf(&many, ",%d.5", i);
    int rc = many.data != NULL ? read_numbered(many.data, "1", 1, &operation, &diag) : FA_ENOMEM;
    fa_buf_free(&many);
    CHECK_INT(rc, FA_EMANIFEST);
    CHECK_HAS(diag.text, "tune B must be an array of 1 to 64");
    CHECK_OK(fa_value_of_number(12345.25, &value, &diag), diag);
}

static int open_with(const char *name, const char *bytes, size_t size, fa_diag *diag)
{
    tuner_fixture f;
    if (!fixture_make(&f))
        return 1;
    bool wrote = fixture_write(&f, name, bytes, size);
    int rc = fa_templates_open(f.directory, &f.templates, diag);
    fixture_free(&f);
    return wrote ? rc : 1;
}

static void a_directory_with_odd_files_is_refused_with_the_reason(void)
{
    fa_diag diag = {{0}};
    CHECK_INT(open_with("bad name.cu", "x", 1, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "not plain");
    CHECK_INT(open_with("nul.cu", "a\0b", 3, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "NUL");
    size_t size = 1 << 20;
    char *large = calloc(size + 1, 1);
    CHECK(large != NULL);
    memset(large, ' ', size + 1);
    int fits = open_with("attn_params.h", large, size, &diag);
    int exceeds = open_with("attn_params.h", large, size + 1, &diag);
    free(large);
    CHECK_INT(fits, 0);
    CHECK_INT(exceeds, FA_EINVAL);
    CHECK_HAS(diag.text, "larger than 1048576");
    CHECK_INT(fa_templates_open("/nowhere/at/all", &(fa_templates *){NULL}, &diag), FA_ENOTFOUND);
    CHECK_HAS(diag.text, "/nowhere/at/all");
}

static void a_directory_that_would_change_nothing_is_refused(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    CHECK(fixture_make(&f));
    int empty = fa_templates_open(f.directory, &f.templates, &diag);
    bool names = strstr(diag.text, f.directory) != NULL && strstr(diag.text, "no manifest") != NULL;
    bool none = f.templates == NULL;
    fixture_free(&f);
    CHECK_INT(empty, FA_EINVAL);
    CHECK(names && none);
    CHECK_INT(open_with("README", "x", 1, &diag), FA_EINVAL);
    CHECK_INT(open_with("mine.cu", "x", 1, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "no manifest (NAME.json)");
    CHECK_INT(open_with("attn_params.h", "x", 1, &diag), 0);
    CHECK_INT(open_with("mine.json", "x", 1, &diag), 0); /* what is wrong with it is told later */
}

static void links_and_fifos_are_refused_and_do_not_hang(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    char path[128];
    CHECK(fixture_make(&f));
    snprintf(path, sizeof path, "%s/link.cuh", f.directory);
    bool made = symlink("/etc/passwd", path) == 0;
    int linked = fa_templates_open(f.directory, &f.templates, &diag);
    bool says = strstr(diag.text, "is a link") != NULL;
    made = unlink(path) == 0 && made;
    snprintf(path, sizeof path, "%s/pipe.cuh", f.directory);
    made = mkfifo(path, 0600) == 0 && made;
    int piped = fa_templates_open(f.directory, &f.templates, &diag);
    bool regular = strstr(diag.text, "not a regular file") != NULL;
    fixture_free(&f);
    CHECK(made);
    CHECK_INT(linked, FA_EINVAL);
    CHECK_INT(piped, FA_EINVAL);
    CHECK(says && regular);
}

static void more_than_128_files_are_refused(void)
{
    tuner_fixture f;
    fa_diag diag = {{0}};
    CHECK(fixture_make(&f));
    bool wrote = true;
    int at_limit = 1;
    for (int i = 0; i < 129; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%d.json", i);
        wrote = wrote && fixture_write(&f, name, "x", 1);
        if (i == 127) {
            at_limit = fa_templates_open(f.directory, &f.templates, &diag);
            fa_templates_close(&f.templates);
        }
    }
    int beyond = fa_templates_open(f.directory, &f.templates, &diag);
    fixture_free(&f);
    CHECK(wrote);
    CHECK_INT(at_limit, 0);
    CHECK_INT(beyond, FA_EINVAL);
    CHECK_HAS(diag.text, "more than 128");
}

int main(void)
{
    TEST(a_directory_replaces_and_joins_the_built_in_files);
    TEST(the_built_in_hash_is_the_hash_of_its_files);
    TEST(a_folder_without_a_contract_is_no_operation);
    TEST(an_operation_of_which_no_tensor_is_an_output_has_no_proof);
    TEST(specifications_that_are_refused_leave_nothing_behind);
    TEST(fractions_of_a_domain_that_is_too_long_are_not_kept);
    TEST(what_a_directory_brings_of_one_operation_leaves_the_closures_of_others);
    TEST(a_contract_changes_the_closure_by_what_kernels_are_proved_by_alone);
    TEST(a_manifest_changes_the_closure_by_what_may_be_compiled_and_is_launched_alone);
    TEST(one_name_stands_for_one_file_in_all_folders);
    TEST(a_directory_with_odd_files_is_refused_with_the_reason);
    TEST(a_directory_that_would_change_nothing_is_refused);
    TEST(links_and_fifos_are_refused_and_do_not_hang);
    TEST(more_than_128_files_are_refused);
    return check_done();
}
