/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps without a GPU: what a cubin may ask for, what the driver is told for a tensor, and which
 * tensors TMA does not take. The fake driver compares every map with the launch that it comes with.
 */
static char folder[256];

#define CHECK_OWN_MAIN
#include "device_context.h"
#include "attn_fixture.h"
#include "check.h"
#include "fake_cubin.h"
#include "maps_fixture.h"

enum { ONE = 168, MAPS = 512 }; /* bytes of fa_attn_params and fa_attn_tensor_maps */

static const char dense[] = "family=x;HEAD_DIM=64;DTYPE_BF16=0;CAUSAL=0;";
static const char *marker = dense;
static const struct fa_attn_boxes good_boxes = {64, 128, 1, 96, 80, 64};

static char script[sizeof folder + 8];
static fa_driver *driver;

static int start(const char *lines)
{
    fa_driver_close(&driver);
    int rc =
        check_write_file(script, lines, strlen(lines)) ? fa_driver_open(&driver, &diag) : FA_EIO;
    return rc != 0 ? rc : hold_context(driver, 0, &diag);
}

/* ---- what a cubin wants ----------------------------------------------------------------------*/

static int read_boxes(const struct fa_attn_boxes *boxes, unsigned first, unsigned second,
                      unsigned third, struct fa_attn_boxes *ret)
{
    unsigned char bytes[FAKE_CUBIN_MAX];
    fake_cubin c = {.sm = 90, .entry = "attn_fwd", .registers = 64,
                    .sizes = {first, second, third}, .boxes = boxes};
    size_t size = fake_cubin_build(&c, bytes);
    bool serving;
    return fa_attn_boxes_read(&(fa_cubin_entry){bytes, size, .name = "attn_fwd"}, ret, &serving,
                              &diag);
}

TEST(impossible_boxes_are_refused)
{
    static const struct fa_attn_boxes rows[] = {{0, 64, 1, 64, 64, 64},
                                                {48, 64, 1, 64, 64, 64},
                                                {256, 64, 1, 64, 64, 64},
                                                {64, 0, 1, 64, 64, 64},
                                                {64, 257, 1, 64, 64, 64},
                                                {64, 64, 0, 64, 64, 64},
                                                {64, 64, 4294967295u, 64, 64, 64},
                                                {64, 64, 1, 0, 64, 64},
                                                {64, 64, 1, 64, 257, 64},
                                                {64, 64, 1, 64, 64, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fa_attn_boxes boxes = {.columns = 7};
        CHECK_FAILS(read_boxes(&rows[i], ONE, MAPS, 0, &boxes), FA_ECORRUPT,
                    "16, 32, 64 or 128 columns and 1 to 256 rows can be");
        CHECK_INT(boxes.columns, 7);
    }
}

/* The driver copies as many arguments as the cubin has parameters: it must not read past ours. */
TEST(parameters_that_nobody_would_pass_are_refused)
{
    static const unsigned sizes[][3] = {{ONE, 0, 0},         {0, 0, 0},           {MAPS, ONE, 0},
                                        {ONE, MAPS + 64, 0}, {ONE + 8, MAPS, 0}, {ONE, MAPS, 8}};
    struct fa_attn_boxes boxes;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_FAILS(read_boxes(&good_boxes, sizes[i][0], sizes[i][1], sizes[i][2], &boxes),
                    FA_ECORRUPT, "does not take just fa_attn_params (168 bytes)");
    }
    CHECK_FAILS(read_boxes(NULL, ONE, MAPS, 0, &boxes), FA_ECORRUPT,
                "declares fa_attn_boxes_wanted");
    CHECK_INT(read_boxes(NULL, ONE + 4, 0, 0, &boxes), FA_ECORRUPT);
}

/* What NVRTC leaves in a cubin of a constant that no code reads, and of the two parameters, whose
 * places differ by architecture. */
TEST(boxes_survive_the_real_compiler_on_every_architecture)
{
    static const char *const architectures[] = {"sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a",
                                                "sm_120"};
    struct fixture f = {0};
    FA_ENDS(fa_buf_free) fa_buf source = {0}, cubin = {0}, log = {0};
    if (fixture_nvrtc(&diag) != 0)
        SKIP("NVRTC is missing");
    CHECK_OK(fixture_open(&f, &diag), diag);
    fa_buf_printf(&source, "#define FA_THREADS 384\n#define BLOCK_M 128\n#define BLOCK_N 96\n%s",
                  maps_template(64, 2));
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        const fa_compile_request request =
            fixture_request(&f, "test.cu", &source, architectures[i]);
        const struct fa_attn_boxes expected = {64, 128, 2, 96, 48, 64};
        struct fa_attn_boxes boxes = {0};
        bool serving = true;
        CHECK_OK(fa_nvrtc_compile(&request, &cubin, &log, &diag), diag);
        const fa_cubin_entry entry = {cubin.data, cubin.size, .name = "attn_fwd"};
        CHECK_OK(fa_attn_boxes_read(&entry, &boxes, &serving, &diag), diag);
        CHECK(!serving);
        CHECK(memcmp(&boxes, &expected, sizeof boxes) == 0);
    }
    fixture_close(&f);
}

