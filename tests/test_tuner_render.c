/* SPDX-License-Identifier: Apache-2.0
 *
 * Rendering: the prologue, the signature, and what a cubin's key depends on.
 */
#include "tuner_fixture.h"

#include "render.h"

/* The small family with this template and header text, its first config rendered. */
struct rendered {
    tuner_fixture f;
    fa_space space;
    fa_buf source;
};

static int render_parts(struct rendered *r, const manifest_parts *parts, const char *source,
                        const char *header, fa_diag *diag)
{
    char json[4000];
    *r = (struct rendered){.space = {.default_index = -1}};
    manifest_text(parts, json, sizeof json);
    if (!fixture_make(&r->f) || !fixture_write(&r->f, "small.json", json, strlen(json)) ||
        !fixture_write(&r->f, "small.cu", source, strlen(source)) ||
        !fixture_write(&r->f, "small.cuh", header, strlen(header)) ||
        !fixture_write(&r->f, "other.cuh", "int other;\n", 11))
        return FA_EIO;
    int rc = fa_templates_open(r->f.directory, &r->f.templates, diag);
    if (rc == 0)
        rc = fa_families_load(r->f.templates, "attn_fwd", &r->f.families, diag);
    if (rc == 0)
        fixture_keep_own(&r->f.families);
    if (rc == 0)
        rc = fa_space_enumerate(&(fa_task){&r->f.families, &problem_512, &gpu_l4}, &r->space, diag);
    return rc == 0 ? fa_render(r->f.templates, &(fa_task){&r->f.families, &problem_512, &gpu_l4},
                               &r->space.candidate[0], &r->source, diag)
                   : rc;
}

static int render_small(struct rendered *r, const char *source, const char *header, fa_diag *diag)
{
    return render_parts(
        r, &(manifest_parts){.lets = "{\"ROW\": \"HEAD_DIM * 2\", \"LESS\": \"5 - 8\"}"}, source,
        header, diag);
}

static void rendered_free(struct rendered *r)
{
    fa_buf_free(&r->source);
    fa_space_free(&r->space);
    fixture_free(&r->f);
}

static void the_prologue_defines_everything_and_changes_nothing_else(void)
{
    struct rendered r;
    fa_diag diag = {{0}};
    int rc = render_small(&r, "int template_text; // BLOCK_M stays\n", "", &diag);
    char text[2000];
    snprintf(text, sizeof text, "%s", rc == 0 ? r.source.data : "");
    rendered_free(&r);
    CHECK_OK(rc, diag);
    CHECK_TEXT(text,
               "#define FA_SM 89\n#define HEAD_DIM 64\n#define DTYPE_BF16 0\n#define CAUSAL 0\n"
               "#define ALIGNED 1\n#define BLOCK_M 64\n#define BLOCK_N 32\n#define ROW 128\n"
               "#define LESS (-3)\n#define FA_THREADS 64\n#define FA_SMEM_BYTES 16384\n"
               "#line 1 \"small.cu\"\nint template_text; // BLOCK_M stays\n\n"
               "extern \"C\" __device__ const char fa_tune_config[] = "
               "\"fa_tune_config=family=small;BLOCK_M=64;BLOCK_N=32;FA_SM=89;HEAD_DIM=64;"
               "DTYPE_BF16=0;CAUSAL=0;ALIGNED=1;\";\n");
}

/* BLOCK_N, the let that reads it and the size of the shared memory are missing in the text. */
static void configs_that_differ_at_run_time_only_have_one_source(void)
{
    static const char lets[] = "{\"ROW\": \"HEAD_DIM * 2\", \"TWICE\": \"2 * BLOCK_N\"}";
    struct rendered r;
    fa_diag diag = {{0}};
    fa_buf other = {0};
    int rc =
        render_parts(&r, &(manifest_parts){.lets = lets, .extra = ", \"run_time\": [\"BLOCK_N\"]"},
                     "x\n", "", &diag);
    const fa_candidate *at = r.space.candidate; /* 64 x 32, 64 x 64, 64 x 128, 128 x 32 ... */
    if (rc == 0)
        rc = fa_render(r.f.templates, &(fa_task){&r.f.families, &problem_512, &gpu_l4}, &at[1],
                       &other, &diag);
    bool equal = rc == 0 && strcmp(r.source.data, other.data) == 0;
    bool same = rc == 0 && fa_render_is_same(&r.f.families, &at[0], &at[1]);
    bool differ = rc == 0 && !fa_render_is_same(&r.f.families, &at[0], &at[3]);
    char text[2000];
    snprintf(text, sizeof text, "%s", rc == 0 ? r.source.data : "");
    fa_buf_free(&other);
    rendered_free(&r);
    CHECK_OK(rc, diag);
    CHECK(equal && same && differ);
    CHECK_TEXT(text,
               "#define FA_SM 89\n#define HEAD_DIM 64\n#define DTYPE_BF16 0\n#define CAUSAL 0\n"
               "#define ALIGNED 1\n#define BLOCK_M 64\n#define ROW 128\n#define FA_THREADS 64\n"
               "#line 1 \"small.cu\"\nx\n\n"
               "extern \"C\" __device__ const char fa_tune_config[] = "
               "\"fa_tune_config=family=small;BLOCK_M=64;FA_SM=89;HEAD_DIM=64;"
               "DTYPE_BF16=0;CAUSAL=0;ALIGNED=1;\";\n");
}

