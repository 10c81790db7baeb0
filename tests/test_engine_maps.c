/* SPDX-License-Identifier: Apache-2.0
 *
 * fa_launch of a kernel that takes tensor maps: with changing buffers, from several threads,
 * without keys, with grouped heads, and its refusals. The fake driver fails every launch whose maps
 * do not agree with its other argument, and notes every one that does.
 */
#include "engine_fixture.h"
#include "threads.h"
#include "maps_fixture.h"

#include "attn_launch.h"

/* A session whose one family takes maps with boxes of `q_heads` heads. */
static bool open_maps(engine_fixture *f, int q_heads, const char *script)
{
    fixture_kernel = maps_template(64, q_heads);
    return fixture_open(f, script);
}

/* One block of memory that all tensors of a test lie in. */
struct arena {
    fa_device_ptr base;
    size_t size;
};

static int arena_make(const engine_fixture *f, size_t size, struct arena *ret)
{
    *ret = (struct arena){.size = size};
    int rc = fa_device_alloc(f->driver, size, &ret->base, &diag);
    /* Every element 1.0: rows of V that are all equal make the output equal to them. */
    return rc != 0 ? rc : fa_fill16(f->driver, ret->base, 0x3c00, size / 2, NULL, &diag);
}

enum { TENSOR = 2 * 128 * 64 * 2 }; /* bytes of one tensor of small_problem */

/* Set `i` of buffers: distinct for distinct i below 16. */
static fa_attn_args args_of(const struct arena *arena, int i)
{
    fa_device_ptr at = arena->base + (fa_device_ptr)i * 4 * TENSOR;
    return (fa_attn_args){.size = sizeof(fa_attn_args), .q = (void *)at, .k = (void *)(at + TENSOR),
                          .v = (void *)(at + 2 * TENSOR), .o = (void *)(at + 3 * TENSOR)};
}

