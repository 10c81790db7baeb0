/* SPDX-License-Identifier: Apache-2.0
 *
 * Rendering: the prologue, the signature, and what a cubin's key depends on.
 */
#include "tuner_fixture.h"

#include "manifest.h"

static tuner_fixture f;
static fa_space space;
static fa_buf source;
static fa_task task;

static void end(void)
{
    fa_buf_free(&source);
    fa_space_free(&space);
    fixture_free(&f);
}

static void within(void (*test)(void))
{
    test();
    end();
}
#define OWN_TEST(name) TEST_WITHIN(within, name)

/* The space of the families for a problem of 512 on this GPU. */
static int enumerate(const fa_gpu *gpu)
{
    task = (fa_task){&f.families, &problem_512, gpu};
    fa_space_free(&space);
    return fa_space_enumerate(&task, &space, &diag);
}

static int start_built_in(void)
{
    end();
    return fixture_built_in(&f, &diag);
}

/* Leaves of these families "small" alone. */
static void keep_small(fa_family_list *list)
{
    fa_family_list others = {calloc((size_t)list->count, sizeof *others.family), 0};
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->family[i]->name, "small") != 0)
            others.family[others.count++] = list->family[i];
        else
            list->family[0] = list->family[i];
    list->count = others.count < list->count;
    fa_families_free(&others);
}

/* A small family with these defines and more of its manifest, this template, header and another's, its first config rendered. */
static int render_parts(const char *defines, const char *more, const char *template,
                        const char *header, const char *other)
{
    char json[4000];
    snprintf(json, sizeof json,
             "{\"name\": \"small\", \"operation\": \"attn_fwd\", \"kernel\": \"kernel\", "
             "\"sm\": {\"min\": 80, \"max\": 90}, \"supports\": [], "
             "\"tune\": {\"BLOCK_M\": [64, 128], \"BLOCK_N\": [32, 64, 128]}, \"defines\": {%s}, "
             "\"restrictions\": [{\"require\": \"BLOCK_N <= BLOCK_M\", \"why\": \"keys fit\"}], "
             "\"block\": \"BLOCK_M\", \"registers\": 64, \"grid\": [1, 1, 1], \"shared_memory\": "
             "{\"q\": \"BLOCK_M * ROW\", \"kv\": \"2 * BLOCK_N * ROW\"}, "
             "\"default\": {\"BLOCK_M\": 64, \"BLOCK_N\": 64}%s}",
             defines, more);
    end();
    fixture_make(&f);
    if (!fixture_write(&f, "small.json", json) || !fixture_write(&f, "small.cu", template) ||
        !fixture_write(&f, "small.cuh", header) || !fixture_write(&f, "other.cuh", other))
        return FA_EIO;
    int rc = fa_templates_open(f.directory, &f.templates, &diag);
    if (rc == 0)
        rc = fa_families_load(f.templates, "attn_fwd", &f.families, &diag);
    if (rc == 0)
        keep_small(&f.families);
    if (rc == 0)
        rc = enumerate(&gpu_l4);
    return rc == 0 ? fa_render(f.templates, &task, space.candidate, &source, &diag) : rc;
}

static int render_small(const char *template, const char *header, const char *other)
{
    return render_parts("\"ROW\": \"HEAD_DIM * 2\", \"LESS\": \"5 - 8\"", "", template, header,
                        other);
}

OWN_TEST(the_prologue_defines_everything_and_changes_nothing_else)
{
    CHECK_OK(render_small("int template_text; // BLOCK_M stays\n", "", ""), diag);
    CHECK_TEXT(source.data,
               "#define FA_SM 89\n#define HEAD_DIM 64\n#define DTYPE_BF16 0\n#define CAUSAL 0\n"
               "#define ALIGNED 1\n#define BLOCK_M 64\n#define BLOCK_N 32\n#define ROW 128\n"
               "#define LESS (-3)\n#define FA_THREADS 64\n#define FA_SMEM_BYTES 16384\n"
               "#line 1 \"small.cu\"\nint template_text; // BLOCK_M stays\n\n"
               "extern \"C\" __device__ const char fa_tune_config[] = "
               "\"fa_tune_config=family=small;BLOCK_M=64;BLOCK_N=32;FA_SM=89;HEAD_DIM=64;"
               "DTYPE_BF16=0;CAUSAL=0;ALIGNED=1;\";\n");
}

/* BLOCK_N, the let that reads it and the size of the shared memory are missing in the text. */
OWN_TEST(configs_that_differ_at_run_time_only_have_one_source)
{
    static const char lets[] = "\"ROW\": \"HEAD_DIM * 2\", \"TWICE\": \"2 * BLOCK_N\"";
    FA_ENDS(fa_buf_free) fa_buf other = {0};
    CHECK_OK(render_parts(lets, ", \"run_time\": [\"BLOCK_N\"]", "x\n", "", ""), diag);
    const fa_candidate *at = space.candidate; /* 64 x 32, 64 x 64, 64 x 128, 128 x 32 ... */
    CHECK_OK(fa_render(f.templates, &task, &at[1], &other, &diag), diag);
    CHECK_TEXT(other.data, source.data);
    CHECK(fa_render_is_same(&f.families, &at[0], &at[1]));
    CHECK(!fa_render_is_same(&f.families, &at[0], &at[3]));
    CHECK_TEXT(source.data,
               "#define FA_SM 89\n#define HEAD_DIM 64\n#define DTYPE_BF16 0\n#define CAUSAL 0\n"
               "#define ALIGNED 1\n#define BLOCK_M 64\n#define ROW 128\n#define FA_THREADS 64\n"
               "#line 1 \"small.cu\"\nx\n\n"
               "extern \"C\" __device__ const char fa_tune_config[] = "
               "\"fa_tune_config=family=small;BLOCK_M=64;FA_SM=89;HEAD_DIM=64;"
               "DTYPE_BF16=0;CAUSAL=0;ALIGNED=1;\";\n");
}