static void the_reference_is_rendered_from_the_same_problem(void)
{
    fa_diag diag = {{0}};
    fa_templates *templates = NULL;
    fa_buf source = {0};
    int rc = fa_templates_open(NULL, &templates, &diag);
    if (rc == 0)
        rc = fa_render_reference(
            templates, &(fa_task){&(fa_family_list){0}, &problem_512, &gpu_h200}, &source, &diag);
    bool right = rc == 0 &&
                 strncmp(source.data, "#define FA_SM 90\n#define HEAD_DIM 64\n", 36) == 0 &&
                 strstr(source.data, "#line 1 \"attn_ref.cu\"\n") != NULL &&
                 strstr(source.data, "BLOCK_M 64") == NULL &&
                 strstr(source.data, "fa_tune_config[] = \"fa_tune_config=family=attn_ref;FA_SM=90;"
                                     "HEAD_DIM=64;DTYPE_BF16=0;CAUSAL=0;ALIGNED=1;\";") != NULL;
    fa_buf_free(&source);
    fa_templates_close(&templates);
    CHECK_OK(rc, diag);
    CHECK(right);
}

static void an_architecture_has_the_suffix_of_its_family(void)
{
    struct rendered r;
    fa_diag diag = {{0}};
    char plain[16] = "", small[16] = "";
    int rc = render_small(&r, "x\n", "", &diag);
    if (rc == 0)
        fa_render_architecture(r.f.families.family[0], &gpu_h200, plain, sizeof plain);
    fa_render_architecture(NULL, &gpu_l4, small, sizeof small);
    rendered_free(&r);
    CHECK_OK(rc, diag);
    CHECK_TEXT(plain, "sm_90");
    CHECK_TEXT(small, "sm_89");
    tuner_fixture f;
    rc = fixture_load(&f, &(manifest_parts){.extra = ", \"arch_suffix\": \"a\""}, &diag);
    if (rc == 0)
        fa_render_architecture(f.families.family[0], &gpu_h200, plain, sizeof plain);
    fixture_free(&f);
    CHECK_OK(rc, diag);
    CHECK_TEXT(plain, "sm_90a");
}

/* The key of the small family with these texts. */
static bool small_key(const char *source, const char *header, const char *other,
                      char ret_key[FA_HASH_HEX])
{
    struct rendered r;
    fa_diag diag = {{0}};
    ret_key[0] = 0;
    bool ok = render_small(&r, source, header, &diag) == 0 &&
              fixture_write(&r.f, "other.cuh", other, strlen(other));
    if (ok) {
        fa_templates_close(&r.f.templates);
        ok = fa_templates_open(r.f.directory, &r.f.templates, &diag) == 0;
    }
    if (ok)
        fa_render_key(r.f.templates, r.source.data, "-O", "sm_89", "13.0 a b", ret_key);
    rendered_free(&r);
    return ok;
}

/* Does a change of other.cuh change the key? */
static int depends_on_other(const char *source, const char *header)
{
    char one[FA_HASH_HEX], two[FA_HASH_HEX];
    if (!small_key(source, header, "int one;\n", one) ||
        !small_key(source, header, "int two;\n", two))
        return -1;
    return strcmp(one, two) != 0;
}

static void a_key_holds_exactly_the_headers_that_may_be_included(void)
{
    CHECK_INT(depends_on_other("#include \"small.cuh\"\n", "int x;\n"), 0);
    CHECK_INT(depends_on_other("int x; // includes nothing\n", "#include \"other.cuh\"\n"), 0);
    CHECK_INT(depends_on_other("#include \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#include \"small.cuh\"\n", "#include \"other.cuh\"\n"), 1);
    CHECK_INT(depends_on_other("#  include\t<other.cuh>\n", ""), 1);
    CHECK_INT(depends_on_other("#include \"small.cuh\"\n", "#include \"small.cuh\"\n"),
              0); /* and ends */
}

/* What a scanner cannot follow counts as including everything. */
static void doubtful_includes_count_every_header(void)
{
    CHECK_INT(depends_on_other("#define H \"other.cuh\"\n#include H\n", ""), 1);
    CHECK_INT(depends_on_other("#inc\\\nlude \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#\\\ninclude \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#/**/include \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("%:include \"other.cuh\"\n", ""), 1);
    /* NVRTC 13.0 takes each of these for an include. */
    CHECK_INT(depends_on_other("%\\\n:include \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#\finclude \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#\vinclude \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#\rinclude \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#include_next \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#include \"ot\\\nher.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#include \"elsewhere.h\"\n", ""), 1);
    CHECK_INT(depends_on_other("#if __has_include(\"other.cuh\")\n#endif\n", ""), 1);
    CHECK_INT(depends_on_other("#include \"small.cuh\"\n", "#include MACRO\n"), 1);
}

