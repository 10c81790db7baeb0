/* SPDX-License-Identifier: Apache-2.0
 *
 * A family whose call is two launches with a workspace: tuned, proved, and launched in the caller's
 * context. Both launches compute the same, as the fake driver runs every attn_fwd alike.
 */
#include "engine_fixture.h"
#include "threads.h"

static const char two_launches[] =
    "#include \"attn_params.h\"\n"
    "extern \"C\" __global__ void __launch_bounds__(FA_THREADS)\n"
    "attn_fwd(fa_attn_params p, float *workspace)\n"
    "{\n"
    "    workspace[threadIdx.x] = p.softmax_scale;\n"
    "    static_cast<char *>(p.o)[threadIdx.x] = BLOCK_M + BLOCK_N + STAGES;\n"
    "}\n";

static const char *workspace_wanted;

/* The family's manifest with its one launch twice, the second on another grid. */
static void split_launch(cJSON *manifest)
{
    static const char *const moved[] = {"kernel", "block", "grid", "shared_memory"};
    cJSON *launch = cJSON_CreateObject();
    for (size_t i = 0; i < 4; i++)
        cJSON_AddItemToObject(launch, moved[i], cJSON_DetachItemFromObject(manifest, moved[i]));
    cJSON *second = cJSON_Duplicate(launch, true);
    cJSON *grid = cJSON_CreateArray();
    cJSON_AddItemToArray(grid, cJSON_DetachItemFromObject(second, "grid"));
    cJSON_AddItemToArray(grid, cJSON_CreateString("2 + SEQ_Q / 128"));
    cJSON_AddItemToObject(second, "grid", grid);
    cJSON *launches = cJSON_AddArrayToObject(manifest, "launches");
    cJSON_AddItemToArray(launches, launch);
    cJSON_AddItemToArray(launches, second);
    cJSON_AddStringToObject(manifest, "workspace", workspace_wanted);
}

static void let_count(cJSON *manifest)
{
    cJSON_AddStringToObject(manifest, "counters", "1");
    cJSON_AddStringToObject(manifest, "workspace", workspace_wanted);
}

static const char counting[] =
    "#include \"attn_serving_params.h\"\n"
    "extern \"C\" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)\n"
    "attn_fwd(const __grid_constant__ fa_attn_serving_params p)\n"
    "{\n"
    "    p.counters[threadIdx.x] = 0;\n"
    "    static_cast<char *>(p.dense.o)[threadIdx.x] = BLOCK_M + BLOCK_N + STAGES;\n"
    "}\n";

/* A function of the fake driver's that is none of CUDA's. */
static bool find_in_fake(const char *name, void *ret_function)
{
    void *library = dlopen(getenv("FA_TEST_FAKE_CUDA"), RTLD_NOW);
    *(void **)ret_function = library != NULL ? dlsym(library, name) : NULL;
    return *(void **)ret_function != NULL;
}

/* A session whose one family is this kernel with a manifest that was changed so. */
static bool open_changed(engine_fixture *f, const char *kernel, void (*change)(cJSON *manifest),
                         const char *workspace)
{
    workspace_wanted = workspace;
    return fixture_open(f, "") && fixture_write_kernel(f, kernel) &&
           fixture_change_manifest(f, f->templates, change) && fixture_restart(f, "");
}

enum { COUNT = 2 * 128 * 64, SIZE = COUNT * 2 };

ENGINE_TEST(a_call_runs_all_its_launches_with_a_workspace_that_the_kernel_owns)
{
    const fa_kernel *kernel;
    fa_device_ptr tensor[4] = {0};
    fa_attn_args args;
    CHECK(open_changed(&f, two_launches, split_launch, "BATCH * SEQ_Q * 4"));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
    CHECK(fa_kernel_answer(kernel)->proved > 0);
    CHECK_OK(fixture_tensors(&f, SIZE, tensor, &args, &diag), diag);
    int before = fixture_logged(&f, "launch attn_fwd ");
    CHECK_OK(fa_launch(kernel, &args, NULL, &diag), diag);
    CHECK_INT(fixture_logged(&f, "launch attn_fwd ") - before, 2);
    CHECK(fixture_output(&f, tensor[3], SIZE, COUNT, &diag));
    fixture_free_tensors(&f, tensor);
}

