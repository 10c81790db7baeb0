/* SPDX-License-Identifier: Apache-2.0
 *
 * Snippets: refusals, values, and that the printed CUDA computes what the evaluator does, and its slope, on the CPU.
 */
#include "check.h"

#include "buf.h"
#include "fa_problem.h"
#include "snippet.h"
#include "snippet_values.h"

#include <dlfcn.h>

static uint64_t dice = 1;

static int64_t draw(int64_t below)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((dice >> 33) % (uint64_t)below);
}

static fa_buf printed;

/* Into `printed`. */
static int print(const char *text, const char *buffers, bool mask)
{
    fa_buffer list[FA_ATTN_BUFFERS];
    fa_snippet_reads reads;
    fa_buf_clear(&printed);
    return fa_snippet_print(text, list, fa_buffers_read(buffers, list, NULL), mask, &printed,
                            &reads, &diag);
}

TEST(what_is_no_snippet_is_refused_with_the_reason)
{
    static const struct {
        const char *text, *why;
        bool mask;
    } wrong[] = {{"k + 1", "is a number", true},
                 {"score + 1 > 0", "unknown name score", true},
                 {"score + 'a'", "has a text", false},
                 {"score | 1", "takes bits", false},
                 {"q*k*q*k*q*k > 0", "beyond 64 bits", true},
                 {"system(score)", "calls system()", false},
                 {"score; return", "", false},
                 {"score + t", "too few indices", false},
                 {"score + t[q][0.5]", "no whole number", false}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(print(wrong[i].text, "t:f32[:,:] a:f32", wrong[i].mask) < 0);
        CHECK_HAS(diag.text, wrong[i].why);
    }
}

TEST(values_are_python_s)
{
    static const struct {
        const char *text;
        double score, wanted; /* at q = 5, k = -7 */
    } right[] = {{"k // 2", 0, -4},         {"k % 3", 0, 2},       {"q % -3", 0, -1},
                 {"abs(k / 2)", 0, 3.5},    {"q // 0", 0, 0},      {"q % 0", 0, 0},
                 {"score ** 2", 3, 9},      {"2 ** -1", 0, 0.5},   {"min(int(score), q)", 9.5, 5},
                 {"ceil_div(k, 2)", 0, -3}, {"q in (1, 5)", 0, 1}, {"0 < q < 6", 0, 1}};
    const int64_t place[FA_PLACES] = {0, 0, 0, 5, -7, 10, 10};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct snippet s = snippet_read(right[i].text, NULL, false);
        const double got = snippet_value(&s, right[i].score, place, NULL, NULL);
        fa_expr_free(&s.expr);
        CHECK(fabs(got - right[i].wanted) <= 1e-12);
    }
}

