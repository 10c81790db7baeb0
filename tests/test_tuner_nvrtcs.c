/* SPDX-License-Identifier: Apache-2.0
 *
 * Each NVRTC that users have compiles every family: the default config for a GPU that the family serves. The oldest version, 12.8 and the
 * newest share the families, a third each; the defaults of all compete. A text that a version has compiled is not compiled again in later
 * runs: an empty file in the version's folder has its hash. With FA_TEST_SLOW=1 every minor version compiles all families, always, and the
 * references. `./dev test` fetches what python/nvrtcs.txt names; a version that is not there is skipped. Each version has a process of its
 * own, forked before any is loaded: they keep their memory, and export the same names.
 */
#define CHECK_OWN_MAIN
#include "check.h"

#include "attn_fixture.h"
#include "buf.h"
#include "cubin.h"
#include "fa_problem.h"
#include "operation.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>

enum { VERSIONS_MAX = 64, STACK_ALLOWED = 16 /* as job.c has it */ };

/* What families are for: every one serves some of it. */
static const struct use {
    const char *gpu, *operation;
    const char *fields[5][2];
} uses[] = {
    {"T4", "attn_fwd", {{NULL, NULL}}},
    {"L4", "attn_fwd", {{NULL, NULL}}},
    {"H200", "attn_fwd", {{NULL, NULL}}},
    {"RTX 5090", "attn_fwd", {{NULL, NULL}}},
    {"A100-SXM4-80GB",
     "attn_fwd",
     {{"seq_q", "1"}, {"seq_k", "8192"}, {"page", "16"}, {"kv_dtype", "fp8"}}},
    {"A100-SXM4-80GB", "attn_fwd", {{"varlen", "true"}, {"lengths_k", "seqused"}, {"page", "16"}}},
    {"H200",
     "attn_fwd",
     {{"buffers", "x:i32[:,:]"}, {"mask", "x[b][q] == x[b][k]"}, {"score", "score + x[h][k]"}}},
    {"H200", "attn_fwd", {{"varlen", "true"}, {"lengths_k", "seqused"}, {"page", "64"}}},
    {"H200", "attn_fwd", {{"seq_q", "32"}, {"lengths_k", "seqused"}, {"page", "64"}}},
    {"L4", "attn_fwd", {{"q_dtype", "fp8"}, {"kv_dtype", "fp8"}}},
    {"H200", "attn_fwd", {{"q_dtype", "fp8"}, {"kv_dtype", "fp8"}}},
    {"H200",
     "attn_fwd",
     {{"head_dim", "576"},
      {"head_dim_v", "512"},
      {"v_in_k", "true"},
      {"seq_q", "1"},
      {"heads_kv", "1"}}},
    {"H200",
     "attn_fwd",
     {{"head_dim", "576"},
      {"head_dim_v", "512"},
      {"v_in_k", "true"},
      {"dtype", "bf16"},
      {"kv_dtype", "fp8_ds_mla"}}},
    {"L4", "attn_bwd", {{NULL, NULL}}},
    {"H200", "attn_bwd", {{"head_dim", "128"}}},
    {"H200", "attn_bwd", {{"head_dim", "256"}}},
    {"L4", "gemm", {{NULL, NULL}}},
    {"H200", "gemm", {{NULL, NULL}}},
    {"L4", "rms_norm", {{NULL, NULL}}},
    {"H200", "rms_norm", {{"dtype", "bf16"}}},
};

/* What an older version has no instruction for, on Hopper or (0) anywhere; docs/python.md names it. */
static const struct lack {
    const char *family;
    int since; /* as fa_nvrtc_since() */
    int sm;
} lacks[] = {{"attn_bwd_sm80", 1201, 90},
             {"attn_bwd_sm90a", 1203, 90},
             {"attn_bwd_wide_sm90a", 1203, 90},
             {"attn_fwd_fp8_sm89", 1204, 0}};

static struct fixture fixture;
static bool slow;

static bool lacking(const char *family, const fa_gpu *gpu, int version)
{
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        if ((lacks[i].sm == 0 || gpu->sm == lacks[i].sm) && version < lacks[i].since &&
            strcmp(family, lacks[i].family) == 0)
            return true;
    return false;
}