/* The fake driver ends the context where counters of one stream or graph are given to another. */
TEST(streams_and_captured_graphs_count_apart)
{
    enum { STREAMS = 5, RECAPTURES = 3000 };
    int (*capture)(fa_stream stream, int on), (*destroy_graphs)(void);
    fa_stream stream[STREAMS] = {NULL}; /* the first is the default one */
    size_t before = 0, after = 0, total;
    engine_fixture f;
    const fa_kernel *kernel;
    fa_device_ptr tensor[4] = {0};
    fa_attn_args args;
    CHECK(open_changed(&f, counting, let_count, "0"));
    CHECK(find_in_fake("fake_cuda_capture", &capture));
    CHECK(find_in_fake("fake_cuda_destroy_graphs", &destroy_graphs));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK(fa_kernel_answer(kernel)->proved > 0);
    CHECK_INT((int)fa_kernel_workspace(kernel), 0);
    CHECK_OK(fixture_tensors(&f, SIZE, tensor, &args, &diag), diag);
    for (int i = 1; i < STREAMS; i++)
        CHECK_OK(fa_stream_create(f.driver, &stream[i], &diag), diag);
    for (int i = 0; i < 8 * STREAMS; i++) {
        bool captured = i % 3 == 2;
        CHECK_OK(fa_fill8(f.driver, tensor[3], 0xff, SIZE, NULL, &diag), diag);
        if (captured)
            CHECK_INT(capture(stream[i % STREAMS], 1), 0);
        for (int again = 0; again < 2; again++)
            CHECK_OK(fa_launch(kernel, &args, stream[i % STREAMS], &diag), diag);
        if (captured)
            CHECK_INT(capture(NULL, 0), 0);
        CHECK(fixture_output(&f, tensor[3], SIZE, COUNT, &diag));
        if (i % STREAMS == 4) { /* a new stream, maybe at the address of the old one */
            fa_stream_destroy(f.driver, &stream[4]);
            CHECK_OK(fa_stream_create(f.driver, &stream[4], &diag), diag);
        }
    }
    CHECK_OK(fa_device_memory(f.driver, &before, &total, &diag), diag);
    for (int i = 0; i < RECAPTURES; i++) {
        CHECK_INT(capture(stream[1], 1), 0);
        CHECK_OK(fa_launch(kernel, &args, stream[1], &diag), diag);
        CHECK_INT(capture(NULL, 0), 0);
        if (i % 100 == 99)
            CHECK_INT(destroy_graphs(), 0);
    }
    CHECK_OK(fa_device_memory(f.driver, &after, &total, &diag), diag);
    CHECK(after == before); /* what a destroyed graph had serves the next one */
    CHECK_OK(fa_fill8(f.driver, tensor[3], 0xff, SIZE, NULL, &diag), diag);
    CHECK_INT(capture(stream[2], 1), 0);
    CHECK_OK(fa_launch(kernel, &args, stream[2], &diag), diag);
    CHECK_INT(capture(NULL, 0), 0);
    CHECK(fixture_output(&f, tensor[3], SIZE, COUNT,
                         &diag)); /* in counters that a graph left, and not as zeros */
    fixture_free_tensors(&f, tensor);
    fixture_close(&f);
    CHECK_INT(destroy_graphs(), 0); /* a graph may outlive the tuner */
}

/* Launches on new streams, one after another, of which a few are there at a time; each launches twice, around others'. */
static int launch_on_streams(fa_driver *driver, const fa_kernel *const kernel[2],
                             const fa_attn_args *args, int count, fa_diag *diag)
{
    enum { ALIVE = 3 };
    fa_stream stream[ALIVE] = {NULL};
    int rc = 0;
    for (int i = 0; rc == 0 && i < count; i++) {
        fa_stream *now = &stream[i % ALIVE], before = stream[(i + ALIVE - 1) % ALIVE];
        fa_stream_destroy(driver, now);
        rc = fa_stream_create(driver, now, diag);
        if (rc == 0)
            rc = fa_launch(kernel[i / 100 % 2], args, *now, diag);
        if (rc == 0 && before != NULL)
            rc = fa_launch(kernel[i / 100 % 2], args, before, diag);
    }
    for (int i = 0; i < ALIVE; i++)
        fa_stream_destroy(driver, &stream[i]);
    return rc;
}