TEST(a_mask_that_fields_say_becomes_them)
{
    static const struct {
        const char *mask;
        fa_problem beside, wanted;
    } rows[] = {{"k <= q", {.causal = 0}, {.causal = 1}},
                {"k <= q", {.causal = 2}, {.causal = 2}},
                {"0 <= q - k < 9", {.causal = 0}, {.causal = 1, .window = 1, .window_left = 8}},
                {"k + 3 > q and k - 5 < q",
                 {.causal = 0},
                 {.window = 1, .window_left = 2, .window_right = 4}},
                {"k <= q + 3",
                 {.window = 1, .window_left = -1, .window_right = 4},
                 {.window = 1, .window_left = -1, .window_right = 3}},
                {"k < q", {.causal = 0}, {.mask = 1}},
                {"k <= q or k < 9", {.causal = 0}, {.mask = 1}},
                {"k <= q and k < 9", {.causal = 0}, {.mask = 1}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fa_problem p = rows[i].beside;
        CHECK_OK(fa_set_field(&p, "mask", rows[i].mask, &diag), diag);
        fa_problem is = fa_fields_settle(&p);
        CHECK(is.mask == 0 || is.mask == p.mask);
        is.mask = is.mask != 0;
        CHECK(memcmp(is.value, rows[i].wanted.value, sizeof is.value) == 0);
    }
}

/* A random expression; `reals`: it may be a fraction. */
static void draw_text(fa_buf *out, int depth, bool reals)
{
    static const char *const leaves[] = {"q", "k",        "b", "h", "hk",   "len_k", "3",
                                         "7", "d[q - k]", "n", "x", "t[h]", "score", "0.5 * k * k"};
    static const char *const two[] = {
        "+", "-", "*", "//", "%", "<", "<=", "==", "!=", "and", "or", "&", "|", "<<", ">>"};
    static const char *const before[] = {"",         "",     "",      "",     "min", "max",
                                         "ceil_div", "abs",  "-",     "not",  "int", "exp",
                                         "tanh",     "sqrt", "floor", "float"};
    enum { CHOICE = 3, CALL, OF_ONE = 7 };
    const int64_t which = draw(reals ? 16 : 10), op = draw(15);
    const bool part = reals && (which >= CHOICE || op < 11);
    if (depth == 0 || draw(6) == 0) {
        fa_buf_text(out, leaves[draw(reals ? 14 : 11)]);
        return;
    }
    fa_buf_printf(out, "%s(", before[which]);
    draw_text(out, depth - 1, part);
    if (which < OF_ONE) {
        const char *between = which == CHOICE   ? "if"
                              : which >= CALL   ? ","
                              : op < 2 && reals ? "/"
                                                : two[op];
        fa_buf_printf(out, " %s ", between);
        draw_text(out, depth - 1, part);
    }
    if (which == CHOICE) {
        fa_buf_text(out, " else ");
        draw_text(out, depth - 1, reals);
    }
    fa_buf_text(out, ")");
}

/* What is printed of text i, or its slope, computed in one of these ways. TOLD: 1 where ranges say all of a mask's box, -1 where they are wrong. */
enum way { PLAIN, FAST, TOLD, SLOPE, FAST_SLOPE };
static const char ways[] =
    "template <class All> int told(SnippetSpan<int> is, int last, All all) {\n"
    "    i64 low = 1, high = 0;\n"
    "    for (int i = 0; i < (last + 1) * (last + 1); i++) {\n"
    "        const i64 x = all(i % (last + 1), i / (last + 1));\n"
    "        low = x < low ? x : low, high = x > high ? x : high;\n"
    "    }\n"
    "    return is.low > low || is.high < high ? -1 : is.low == is.high;\n"
    "}\n"
    "template <class X> double slope(X x) { return snippet_slope(x); }\n"
    "#define ALL(As, q, k) As::whole(p[0]), As::whole(p[1]), As::whole(p[2]), q, k, As::whole(p[5]), As::whole(p[6]), held\n"
    "struct Held { const void *at; i64 stride[1]; int last[1]; int whole; float real;\n"
    "    template <class T> auto look(SnippetSpan<int> i) const { return SnippetSpan<int>{-3, 8}; } };\n"
    "const int d[] = {4, -3, 0, 5, 1, 0, 2}; const float t[] = {0.25f, -3, 8};\n"
    "const Held held[] = {{d, {1}, {6}, 0}, {nullptr, {0}, {0}, 3}, {t, {1}, {2}, 0}, {nullptr, {0}, {0}, 0, -INFINITY}};\n"
    "#define IN_DOUBLE(q, k) ALL(SnippetPlain<double>, p[3] + q, p[4] + k)\n"
    "#define KEY SnippetCount<SnippetLine>{p[4], {p[4] - 5.0f, 1, 5}}\n"
    "#define IN_FLOAT ALL(SnippetFast, (SnippetCount<float>{p[3], (float)p[3]}), (KEY))\n"
    "#define FROM(at) (SnippetSpan<int>{p[at], p[at] + p[7]})\n"
    "#define SCORE(of) way == 1 ? of::snippet_score<SnippetFast>(SnippetScore{(float)s}, IN_FLOAT) : \\\n"
    "    way == 2 ? 0 : way == 3 ? slope(of::snippet_score<SnippetSlopes<SnippetPlain<double>, double>>({s, 1}, IN_DOUBLE(0, 0))) : \\\n"
    "    way == 4 ? slope(of::snippet_score<SnippetSlopes<SnippetFast, float>>({(float)s, 1}, IN_FLOAT)) : \\\n"
    "    of::snippet_score<SnippetPlain<double>>(s, IN_DOUBLE(0, 0))\n"
    "#define MASK(of) way == 1 ? of::snippet_mask<SnippetFast>(IN_FLOAT) : way == 2 ? \\\n"
    "    told(of::snippet_mask<SnippetSpans>(ALL(SnippetSpans, FROM(3), FROM(4))), p[7], [&](int q, int k) { \\\n"
    "        return of::snippet_mask<SnippetPlain<double>>(IN_DOUBLE(q, k)); }) : \\\n"
    "    of::snippet_mask<SnippetPlain<double>>(IN_DOUBLE(0, 0))\n"
    "extern \"C\" double compute(int way, int i, double s, const int *p) { return ";

static double read_buffer(const void *data, int which, const int64_t index[])
{
    static const double d[] = {4, -3, 0, 5, 1, 0, 2}, t[] = {0.25, -3, 8, -INFINITY};
    const int64_t at = which == 3 ? 3 : index[0] < 0 ? 0 : index[0];
    (void)data;
    return which == 0 ? d[at < 6 ? at : 6] : which == 1 ? 3 : t[which == 3 || at < 2 ? at : 2];
}

static bool is_near(double got, double wanted, double error)
{
    return (isnan(got) && isnan(wanted)) || (got >= wanted && got <= wanted) ||
           fabs(got - wanted) <= error * (1 + fabs(wanted));
}

/* Scores and, at odd numbers, masks. */
TEST(cuda_computes_what_the_evaluator_does)
{
    enum { COUNT = 400, POINTS = 40 };
    static struct snippet all[COUNT];
    static char text[COUNT][400];
    static const char held[] = "d:i32[:] n:i32 t:f32[:] x:f32";
    char folder[CHECK_FOLDER], path[CHECK_FOLDER + 40], command[CHECK_FOLDER + 200];
    double (*compute)(enum way, int, double, const int *) = NULL;
    fa_buf source = {0}, vocabulary = {0}, calls = {0};
    int count = 0, wrong = 0, told = 0, astray = 0, smooth = 0, askew = 0;
    fa_buf_text(
        &source,
        "#include <cmath>\n#include \"attn_serving_params.h\"\nusing namespace std;\ntypedef unsigned long long u64;\n"
        "#define __device__\n#define __forceinline__ inline\n#define exp2_fast exp2f\n"
        "#define log2_fast log2f\n#define reciprocal(x) (1 / (x))\n#define neg_infinity() -INFINITY\n"
        "typedef long long i64;\ntypedef unsigned short u16;\n#define FA_DEVICE static inline\n"
        "template <bool> float to_float(u16 x) { return x; }\n");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/kernel_templates/vocabulary/fa_snippet%s.cuh",
                 getenv("FA_TEST_SOURCE"), i > 0 ? "_buffers" : "");
        CHECK(fa_buf_read_file(&vocabulary, path, 1 << 20) == 0);
        fa_buf_text(&source, strstr(vocabulary.data, "namespace {"));
        memcpy(strrchr(source.data, '#'), "      ", 6);
        fa_buf_free(&vocabulary);
    }
    while (count < COUNT) {
        fa_buf one = {0};
        const bool mask = count % 2 == 1;
        draw_text(&one, 1 + (int)draw(4), !mask || draw(2) == 0);
        fa_buf_text(&one, !mask ? "" : draw(2) == 0 ? " == q - k" : " < k // 3");
        if (one.size < sizeof text[0] && print(one.data, held, mask) == 0) {
            all[count] = snippet_read(one.data, held, mask);
            memcpy(text[count], one.data, one.size + 1);
            fa_buf_printf(&source, "namespace of_%d {\n%s}\n", count, printed.data);
            fa_buf_printf(&calls, "i == %d ? %s(of_%d) :\n", count, mask ? "MASK" : "SCORE", count);
            count++;
        }
        fa_buf_free(&one);
    }
    check_make_folder(folder, NULL);
    snprintf(path, sizeof path, "%s/snippets.so", folder);
    snprintf(
        command, sizeof command,
        "c++ -std=c++17 -O0 -w -I$FA_TEST_TEMPLATES -ffp-contract=off -shared -fPIC -o %s -x c++ -",
        path);
    FILE *compiler = popen(command, "w");
    CHECK(compiler != NULL);
    fprintf(compiler, "%s%s%s 0; }\n", source.data, ways, calls.data);
    CHECK_INT(pclose(compiler), 0);
    *(void **)&compute = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "compute");
    CHECK(compute != NULL);
    for (int i = 0; i < COUNT * POINTS; i++) {
        const int p[FA_PLACES + 1] = {(int)draw(3),  (int)draw(7), (int)draw(3), (int)draw(40) - 3,
                                      (int)draw(40), 40,           44,           (int)draw(4)};
        int64_t place[FA_PLACES];
        const double score = ((double)draw(2000) - 1000) / 100;
        for (int k = 0; k < FA_PLACES; k++)
            place[k] = p[k];
        const double wanted = snippet_value(&all[i / POINTS], score, place, read_buffer, NULL);
        const double plain = compute(PLAIN, i / POINTS, score, p),
                     box = compute(TOLD, i / POINTS, 0, p);
        const double fast = compute(FAST, i / POINTS, score, p);
        told += box > 0;
        astray += !is_near(fast, (double)(float)wanted, 1e-4);
        const double step = 1e-6, slope = compute(SLOPE, i / POINTS, score, p);
        const double more =
            snippet_value(&all[i / POINTS], score + step, place, read_buffer, NULL) - wanted;
        const double less =
            wanted - snippet_value(&all[i / POINTS], score - step, place, read_buffer, NULL);
        if (i / POINTS % 2 == 0 && isfinite(wanted) && is_near(more, less, 1e-9)) {
            smooth++;
            askew += !is_near((more + less) / (2 * step), slope, 1e-4) ||
                     !is_near(compute(FAST_SLOPE, i / POINTS, score, p), slope, 1e-3);
        }
        if ((!is_near(plain, wanted, 1e-13) || box < 0) && wrong++ < 8)
            printf("# %s at score %g q %d k %d: CUDA has %.17g, the evaluator %.17g; box %g\n",
                   text[i / POINTS], score, p[3], p[4], plain, wanted, box);
    }
    for (int i = 0; i < COUNT; i++)
        fa_expr_free(&all[i].expr);
    fa_buf_free(&source);
    fa_buf_free(&calls);
    fa_buf_free(&printed);
    check_remove_folder(folder);
    CHECK_INT(wrong, 0);
    CHECK(askew == 0 && smooth > COUNT * POINTS / 4);
    CHECK(told > COUNT * POINTS / 4 &&
          astray < COUNT * POINTS / 400); /* rounding may cross a step */
}