/* The file that says that this version has compiled the text, with the same options. */
static void name_passed(char ret_path[5000], const fa_buf *source, const fa_family *family,
                        const fa_gpu *gpu)
{
    fa_hash hash;
    char hex[FA_HASH_HEX], architecture[16], options[1000];
    fa_render_architecture(family, gpu, architecture, sizeof architecture);
    fa_nvrtc_options(architecture, options, sizeof options);
    fa_hash_init(&hash);
    fa_hash_part(&hash, source->data, source->size);
    fa_hash_text(&hash, options);
    for (int i = 0; i < fixture.header_count; i++)
        fa_hash_text(&hash, fixture.header_text[i]);
    fa_hash_final(&hash, hex);
    snprintf(ret_path, 5000, "%s/passed-%s", getenv("FA_TUNE_NVRTC"), hex);
}

static int compile_family(const fa_task *task, int index, bool compiles, fa_diag *diag)
{
    char passed[5000];
    const fa_family *family = task->families->family[index];
    fa_candidate candidate;
    fa_cubin_info info;
    fa_buf source = {0}, cubin = {0};
    int rc = fa_space_default(task, index, &candidate, diag);
    if (rc == 0 && candidate.trial.status != FA_STATUS_PENDING)
        rc = fa_fail(diag, FA_ENOKERNEL, "the default: %s", candidate.trial.reason);
    if (rc != 0 || !compiles)
        return rc;
    rc = fa_render(fixture.templates, task, &candidate, &source, diag);
    if (rc == 0) {
        name_passed(passed, &source, family, task->gpu);
        if (!slow && access(passed, F_OK) == 0) {
            fa_buf_free(&source);
            return 0;
        }
        rc = fixture_compile(&fixture, &source, family, task->gpu, &cubin, diag);
    }
    for (int i = 0; i < family->launch_count && rc == 0; i++) {
        rc = fa_cubin_read(cubin.data, cubin.size, family->launch[i].entry, &info, diag);
        if (rc == 0 && (info.sm != task->gpu->sm || info.stack_bytes > STACK_ALLOWED))
            rc = fa_fail(diag, FA_ECORRUPT, "a cubin for sm_%d that spills %d B", info.sm,
                         info.stack_bytes);
    }
    fa_buf_free(&cubin);
    if (rc == 0)
        close(open(passed, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    return rc;
}

struct run {
    int version;
    bool wanted[64], done[64]; /* [families] */
    int compiled, wrong;
};

/* Each family that is wanted and serves it, once. */
static int compile_use(struct run *run, const struct use *use, fa_diag *diag)
{
    const fa_operation *operation;
    fa_gpu gpu;
    fa_buf cubin = {0}, source = {0};
    int rc = fa_catalogue_find(use->gpu, &gpu, diag);
    if (rc == 0)
        rc = fa_operation_find(use->operation, &operation, diag);
    if (rc != 0 || (gpu.sm > 90 && run->version < fa_nvrtc_since(gpu.sm)))
        return rc;
    fa_problem problem = fa_problem_some(operation);
    for (int i = 0; i < 5 && use->fields[i][0] != NULL && rc == 0; i++)
        rc = fa_set_field(&problem, use->fields[i][0], use->fields[i][1], diag);
    const fa_task task = {&fixture.families, &problem, &gpu};
    if (rc == 0 && slow && (rc = fa_render_reference(fixture.templates, &task, &source, diag)) == 0)
        rc = fixture_compile(&fixture, &source, NULL, &gpu, &cubin, diag);
    fa_buf_free(&cubin);
    for (int i = 0; i < fixture.families.count && rc == 0; i++) {
        const fa_family *family = fixture.families.family[i];
        if (family->operation != operation || fa_family_supports(family, &problem, &gpu, NULL) != 0)
            continue;
        fa_diag why = {{0}};
        const bool compiles = run->wanted[i] && (slow || !run->done[i]);
        int is = compile_family(&task, i, compiles, &why);
        bool expected = compiles && lacking(family->name, &gpu, run->version)
                            ? is == FA_ECOMPILE && strstr(why.text, "12.4 and newer") != NULL
                            : is == 0;
        if (!expected)
            printf("# %s for %s: %s\n", family->name, use->gpu,
                   is == 0 ? "compiles after all" : why.text);
        run->wrong += !expected;
        run->compiled += compiles && is == 0;
        run->done[i] |= compiles;
    }
    return rc;
}

/* In a process of its own. */
static bool compile_all(const char *folder, int version)
{
    struct run run = {.version = version};
    fa_diag diag = {{0}};
    setenv("FA_TUNE_NVRTC", folder, 1);
    const int families = fixture.families.count, third = version < 1208 ? 0 : version > 1208 ? 2 : 1;
    for (int i = 0; i < families; i++)
        run.wanted[i] = slow || i % 3 == third;
    int rc = fixture_nvrtc(&diag);
    for (size_t i = 0; i < sizeof uses / sizeof *uses && rc == 0; i++)
        rc = compile_use(&run, &uses[i], &diag);
    if (rc != 0)
        printf("# %s\n", diag.text);
    for (int i = 0; i < families && rc == 0; i++)
        if (run.wanted[i] && !run.done[i]) {
            printf("# nothing is here for %s\n", fixture.families.family[i]->name);
            run.wrong++;
        }
    printf("# NVRTC %d.%d: %d families compile\n", version / 100, version % 100, run.compiled);
    return rc == 0 && run.wrong == 0;
}

static void try_version(const char *folder, int version)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bool right = compile_all(folder, version);
        fflush(stdout);
        _exit(right ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
}

/* Versions that were fetched, in order, as 100 * major + minor. */
static int list_versions(int ret_version[VERSIONS_MAX], const char *root)
{
    int count = 0, major, minor;
    struct dirent **entries;
    int entry_count = scandir(root, &entries, NULL, versionsort);
    for (int i = 0; i < entry_count; i++) {
        if (sscanf(entries[i]->d_name, "%d.%d", &major, &minor) == 2 && count < VERSIONS_MAX)
            ret_version[count++] = 100 * major + minor;
        free(entries[i]);
    }
    if (entry_count >= 0)
        free(entries);
    return count;
}

enum { OLDEST = -1, NEWEST = -2 };

/* Tries the versions from first to last, or one alone. */
static void try_range(int first, int last)
{
    int version[VERSIONS_MAX], tried = 0;
    char root[3000], folder[4000];
    const char *kept = getenv("FA_TEST_KEPT");
    snprintf(root, sizeof root, "%s/nvrtc", kept != NULL ? kept : "");
    int count = kept != NULL ? list_versions(version, root) : 0;
    if (first == OLDEST)
        first = last = count > 0 && version[0] < 1208 ? version[0] : 0;
    else if (first == NEWEST)
        first = last = count > 0 && version[count - 1] > 1300 ? version[count - 1] : 0;
    for (int i = 0; i < count; i++) {
        if (version[i] < first || version[i] > last)
            continue;
        snprintf(folder, sizeof folder, "%s/%d.%d", root, version[i] / 100, version[i] % 100);
        try_version(folder, version[i]);
        tried++;
        if (check_state.failed)
            return;
    }
    if (tried == 0)
        SKIP("it was not fetched");
}

TEST(the_oldest_nvrtc_compiles_families)
{
    try_range(OLDEST, OLDEST);
}

TEST(nvrtc_12_8_compiles_families)
{
    try_range(1208, 1208);
}

TEST(the_newest_nvrtc_compiles_families)
{
    try_range(NEWEST, NEWEST);
}

TEST(every_minor_version_compiles_every_family)
{
    if (!slow)
        SKIP("only with --slow");
    try_range(1200, 9999);
}

int main(void)
{
    fa_diag diag = {{0}};
    slow = getenv("FA_TEST_SLOW") != NULL;
    int rc = fixture_open(&fixture, &diag);
    fa_families_free(&fixture.families);
    if (rc == 0)
        rc = fa_families_load(fixture.templates, NULL, &fixture.families, &diag);
    if (rc != 0)
        printf("Bail out! %s\n", diag.text);
    else
        check_all();
    fixture_close(&fixture);
    return rc == 0 ? check_done() : 1;
}