struct launching {
    fa_driver *driver;
    const fa_kernel *const *kernel;
    const fa_attn_args *args;
    int rc;
    fa_diag diag;
};

static void *launch_beside(void *context)
{
    struct launching *l = context;
    l->rc = fa_driver_enter(l->driver, 0, &l->diag);
    if (l->rc == 0) {
        l->rc = launch_on_streams(l->driver, l->kernel, l->args, 200, &l->diag);
        fa_driver_leave(l->driver);
    }
    return NULL;
}

/* The fake driver ends the context where counters pass to a stream that neither waited for their last launch nor saw that
 * it had ended. A small kernel leaves half of what the larger one is given afterwards. */
ENGINE_TEST(memory_of_streams_that_are_gone_serves_others)
{
    enum { STREAMS = 500, OF_ONE = (1 << 19) + (1 << 18), KEPT = 16, MOST = 64, THREADS = 4 };
    struct launching beside[THREADS];
    int (*busy)(int on), (*capture)(fa_stream stream, int on);
    size_t before = 0, after = 0, total;
    const fa_kernel *kernel[2];
    fa_stream captured = NULL;
    fa_device_ptr tensor[4] = {0};
    fa_attn_args args;
    fa_problem smaller = small_problem;
    smaller.seq_q = 64;
    CHECK(open_changed(&f, counting, let_count, "SEQ_Q * 4096"));
    CHECK(find_in_fake("fake_cuda_busy", &busy) && find_in_fake("fake_cuda_capture", &capture));
    CHECK_OK(fa_get_best_kernel(f.tuner, &smaller, FA_EFFORT_MEASURE, &kernel[0], &diag), diag);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel[1], &diag),
             diag);
    CHECK_INT((int)fa_kernel_workspace(kernel[0]), 1 << 18);
    CHECK_INT((int)fa_kernel_workspace(kernel[1]), 1 << 19);
    CHECK_OK(fixture_tensors(&f, SIZE, tensor, &args, &diag), diag);
    CHECK_OK(fa_stream_create(f.driver, &captured, &diag), diag);
    CHECK_OK(fa_device_memory(f.driver, &before, &total, &diag), diag);
    for (int round = 0; round < 2; round++) {
        CHECK_INT(busy(round), 0); /* of a busy GPU no launch has ended when the next stream asks */
        CHECK_OK(launch_on_streams(f.driver, kernel, &args, STREAMS, &diag), diag);
        CHECK_OK(fa_device_memory(f.driver, &after, &total, &diag), diag);
        CHECK(before - after <= (size_t)(round == 0 ? KEPT + 3 : MOST) * OF_ONE);
    }
    CHECK_INT(busy(0), 0);
    CHECK_INT(capture(captured, 1), 0); /* of another thread's, which must not end by our queries */
    CHECK_OK(launch_on_streams(f.driver, kernel, &args, 4, &diag), diag);
    CHECK_INT(capture(NULL, 0), 0);
    for (int i = 0; i < THREADS; i++)
        beside[i] = (struct launching){.driver = f.driver, .kernel = kernel, .args = &args};
    CHECK_INT(run_threads(launch_beside, beside, sizeof *beside, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_OK(beside[i].rc, beside[i].diag);
    CHECK(fixture_output(&f, tensor[3], SIZE, COUNT, &diag));
    fa_stream_destroy(f.driver, &captured);
    fixture_free_tensors(&f, tensor);
}

ENGINE_TEST(a_kernel_that_takes_no_workspace_is_refused_where_the_manifest_has_one)
{
    fa_request request = small_request("L4", FA_EFFORT_MEASURE);
    fa_answer answer = {.size = sizeof answer};
    CHECK(open_changed(&f, two_launches, split_launch, "4096"));
    CHECK(fixture_write_kernel(&f, "#include \"attn_params.h\"\n"
                                   "extern \"C\" __global__ void attn_fwd(fa_attn_params p) {}\n"));
    CHECK(fixture_restart(&f, ""));
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ENOKERNEL);
    CHECK(fixture_reasons(f.tuner, &request, "does not take just fa_attn_params") > 0);
}