/* So that no row of a gradient goes unproved: one tensor has all of the room, several have what others leave. */
TEST(tensors_of_a_proof_fill_the_room_of_their_gradients)
{
    static const char *const fields[][2] = {{"buffers", "x:f32[:,:]* y:f32[:]* z:f32[:,:]*"},
                                            {"score", "score + x[h][k] + y[h] + z[q][k]"},
                                            {"d_buffers", "1024"},
                                            {"heads_q", "4"},
                                            {"seq_q", "100"},
                                            {"seq_k", "100"}};
    const fa_operation *operation = NULL;
    fa_buffer_plan plan[FA_ATTN_BUFFERS];
    fa_problem problem;
    CHECK_OK(fa_find_operation("attn_bwd", &operation, &diag), diag);
    CHECK_OK(fa_make_problem(operation, &problem), diag);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        CHECK_OK(fa_set_field(&problem, fields[i][0], fields[i][1], &diag), diag);
    CHECK_INT(fa_buffers_plan(&problem, false, 1, plan), 3);
    CHECK(plan[0].elements == 3 * 100 && plan[1].elements == 4 && plan[2].elements == 7 * 100);
    CHECK_OK(fa_set_field(&problem, "d_buffers", "16384", &diag), diag);
    CHECK_INT(fa_buffers_plan(&problem, true, 1, plan), 3);
    CHECK(plan[2].elements > 97 * 97 && plan[2].elements <= 100 * 100);
    CHECK_OK(fa_set_field(&problem, "buffers", "dropout:f32 dropout_seed:i64[:]", &diag), diag);
    CHECK(fa_buffers_plan(&problem, true, 1, plan) == 2 && plan[1].span > 1LL << 32);
    CHECK_OK(fa_set_field(&problem, "seq_q", "99", &diag), diag);
    CHECK(fa_buffers_plan(&problem, true, 1, plan) == 2 && plan[0].is.number == 0.75);
}