static void every_input_changes_the_key(void)
{
    fa_diag diag = {{0}};
    fa_templates *templates = NULL;
    CHECK_OK(fa_templates_open(NULL, &templates, &diag), diag);
    static const char *const inputs[][4] = {
        {"int a;", "-O", "sm_89", "13.0"}, {"int b;", "-O", "sm_89", "13.0"},
        {"int a;", "-P", "sm_89", "13.0"}, {"int a;", "-O", "sm_90", "13.0"},
        {"int a;", "-O", "sm_89", "13.1"}, {"int a;-", "O", "sm_89", "13.0"}};
    char key[6][FA_HASH_HEX], again[FA_HASH_HEX];
    for (int i = 0; i < 6; i++)
        fa_render_key(templates, inputs[i][0], inputs[i][1], inputs[i][2], inputs[i][3], key[i]);
    fa_render_key(templates, inputs[0][0], inputs[0][1], inputs[0][2], inputs[0][3], again);
    fa_templates_close(&templates);
    CHECK_TEXT(again, key[0]);
    CHECK_INT(strlen(again), 64);
    for (int i = 0; i < 6; i++)
        for (int j = i + 1; j < 6; j++)
            CHECK(strcmp(key[i], key[j]) != 0);
}

static void every_survivor_renders_and_no_two_alike(void)
{
    fa_diag diag = {{0}};
    tuner_fixture f;
    fa_space space = {0};
    int rc = fixture_built_in(&f, &diag), seen = 0, alike = 0;
    if (rc == 0)
        rc = fa_space_enumerate(&(fa_task){&f.families, &problem_512, &gpu_l4}, &space, &diag);
    char last[FA_HASH_HEX] = "", key[FA_HASH_HEX];
    for (int i = 0; i < space.count && rc == 0; i++) {
        fa_buf source = {0};
        if (space.candidate[i].trial.status != FA_STATUS_PENDING)
            continue;
        rc = fa_render(f.templates, &(fa_task){&f.families, &problem_512, &gpu_l4},
                       &space.candidate[i], &source, &diag);
        if (rc == 0) {
            fa_hash_bytes(source.data, source.size, key);
            alike += strcmp(key, last) == 0;
            memcpy(last, key, sizeof last);
            seen++;
        }
        fa_buf_free(&source);
    }
    int survivors = space.survivors;
    fa_space_free(&space);
    fixture_free(&f);
    CHECK_OK(rc, diag);
    CHECK(seen > 10);
    CHECK_INT(seen, survivors);
    CHECK_INT(alike, 0);
}

static void what_depends_on_a_problems_size_is_not_rendered(void)
{
    const fa_gpu *const gpus[] = {&gpu_l4, &gpu_h200};
    tuner_fixture f;
    fa_diag diag = {{0}};
    int compared = 0;
    CHECK_OK(fixture_built_in(&f, &diag), diag);
    for (size_t g = 0; g < 2; g++) {
        fa_space space;
        fa_problem other = problem_512;
        other.batch = 1;
        other.heads_q = other.heads_kv = 3;
        other.seq_q = 7777;
        other.seq_k = 130;
        CHECK_OK(fa_space_enumerate(&(fa_task){&f.families, &problem_512, gpus[g]}, &space, &diag),
                 diag);
        for (int i = 0, survivors = 0; i < space.count; i++) {
            fa_candidate there;
            fa_buf a = {0}, b = {0};
            const fa_candidate *here = &space.candidate[i];
            if (here->trial.status != FA_STATUS_PENDING || survivors++ % 7 != 0)
                continue;
            CHECK_OK(fa_space_one(&(fa_task){&f.families, &other, gpus[g]}, &here->trial.config,
                                  &there, &diag),
                     diag);
            CHECK_OK(fa_render(f.templates, &(fa_task){&f.families, &problem_512, gpus[g]}, here,
                               &a, &diag),
                     diag);
            CHECK_OK(
                fa_render(f.templates, &(fa_task){&f.families, &other, gpus[g]}, &there, &b, &diag),
                diag);
            CHECK_TEXT(a.data, b.data);
            fa_buf_free(&a);
            fa_buf_free(&b);
            compared++;
        }
        fa_space_free(&space);
    }
    CHECK(compared > 10);
    fixture_free(&f);
}

int main(void)
{
    TEST(what_depends_on_a_problems_size_is_not_rendered);
    TEST(the_prologue_defines_everything_and_changes_nothing_else);
    TEST(configs_that_differ_at_run_time_only_have_one_source);
    TEST(the_reference_is_rendered_from_the_same_problem);
    TEST(an_architecture_has_the_suffix_of_its_family);
    TEST(a_key_holds_exactly_the_headers_that_may_be_included);
    TEST(doubtful_includes_count_every_header);
    TEST(every_input_changes_the_key);
    TEST(every_survivor_renders_and_no_two_alike);
    return check_done();
}