/* ---- an operation that operation.json alone describes ------------------------------------------*/
enum { ROWS = 8, COLUMNS = 64, ELEMENTS = ROWS * COLUMNS };
typedef struct rows_fixture {
    engine_fixture f;
    fa_problem problem;
    const fa_kernel *kernel;
    fa_device_ptr at[3]; /* x, w, y */
    fa_tensor_arg tensor[3];
    float epsilon;
    const void *given[4];
    fa_args args;
} rows_fixture;

static const uint16_t one = 0x3c00, two = 0x4000, nothing = 0x7e00;

static bool open_rows(rows_fixture *r, const char *script, fa_diag *diag)
{
    char path[512];
    uint16_t host[ELEMENTS];
    const fa_operation *rows = NULL;
    *r = (rows_fixture){.epsilon = 1e-5f};
    snprintf(path, sizeof path, "%s/tests/operations", getenv("FA_TEST_SOURCE"));
    if (!fixture_open(&r->f, script))
        return false;
    fa_close(&r->f.tuner);
    fa_options options = fixture_options(&r->f);
    options.templates = path;
    if (fa_open(&options, &r->f.tuner, diag) != 0 ||
        fa_find_operation("l1_norm", &rows, diag) != 0 ||
        fa_make_problem(rows, &r->problem) != 0 ||
        fa_set_field(&r->problem, "rows", "8", diag) != 0 ||
        fa_set_field(&r->problem, "columns", "64", diag) != 0 ||
        fa_get_best_kernel(r->f.tuner, &r->problem, FA_EFFORT_MEASURE, &r->kernel, diag) != 0)
        return false;
    for (int i = 0; i < ELEMENTS; i++)
        host[i] = two;
    for (int i = 0; i < 3; i++) {
        if (fa_device_alloc(r->f.driver, sizeof host, &r->at[i], diag) != 0 ||
            fa_copy_to_device(r->f.driver, r->at[i], host, sizeof host, diag) != 0)
            return false;
        r->tensor[i].data = (void *)(uintptr_t)r->at[i];
        r->given[i] = &r->tensor[i];
    }
    r->given[3] = &r->epsilon;
    r->args = (fa_args){.size = sizeof r->args, .count = 4, .at = r->given};
    return true;
}

static void close_rows(rows_fixture *r)
{
    for (int i = 0; i < 3; i++)
        fa_device_free(r->f.driver, &r->at[i]);
    fixture_close(&r->f);
}

static bool read_output(const rows_fixture *r, uint16_t ret_output[ELEMENTS])
{
    return fa_copy_from_device(r->f.driver, ret_output, r->at[2], ELEMENTS * sizeof *ret_output,
                               NULL) == 0;
}

/* x and w are 2 everywhere: y is 2 * 2 / 2. With an epsilon of 2 it is 2 * 2 / 4. */
TEST(a_kernel_of_any_operation_is_launched_with_its_arguments)
{
    rows_fixture r;
    uint16_t output[ELEMENTS];
    CHECK(open_rows(&r, "", &diag));
    CHECK_INT(fa_kernel_answer(r.kernel)->origin, FA_ORIGIN_MEASURED);
    for (int round = 0; round < 2; round++) {
        r.epsilon = round == 0 ? 0.0f : 2.0f;
        CHECK_OK(fa_fill16(r.f.driver, r.at[2], nothing, ELEMENTS, NULL, &diag), diag);
        CHECK_OK(fa_launch_args(r.kernel, &r.args, NULL, &diag), diag);
        CHECK(read_output(&r, output));
        for (int i = 0; i < ELEMENTS; i++)
            CHECK_INT(output[i], round == 0 ? two : one);
    }
    close_rows(&r);
}