OWN_TEST(an_architecture_has_the_suffix_of_its_family)
{
    char name[16];
    fa_render_architecture(NULL, &gpu_l4, name, sizeof name);
    CHECK_TEXT(name, "sm_89");
    CHECK_OK(render_small("x\n", "", ""), diag);
    fa_render_architecture(f.families.family[0], &gpu_h200, name, sizeof name);
    CHECK_TEXT(name, "sm_90");
    CHECK_OK(render_parts("\"ROW\": 1", ", \"arch_suffix\": \"a\"", "", "", ""), diag);
    fa_render_architecture(f.families.family[0], &gpu_h200, name, sizeof name);
    CHECK_TEXT(name, "sm_90a");
}

/* Does a change of other.cuh change the key of the small family with these texts? */
static int depends_on_other(const char *template, const char *header)
{
    char key[2][FA_HASH_HEX];
    for (int i = 0; i < 2; i++) {
        if (render_small(template, header, i == 0 ? "int one;\n" : "int two;\n") != 0)
            return -1;
        fa_render_key(f.templates, source.data, "-O", "sm_89", "13.0 a b", key[i]);
    }
    return strcmp(key[0], key[1]) != 0;
}

OWN_TEST(a_key_holds_exactly_the_headers_that_may_be_included)
{
    CHECK_INT(depends_on_other("#include \"small.cuh\"\n", "int x;\n"), 0);
    CHECK_INT(depends_on_other("int x; // includes nothing\n", "#include \"other.cuh\"\n"), 0);
    CHECK_INT(depends_on_other("#include \"other.cuh\"\n", ""), 1);
    CHECK_INT(depends_on_other("#include \"small.cuh\"\n", "#include \"other.cuh\"\n"), 1);
    CHECK_INT(depends_on_other("#  include\t<other.cuh>\n", ""), 1);
    CHECK_INT(depends_on_other("#include \"small.cuh\"\n", "#include \"small.cuh\"\n"), 0);
}

/* What a scanner cannot follow counts as including everything. */
OWN_TEST(doubtful_includes_count_every_header)
{
    static const char *const rows[] = {
        "#define H \"other.cuh\"\n#include H\n", "#inc\\\nlude \"other.cuh\"\n",
        "#\\\ninclude \"other.cuh\"\n", "#/**/include \"other.cuh\"\n", "%:include \"other.cuh\"\n",
        /* NVRTC 13.0 takes each of these for an include. */
        "%\\\n:include \"other.cuh\"\n", "#\finclude \"other.cuh\"\n", "#\vinclude \"other.cuh\"\n",
        "#\rinclude \"other.cuh\"\n", "#include_next \"other.cuh\"\n",
        "#include \"ot\\\nher.cuh\"\n", "#include \"elsewhere.h\"\n",
        "#if __has_include(\"other.cuh\")\n#endif\n"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_INT(depends_on_other(rows[i], ""), 1);
    CHECK_INT(depends_on_other("#include \"small.cuh\"\n", "#include MACRO\n"), 1);
}

OWN_TEST(every_input_changes_the_key)
{
    CHECK_OK(start_built_in(), diag);
    static const char *const inputs[][4] = {
        {"int a;", "-O", "sm_89", "13.0"}, {"int b;", "-O", "sm_89", "13.0"},
        {"int a;", "-P", "sm_89", "13.0"}, {"int a;", "-O", "sm_90", "13.0"},
        {"int a;", "-O", "sm_89", "13.1"}, {"int a;-", "O", "sm_89", "13.0"}};
    char key[6][FA_HASH_HEX], again[FA_HASH_HEX];
    for (int i = 0; i < 6; i++)
        fa_render_key(f.templates, inputs[i][0], inputs[i][1], inputs[i][2], inputs[i][3], key[i]);
    fa_render_key(f.templates, inputs[0][0], inputs[0][1], inputs[0][2], inputs[0][3], again);
    CHECK_TEXT(again, key[0]);
    CHECK_INT(strlen(again), 64);
    for (int i = 0; i < 6; i++)
        for (int j = i + 1; j < 6; j++)
            CHECK(strcmp(key[i], key[j]) != 0);
}

OWN_TEST(what_depends_on_a_problems_size_is_not_rendered)
{
    const fa_gpu *const gpus[] = {&gpu_l4, &gpu_h200};
    fa_problem other = problem_512;
    other.batch = 1;
    other.heads_q = other.heads_kv = 3;
    other.seq_q = 7777;
    other.seq_k = 130;
    CHECK_OK(start_built_in(), diag);
    for (size_t g = 0; g < 2; g++) {
        const fa_task beside = {&f.families, &other, gpus[g]};
        CHECK_OK(enumerate(gpus[g]), diag);
        CHECK(space.survivors > 7);
        for (int i = 0, survivors = 0; i < space.count; i++) {
            fa_candidate there;
            fa_buf b = {0};
            const fa_candidate *here = &space.candidate[i];
            if (here->trial.status != FA_STATUS_PENDING || survivors++ % 7 != 0)
                continue;
            fa_buf_free(&source);
            CHECK_OK(fa_space_one(&beside, &here->trial.config, &there, &diag), diag);
            CHECK_OK(fa_render(f.templates, &task, here, &source, &diag), diag);
            CHECK_OK(fa_render(f.templates, &beside, &there, &b, &diag), diag);
            CHECK_TEXT(b.data, source.data);
            fa_buf_free(&b);
        }
    }
}