ENGINE_TEST(a_tuned_kernel_that_takes_maps_writes_the_callers_buffers)
{
    static uint16_t out[TENSOR / 2];
    const fa_kernel *kernel;
    struct arena arena;
    CHECK(open_maps(&f, 1, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
    CHECK_OK(arena_make(&f, 4 * TENSOR, &arena), diag);
    fa_attn_args args = args_of(&arena, 0);
    CHECK_OK(fa_fill8(f.driver, arena.base + 3 * TENSOR, 0xff, TENSOR, NULL, &diag), diag);
    int before = fixture_logged(&f, "maps agree");
    CHECK(before > 15); /* the proofs and the timing */
    CHECK_OK(fa_launch(kernel, &args, NULL, &diag), diag);
    CHECK_INT(fixture_logged(&f, "maps agree"), before + 1);
    CHECK_OK(fa_copy_from_device(f.driver, out, arena.base + 3 * TENSOR, TENSOR, &diag), diag);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        CHECK_INT(out[i], 0x3c00);
}

ENGINE_TEST(changing_buffers_and_strides_always_get_their_own_maps)
{
    const fa_kernel *kernel;
    struct arena arena;
    unsigned random = 1;
    CHECK(open_maps(&f, 1, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK_OK(arena_make(&f, 16 * 4 * TENSOR, &arena), diag);
    for (int i = 0; i < 400; i++) {
        fa_attn_args args = args_of(&arena, i < 100 ? i % 3 : (int)((random >> 20) % 12));
        random = random * 1103515245u + 12345u;
        if ((random >> 16) % 4 == 0) { /* rows of the heads side by side: BSHD */
            int64_t *const strides[] = {args.q_stride, args.k_stride, args.v_stride,
                                        args.o_stride};
            int64_t *stride = strides[(random >> 24) % 4];
            stride[0] = 2 * 128 * 64, stride[1] = 64, stride[2] = 2 * 64;
        }
        CHECK_OK(fa_launch(kernel, &args, NULL, &diag), diag);
    }
}

struct launcher {
    const engine_fixture *f;
    const fa_kernel *kernel;
    const struct arena *arena;
    int number, failures, launches;
    fa_diag diag;
};

static void *launch_often(void *data)
{
    struct launcher *l = data;
    l->failures = hold_context(l->f->driver, 0, &l->diag) != 0;
    for (int i = 0; i < 500 && l->failures == 0; i++) {
        fa_attn_args args = args_of(l->arena, (l->number * 3 + i * 7) % 12);
        l->failures += fa_launch(l->kernel, &args, NULL, &l->diag) != 0;
        l->launches++;
    }
    drop_context(l->f->driver, 0);
    return NULL;
}

ENGINE_TEST(threads_that_launch_one_kernel_never_get_each_others_maps)
{
    enum { THREADS = 4 };
    const fa_kernel *kernel;
    struct arena arena;
    struct launcher launcher[THREADS];
    CHECK(open_maps(&f, 2, ""));
    fa_problem problem = small_problem;
    problem.seq_q = problem.seq_k = 16; /* the fake's work is done under its lock */
    CHECK_OK(fa_get_best_kernel(f.tuner, &problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK_OK(arena_make(&f, 16 * 4 * TENSOR, &arena), diag);
    for (int i = 0; i < THREADS; i++)
        launcher[i] = (struct launcher){.f = &f, .kernel = kernel, .arena = &arena, .number = i};
    CHECK_INT(run_threads(launch_often, launcher, sizeof *launcher, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK_OK(launcher[i].failures, launcher[i].diag);
        CHECK_INT(launcher[i].launches, 500);
    }
    CHECK(fixture_logged(&f, "maps agree") >= 500 * THREADS);
}

/* The cache alone, without a launch's lock around it: more sets of buffers than it keeps. */
struct getter {
    struct fa_attn_shared *shared;
    fa_driver *driver;
    const struct fa_attn_serving_params *params;
    const struct fa_attn_tensor_maps *expected;
    int number, wrong;
};

enum { SETS = 11 };
static const fa_problem one_head = {.dtype = FA_FP16, .head_dim = 64};

static void *get_often(void *data)
{
    struct getter *g = data;
    for (int i = 0; i < 300000; i++) {
        int set = (i / 5 + g->number * i) % SETS;
        struct fa_attn_tensor_maps maps;
        int rc = fa_attn_maps_get(g->shared, g->driver, &one_head, &g->params[set], &maps, NULL);
        g->wrong += rc != 0 || memcmp(&maps, &g->expected[set], sizeof maps) != 0;
    }
    return NULL;
}

ENGINE_TEST(a_cache_under_contention_gives_whole_maps)
{
    enum { THREADS = 4 };
    static struct fa_attn_shared shared = {.boxes = {64, 64, 1, 64, 32, 32},
                                           .maps.taken = ATOMIC_FLAG_INIT};
    struct fa_attn_serving_params params[SETS];
    struct fa_attn_tensor_maps expected[SETS];
    struct getter getter[THREADS];
    CHECK(open_maps(&f, 1, ""));
    for (int i = 0; i < SETS; i++) {
        uintptr_t at = (uintptr_t)(i + 1) << 20;
        params[i].dense = (struct fa_attn_params){
            .q = (void *)at, .k = (void *)(at + 4096), .v = (void *)(at + 8192),
            .o = (void *)(at + 12288), .batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 16,
            .seq_k = 16, .q_row_stride = 64 + 8 * i, .k_row_stride = 64, .v_row_stride = 64,
            .o_row_stride = 64 + 8 * i};
        struct fa_attn_shared alone = shared;
        CHECK_OK(fa_attn_maps_get(&alone, f.driver, &one_head, &params[i], &expected[i], &diag),
                 diag);
    }
    for (int i = 0; i < THREADS; i++)
        getter[i] = (struct getter){&shared, f.driver, params, expected, i, 0};
    CHECK_INT(run_threads(get_often, getter, sizeof *getter, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(getter[i].wrong, 0);
}

ENGINE_TEST(grouped_heads_and_missing_keys_launch)
{
    const fa_kernel *kernel;
    struct arena arena;
    uint16_t first = 1;
    fa_problem problem = {.head_dim = 64, .batch = 2, .heads_q = 6, .heads_kv = 2, .seq_q = 10,
                          .seq_k = 12, .layout = FA_BSHD};
    CHECK(open_maps(&f, 3, "no_zero_strides\n"));
    CHECK_OK(fa_get_best_kernel(f.tuner, &problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK_OK(arena_make(&f, 4 * TENSOR, &arena), diag);
    fa_attn_args args = args_of(&arena, 0);
    CHECK_OK(fa_launch(kernel, &args, NULL, &diag), diag);
    problem.seq_k = 0;
    CHECK_OK(fa_get_best_kernel(f.tuner, &problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    args.k = args.v = NULL;
    CHECK_OK(fa_launch(kernel, &args, NULL, &diag), diag);
    CHECK_OK(fa_copy_from_device(f.driver, &first, arena.base + 3 * TENSOR, 2, &diag), diag);
    CHECK_INT(first, 0);
}

ENGINE_TEST(strides_that_tma_does_not_take_fail_with_the_tensor_and_the_way_out)
{
    const fa_kernel *kernel;
    struct arena arena;
    CHECK(open_maps(&f, 1, "no_zero_strides\n"));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK_OK(arena_make(&f, 4 * TENSOR, &arena), diag);
    for (int again = 0; again < 2; again++) { /* a refusal is not remembered as maps */
        fa_attn_args args = args_of(&arena, 0);
        args.k_stride[0] = 128 * 64, args.k_stride[1] = 0, args.k_stride[2] = 64;
        CHECK_FAILS(fa_launch(kernel, &args, NULL, &diag), FA_EALIGN, "TMA does not take k ");
        CHECK_HAS(diag.text, "problem.unaligned = true");
        args = args_of(&arena, 0);
        args.v_stride[0] = 0, args.v_stride[1] = 128 * 64, args.v_stride[2] = -64;
        CHECK_FAILS(fa_launch(kernel, &args, NULL, &diag), FA_EALIGN, "TMA does not take v ");
        args = args_of(&arena, 0);
        CHECK_OK(fa_launch(kernel, &args, NULL, &diag), diag);
    }
}

ENGINE_TEST(configs_with_impossible_boxes_are_refused_once_they_are_compiled)
{
    fa_request request = small_request("L4", FA_EFFORT_MEASURE);
    fa_answer answer = {.size = sizeof answer};
    CHECK(open_maps(&f, 1, NULL));
    fa_close(&f.tuner);
    CHECK(fixture_write_kernel(&f, maps_template(48, 1)));
    CHECK_OK(fixture_session(&f, &diag), diag);
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ENOKERNEL);
    CHECK(fixture_reasons(f.tuner, &request, "boxes of 48 columns") > 0);
}