/* Its two launches share a workspace, which the caller does not bring. */
TEST(workspaces_of_any_operation_serve_the_streams_that_come)
{
    rows_fixture r;
    uint16_t output[ELEMENTS];
    size_t before = 0, after = 0, total;
    CHECK(open_rows(&r, "time l1_norm_split 1\n", &diag));
    CHECK(fa_kernel_workspace(r.kernel) > 0);
    r.epsilon = 0;
    CHECK_OK(fa_device_memory(r.f.driver, &before, &total, &diag), diag);
    for (int i = 0; i < 300; i++) {
        fa_stream stream = NULL;
        CHECK_OK(fa_stream_create(r.f.driver, &stream, &diag), diag);
        CHECK_OK(fa_fill16(r.f.driver, r.at[2], nothing, ELEMENTS, NULL, &diag), diag);
        CHECK_OK(fa_launch_args(r.kernel, &r.args, stream, &diag), diag);
        fa_stream_destroy(r.f.driver, &stream);
    }
    CHECK_OK(fa_device_memory(r.f.driver, &after, &total, &diag), diag);
    CHECK(before - after <= (size_t)17 << 16); /* of 64 KiB each, the least */
    CHECK(read_output(&r, output));
    for (int i = 0; i < ELEMENTS; i++)
        CHECK_INT(output[i], two);
    close_rows(&r);
}

TEST(arguments_are_told_with_the_shapes_of_the_problem)
{
    static const char *const names[] = {"x", "w", "y", "epsilon"};
    rows_fixture r;
    fa_argument argument = {.size = sizeof argument};
    CHECK(open_rows(&r, "", &diag));
    for (int i = 0; i < 4; i++) {
        CHECK_INT(fa_kernel_argument(r.kernel, i, &argument), 0);
        CHECK(strcmp(argument.name, names[i]) == 0);
        CHECK(strcmp(argument.dtype, i < 3 ? "fp16" : "fp32") == 0);
        CHECK(argument.tensor == (i < 3) && argument.output == (i == 2) && argument.needed);
        CHECK_INT(argument.dims, i == 1 ? 1 : i < 3 ? 2 : 0);
        CHECK_INT((int)argument.shape[0], i == 1 ? COLUMNS : i < 3 ? ROWS : 0);
    }
    CHECK_INT(fa_kernel_argument(r.kernel, 4, &argument), FA_ENOTFOUND);
    CHECK_INT(fa_kernel_argument(r.kernel, -1, &argument), FA_ENOTFOUND);
    argument.size = 4;
    CHECK_INT(fa_kernel_argument(r.kernel, 0, &argument), FA_EINVAL);
    CHECK_INT(fa_kernel_argument(NULL, 0, &argument), FA_EINVAL);
    close_rows(&r);
}