/* ---- what the driver is told -----------------------------------------------------------------*/

static const fa_tensor_shape good_shape = {
    .rank = 4, .base = 0x10000, .extent = {64, 1000, 8, 2}, .stride = {128, 128000, 1024000},
    .box = {64, 128, 1, 1}};

static int encode(const fa_tensor_shape *shape)
{
    struct fa_tensor_map map;
    return fa_tensor_map_encode(driver, shape, &map, &diag);
}

TEST(shapes_that_tma_does_not_take_are_refused)
{
    CHECK_OK(start(""), diag);
    CHECK_OK(encode(&good_shape), diag);
    fa_tensor_shape shape[16];
    for (int i = 0; i < 16; i++)
        shape[i] = good_shape;
    shape[0].base += 8;
    shape[1].base = 0;
    shape[2].stride[0] = 136;
    shape[3].stride[2] = (uint64_t)1 << 40;
    shape[4].extent[0] = 0;
    shape[5].extent[1] = ((uint64_t)1 << 32) + 1;
    shape[6].extent[2] = ((uint64_t)1 << 32) + 1;
    shape[7].box[1] = 257;
    shape[8].box[1] = 0;
    shape[9].box[0] = 257;
    shape[10].box[0] = 24; /* bytes */
    shape[11].rank = 0;
    shape[12].rank = 6;
    shape[13].stride[1] = 0;
    shape[14].extent[1] = (uint64_t)1 << 32;
    shape[15].stride[2] = ((uint64_t)1 << 40) - 16;
    for (int i = 0; i < 13; i++) {
        CHECK_INT(encode(&shape[i]), FA_EALIGN);
        CHECK(diag.text[0] != 0);
    }
    for (int i = 13; i < 16; i++)
        CHECK_OK(encode(&shape[i]), diag);
    CHECK_OK(start("no_zero_strides\n"), diag);
    CHECK_FAILS(encode(&shape[13]), FA_EALIGN, "cuTensorMapEncodeTiled");
    CHECK(!fa_driver_context_lost(driver));
}

/* ---- launches with maps ----------------------------------------------------------------------*/

static fa_device_ptr memory[4];

/* Two batches of 4 heads over 2, 40 queries and 50 keys of 64, contiguous; freed by the driver's
 * next start. */
static int start_with(const char *lines, struct fa_attn_params *ret)
{
    enum { SQ = 40, SK = 50, D = 64 };
    FA_OR_RETURN(start(lines));
    for (int i = 0; i < 4; i++)
        FA_OR_RETURN(fa_device_alloc(driver, 1 << 20, &memory[i], &diag));
    *ret = (struct fa_attn_params){
        .q = (void *)memory[0], .k = (void *)memory[1], .v = (void *)memory[2],
        .o = (void *)memory[3],
        .q_batch_stride = 4 * SQ * D, .q_head_stride = SQ * D, .q_row_stride = D,
        .k_batch_stride = 2 * SK * D, .k_head_stride = SK * D, .k_row_stride = D,
        .v_batch_stride = 2 * SK * D, .v_head_stride = SK * D, .v_row_stride = D,
        .o_batch_stride = 4 * SQ * D, .o_head_stride = SQ * D, .o_row_stride = D,
        .batch = 2, .heads_q = 4, .heads_kv = 2, .seq_q = SQ, .seq_k = SK,
        .softmax_scale = 0.125f, .softmax_scale_log2 = 0.18033688f};
    return 0;
}

static fa_problem form = {.dtype = FA_FP16, .head_dim = 64};

/* Encodes maps for `encoded` and launches a kernel with them and `launched`. */
static int launch(const struct fa_attn_boxes *boxes, const struct fa_attn_params *encoded,
                  const struct fa_attn_params *launched)
{
    const uint32_t grid[3] = {1, 1, 1};
    unsigned char bytes[FAKE_CUBIN_MAX];
    struct fa_attn_params p = *launched;
    struct fa_attn_tensor_maps maps;
    fa_module *module = NULL;
    fa_function function;
    fake_cubin c = {.sm = 89, .entry = "attn_fwd", .registers = 64, .sizes = {ONE, MAPS},
                    .marker = marker, .boxes = boxes};
    size_t size = fake_cubin_build(&c, bytes);
    void *arguments[] = {&p, &maps};
    struct fa_attn_serving_params params = {.dense = *encoded};
    struct fa_attn_shared shared = {.boxes = *boxes};
    int rc = fa_attn_maps_get(&shared, driver, &form, &params, &maps, &diag);
    if (rc == 0)
        rc = fa_module_load(driver, bytes, size, &module, &diag);
    if (rc == 0)
        rc = fa_module_function(module, "attn_fwd", 0, &function, &diag);
    if (rc == 0)
        rc = fa_launch_kernel(driver, function, grid, (const uint32_t[]){128, 1, 1}, 0, NULL,
                              arguments, &diag);
    fa_module_unload(&module);
    return rc;
}

TEST(maps_say_what_the_launch_says)
{
    struct fa_attn_params p;
    CHECK_OK(start_with("", &p), diag);
    for (unsigned columns = 16; columns <= 64; columns *= 2) {
        struct fa_attn_boxes boxes = good_boxes;
        boxes.columns = columns;
        CHECK_OK(launch(&boxes, &p, &p), diag);
        boxes.q_heads = 2; /* both heads of a group in a box */
        CHECK_OK(launch(&boxes, &p, &p), diag);
        boxes.q_heads = 16;
        CHECK_OK(launch(&boxes, &p, &p), diag);
    }
}

TEST(maps_of_fp8_keys_are_of_bytes)
{
    struct fa_attn_params p;
    const fa_problem usual = form;
    CHECK_OK(start_with("", &p), diag);
    marker = "family=x;HEAD_DIM=64;DTYPE_BF16=0;CAUSAL=0;KV_FP8=1;";
    CHECK(launch(&good_boxes, &p, &p) != 0); /* of 16-bit ones */
    form.kv_dtype = FA_KV_FP8;
    for (unsigned columns = 32; columns <= 64; columns *= 2) {
        struct fa_attn_boxes boxes = good_boxes;
        boxes.columns = columns;
        CHECK_OK(launch(&boxes, &p, &p), diag);
    }
    form = usual;
    marker = dense;
}

TEST(dimensions_of_one_element_may_have_any_stride)
{
    struct fa_attn_params p;
    struct fa_attn_boxes boxes = good_boxes;
    CHECK_OK(start_with("no_zero_strides\n", &p), diag);
    p.batch = 1;
    p.q_batch_stride = 3;
    p.o_batch_stride = 5;
    p.k_batch_stride = 0;
    p.v_batch_stride = INT64_MAX;
    CHECK_OK(launch(&boxes, &p, &p), diag);
    p.heads_q = p.heads_kv = 1;
    p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = 1;
    for (boxes.q_heads = 1; boxes.q_heads < 3; boxes.q_heads++)
        CHECK_OK(launch(&boxes, &p, &p), diag);
    p.seq_q = p.seq_k = 1;
    p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = 0;
    CHECK_OK(launch(&boxes, &p, &p), diag);
}

TEST(tensors_that_tma_does_not_take_are_refused_by_name)
{
    struct fa_attn_params p;
    CHECK_OK(start_with("no_zero_strides\n", &p), diag);
    for (int i = 0; i < 6; i++) {
        static const char *const names[] = {"q", "k", "v", "o", "k", "q"};
        struct fa_attn_params bad = p;
        char sentence[32];
        bad.q_row_stride = i == 0 ? -64 : 64;
        bad.k_head_stride = i == 1 ? (long long)1 << 39 : p.k_head_stride;
        bad.v_batch_stride = i == 2 ? INT64_MIN : p.v_batch_stride; /* x 2 would be 0 */
        bad.o = (char *)p.o + (i == 3 ? 2 : 0);
        bad.k_batch_stride = i == 4 ? 0 : p.k_batch_stride; /* shared by the batch */
        bad.q_head_stride = i == 5 ? INT64_MAX : p.q_head_stride; /* x group overflows */
        for (unsigned heads = 1; heads <= 2; heads++) {
            struct fa_attn_shared shared = {.boxes = good_boxes};
            struct fa_attn_tensor_maps maps;
            struct fa_attn_serving_params params = {.dense = bad};
            shared.boxes.q_heads = heads;
            snprintf(sentence, sizeof sentence, "TMA does not take %s ", names[i]);
            CHECK_FAILS(fa_attn_maps_get(&shared, driver, &form, &params, &maps, &diag), FA_EALIGN,
                        sentence);
            CHECK_HAS(diag.text, "problem.unaligned = true");
        }
    }
    CHECK_OK(start_with("", &p), diag);
    p.k_batch_stride = 0; /* a driver that takes it */
    CHECK_OK(launch(&good_boxes, &p, &p), diag);
}

int main(void)
{
    if (getenv("FA_TEST_FAKE_CUDA") == NULL)
        return 1;
    check_make_folder(folder, NULL);
    snprintf(script, sizeof script, "%s/script", folder);
    setenv("FAKE_CUDA_SCRIPT", script, 1);
    setenv("FA_TUNE_LIBCUDA", getenv("FA_TEST_FAKE_CUDA"), 1);
    if (start("") != 0) /* whoever looks for NVRTC asks the driver for its version */
        return 1;
    check_all();
    fa_driver_close(&driver);
    check_remove_folder(folder);
    return check_done();
}