/* Each is refused before anything is launched. */
TEST(wrong_arguments_leave_the_output_as_it_was)
{
    rows_fixture r;
    uint16_t output[ELEMENTS];
    fa_attn_args of_attention = {.size = sizeof of_attention};
    CHECK(open_rows(&r, "", &diag));
    CHECK_OK(fa_fill16(r.f.driver, r.at[2], nothing, ELEMENTS, NULL, &diag), diag);
    r.args.count = 3;
    CHECK_FAILS(fa_launch_args(r.kernel, &r.args, NULL, &diag), FA_EINVAL, "3 arguments");
    r.args.count = 4;
    r.args.size = 8;
    CHECK_INT(fa_launch_args(r.kernel, &r.args, NULL, &diag), FA_EINVAL);
    r.args.size = sizeof r.args;
    r.given[1] = NULL;
    CHECK_FAILS(fa_launch_args(r.kernel, &r.args, NULL, &diag), FA_EINVAL, "w is NULL");
    r.given[1] = &r.tensor[1];
    r.tensor[0].data = (char *)r.tensor[0].data + 8;
    CHECK_FAILS(fa_launch_args(r.kernel, &r.args, NULL, &diag), FA_EALIGN,
                "x must be 16-byte aligned");
    r.tensor[0].data = (char *)r.tensor[0].data - 8;
    r.epsilon = NAN;
    CHECK_FAILS(fa_launch_args(r.kernel, &r.args, NULL, &diag), FA_EINVAL, "epsilon");
    CHECK_INT(fa_launch_args(NULL, &r.args, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_launch_args(r.kernel, NULL, NULL, &diag), FA_EINVAL);
    CHECK_FAILS(fa_launch(r.kernel, &of_attention, NULL, &diag), FA_ENOTSUP, "fa_launch_args");
    CHECK(read_output(&r, output));
    for (int i = 0; i < ELEMENTS; i++)
        CHECK_INT(output[i], nothing);
    close_rows(&r);
}

/* tests/specifications/axpy.json: y += a * x, of 64 elements; and the same text read by fa_spec_read(). */
ENGINE_TEST(a_kernel_of_ones_own_is_loaded_from_its_file_and_launched)
{
    enum { N = 64 };
    char path[512], name[96], again[96];
    float host[N], a = 3;
    FA_ENDS(fa_buf_free) fa_buf text = {0}, source = {0};
    const fa_operation *axpy = NULL, *same = NULL;
    const fa_kernel *kernel = NULL;
    fa_device_ptr at[2] = {0};
    fa_tensor_arg tensor[2] = {{0}};
    fa_problem problem;
    fa_argument argument = {.size = sizeof argument};
    CHECK(fixture_open(&f, ""));
    snprintf(path, sizeof path, "%s/tests/specifications/axpy.json", getenv("FA_TEST_SOURCE"));
    CHECK_OK(fa_spec_load(path, &axpy, &diag), diag);
    CHECK_INT(fa_buf_read_file(&text, path, 4096), 0);
    snprintf(path, sizeof path, "%s/tests/specifications/axpy_kernels.cu",
             getenv("FA_TEST_SOURCE"));
    CHECK_INT(fa_buf_read_file(&source, path, 1 << 20), 0);
    CHECK_OK(fa_spec_read("axpy", text.data, source.data, &same, &diag), diag);
    CHECK_OK(fa_spec_name(axpy, name, sizeof name, &diag), diag);
    CHECK_OK(fa_spec_name(same, again, sizeof again, &diag), diag);
    CHECK_TEXT(again, name);
    CHECK_INT(fa_make_problem(axpy, &problem), 0);
    CHECK_OK(fa_set_field(&problem, "n", "64", &diag), diag);
    CHECK_OK(fa_get_best_kernel(f.tuner, &problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_argument(kernel, 0, &argument), 0);
    CHECK(argument.updated && argument.dims == 1 && argument.shape[0] == N);
    CHECK_INT(fa_kernel_argument(kernel, 3, &argument),
              FA_ENOTFOUND); /* n is no caller's to pass */
    for (int i = 0; i < N; i++)
        host[i] = (float)i;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(fa_device_alloc(f.driver, sizeof host, &at[i], &diag), diag);
        CHECK_OK(fa_copy_to_device(f.driver, at[i], host, sizeof host, &diag), diag);
        tensor[i].data = (void *)(uintptr_t)at[i];
    }
    const void *const given[] = {&tensor[0], &tensor[1], &a};
    const fa_args args = {.size = sizeof args, .count = 3, .at = given};
    CHECK_OK(fa_launch_args(kernel, &args, NULL, &diag), diag);
    CHECK_OK(fa_copy_from_device(f.driver, host, at[0], sizeof host, &diag), diag);
    for (int i = 0; i < N; i++)
        CHECK(host[i] >= (float)(4 * i) && host[i] <= (float)(4 * i));
    fa_device_free(f.driver, &at[0]);
    fa_device_free(f.driver, &at[1]);
}

ENGINE_TEST(a_kernel_of_attention_is_not_launched_with_a_list_of_arguments)
{
    const fa_kernel *kernel = NULL;
    fa_argument argument = {.size = sizeof argument};
    fa_args args = {.size = sizeof args};
    CHECK(fixture_open(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(fa_launch_args(kernel, &args, NULL, &diag), FA_ENOTSUP);
    CHECK_INT(fa_kernel_argument(kernel, 0, &argument), FA_ENOTSUP);
}
