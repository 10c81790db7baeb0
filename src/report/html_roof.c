/* SPDX-License-Identifier: Apache-2.0
 *
 * Rooflines: TFLOP/s over FLOP per byte that must move at least, both axes logarithmic, under that
 * GPU's ceilings (dense tensor rate, memory bandwidth).
 */
#include "html.h"

#include "error.h"
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARKS_MAX = 10 };

/* In the units of the drawing's viewBox. */
static const double LEFT = 48, TOP = 14, WIDTH = 360, HEIGHT = 216, LABEL_STEP = 14;

struct roof {
    double low_x, high_x, low_y, high_y; /* log10 of the axes' ends */
    double peak, slope;                  /* TFLOP/s; TFLOP/s per FLOP/byte */
};

struct mark {
    double x, y; /* FLOP/byte, TFLOP/s */
    const char *kind, *label;
    double label_y;
};

static double at_x(const struct roof *roof, double intensity)
{
    return LEFT + WIDTH * (log10(intensity) - roof->low_x) / (roof->high_x - roof->low_x);
}

static double at_y(const struct roof *roof, double tflops)
{
    return TOP + HEIGHT * (1 - (log10(tflops) - roof->low_y) / (roof->high_y - roof->low_y));
}

static bool known(const fa_gpu *gpu)
{
    return gpu->tensor_tflops > 0 && gpu->bandwidth_gbs > 0 && isfinite(gpu->tensor_tflops) &&
           isfinite(gpu->bandwidth_gbs) && gpu->tensor_tflops < 1e6 && gpu->bandwidth_gbs < 1e8;
}

/* Axes that hold the ridge and every mark. */
static struct roof make_roof(const fa_gpu *gpu, double low_x, double high_x, double low_y)
{
    struct roof roof = {.peak = gpu->tensor_tflops, .slope = gpu->bandwidth_gbs / 1000};
    double ridge = roof.peak / roof.slope;
    roof.low_x = log10(fmin(low_x, ridge) / 4);
    roof.high_x = log10(fmax(high_x, ridge) * 4);
    roof.low_y = log10(fmin(low_y, roof.peak / 16) / 2.5);
    roof.high_y = log10(roof.peak * 2);
    return roof;
}

/* A line at each 1, 2 and 5 of a decade, or at its 1 where there are many decades. */
static void lines(fa_buf *out, const struct roof *roof, bool upright)
{
    double low = upright ? roof->low_x : roof->low_y, high = upright ? roof->high_x : roof->high_y;
    int step = high - low > 2.5 ? 3 : 1;
    for (int i = 3 * (int)floor(low); i <= 3 * (int)ceil(high); i += step) {
        static const double within[] = {1, 2, 5};
        double value = within[((i % 3) + 3) % 3] * pow(10, floor(i / 3.0));
        if (!(log10(value) >= low && log10(value) <= high))
            continue;
        double x = upright ? at_x(roof, value) : LEFT, y = upright ? TOP : at_y(roof, value);
        fa_buf_printf(out, "<path class=\"grid\" d=\"M%.1f %.1f%c%.1f\"/><text class=\"soft\" "
                           "x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
                      x, y, upright ? 'v' : 'h', upright ? HEIGHT : WIDTH,
                      upright ? x : LEFT - 5, upright ? TOP + HEIGHT + 15 : y + 4,
                      upright ? "middle" : "end");
        if (value < 1 || value > 1e12)
            fa_buf_printf(out, "%g", value);
        else
            report_grouped(out, (int64_t)(value + 0.5));
        fa_buf_text(out, "</text>");
    }
}

static void grid(fa_buf *out, const struct roof *roof)
{
    lines(out, roof, true);
    lines(out, roof, false);
    fa_buf_printf(out, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">FLOP per "
                       "byte that must move</text><text class=\"soft\" transform=\"translate(12 "
                       "%.1f) rotate(-90)\" text-anchor=\"middle\">TFLOP/s</text>\n",
                  LEFT + WIDTH / 2, TOP + HEIGHT + 32, TOP + HEIGHT / 2);
}

static void ceilings(fa_buf *out, const struct roof *roof, const fa_gpu *gpu)
{
    double ridge = roof->peak / roof->slope;
    double from = pow(10, roof->low_x), bottom = pow(10, roof->low_y);
    if (from * roof->slope < bottom)
        from = bottom / roof->slope;
    double x = at_x(roof, from), y = at_y(roof, from * roof->slope);
    double rx = at_x(roof, ridge), ry = at_y(roof, roof->peak);
    fa_buf_printf(out, "<path class=\"ceiling\" d=\"M%.1f %.1fL%.1f %.1fH%.1f\"/>", x, y, rx, ry,
                  LEFT + WIDTH);
    fa_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">tensor cores ", LEFT + WIDTH,
                  ry - 6);
    report_grouped(out, (int64_t)(gpu->tensor_tflops + 0.5));
    double degrees = -atan2(y - ry, rx - x) * 180 / acos(-1);
    fa_buf_printf(out, " TFLOP/s</text><text transform=\"translate(%.1f %.1f) rotate(%.1f)\" "
                       "text-anchor=\"middle\">memory ",
                  (x + rx) / 2 - 5, (y + ry) / 2 - 6, degrees);
    report_grouped(out, (int64_t)(gpu->bandwidth_gbs + 0.5));
    fa_buf_text(out, " GB/s</text>\n");
}

static void shape(fa_buf *out, const struct mark *mark, double x, double y)
{
    if (strcmp(mark->kind, "peer") == 0)
        fa_buf_printf(out, "<path class=\"peer\" d=\"M%.1f %.1fl5.5 5.5l-5.5 5.5l-5.5-5.5z\"/>", x,
                      y - 5.5);
    else if (strcmp(mark->kind, "default") == 0)
        fa_buf_printf(out, "<rect class=\"default\" x=\"%.1f\" y=\"%.1f\" width=\"9\" "
                           "height=\"9\"/>",
                      x - 4.5, y - 4.5);
    else
        fa_buf_printf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"5.5\"/>", mark->kind, x,
                      y);
}

static int compare_marks(const void *a, const void *b)
{
    double x = ((const struct mark *)a)->y, y = ((const struct mark *)b)->y;
    return (x < y) - (x > y); /* highest first */
}

/* Marks with their labels, which are pushed apart and led back to what they name. */
static void draw_marks(fa_buf *out, const struct roof *roof, struct mark *mark, int count)
{
    qsort(mark, (size_t)count, sizeof *mark, compare_marks);
    double last = -1000;
    for (int i = 0; i < count; i++) {
        mark[i].label_y = fmax(at_y(roof, mark[i].y) + 4, last + LABEL_STEP);
        last = mark[i].label_y;
    }
    double over = last - (TOP + HEIGHT - 4);
    const struct mark *ours = NULL;
    for (int i = 0; i < count; i++) {
        double x = at_x(roof, mark[i].x), y = at_y(roof, mark[i].y);
        double label_y = mark[i].label_y - (over > 0 ? over : 0);
        bool right = x < LEFT + WIDTH * 0.6;
        double label_x = x + (right ? 22 : -22);
        fa_buf_printf(out, "<path class=\"leader\" d=\"M%.1f %.1fL%.1f %.1f\"/>", x, y,
                      label_x + (right ? -3 : 3), label_y - 4);
        if (strcmp(mark[i].kind, "peer") == 0 || strcmp(mark[i].kind, "default") == 0)
            shape(out, &mark[i], x, y);
        else
            ours = &mark[i]; /* over the others */
        fa_buf_printf(out, "<text%s x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
                      strcmp(mark[i].kind, "predicted") == 0 ? " class=\"guess\"" : "", label_x,
                      label_y, right ? "start" : "end");
        report_html_text(out, mark[i].label);
        fa_buf_text(out, strcmp(mark[i].kind, "predicted") == 0 ? " ~" : " ");
        report_tflops(out, mark[i].y);
        fa_buf_text(out, "</text>\n");
    }
    if (ours != NULL)
        shape(out, ours, at_x(roof, ours->x), at_y(roof, ours->y));
}

static void open_drawing(fa_buf *out, int number, const char *title)
{
    fa_buf_printf(out, "<svg class=\"roof\" viewBox=\"0 0 420 268\" role=\"%s\" "
                       "aria-labelledby=\"r%dt r%dd\"><title id=\"r%dt\">%s</title>",
                  number > 0 ? "img" : "group", number, number, number, title);
}

void html_roofline(fa_buf *out, const report_problem *problem)
{
    const fa_gpu *gpu = &problem->study.gpu;
    double flops = fa_problem_nominal_flops(&problem->study.problem);
    double intensity = problem->bytes > 0 ? flops / problem->bytes : 0;
    if (!(problem->tflops > 0) || !(intensity > 0))
        return;
    fa_buf_text(out, "<section class=\"panel\"><h4>Roofline</h4>\n");
    if (!known(gpu)) {
        fa_buf_text(out, "<p class=\"small soft\">This GPU’s ceilings are not known.</p></section>\n");
        return;
    }
    struct mark mark[MARKS_MAX] = {{.x = intensity,
                                    .y = problem->tflops,
                                    .kind = problem->measured ? "ours" : "predicted",
                                    .label = problem->measured ? "ours" : report_known_how(problem)}};
    int count = 1;
    double lowest = problem->tflops;
    if (problem->default_us > 0)
        mark[count++] = (struct mark){.x = intensity,
                                      .y = flops / problem->default_us * 1e-6,
                                      .kind = "default",
                                      .label = "default"};
    for (size_t i = 0; i < problem->peers && count < MARKS_MAX; i++)
        mark[count++] = (struct mark){.x = intensity,
                                      .y = flops / problem->peer[i].baseline.median_us * 1e-6,
                                      .kind = "peer",
                                      .label = problem->peer[i].baseline.peer};
    for (int i = 0; i < count; i++)
        lowest = fmin(lowest, mark[i].y);
    struct roof roof = make_roof(gpu, intensity, intensity, lowest);
    double ceiling = fmin(roof.peak, roof.slope * intensity);
    open_drawing(out, problem->number, "Roofline");
    fa_buf_printf(out, "<desc id=\"r%dd\">Ours %s%s ", problem->number,
                  problem->measured ? "measured" : report_known_how(problem),
                  problem->measured ? "" : ", about");
    report_tflops(out, problem->tflops);
    fa_buf_printf(out, " TFLOP/s at %.0f FLOP per byte; the ceiling there is %.0f "
                       "TFLOP/s.</desc>\n",
                  intensity, ceiling);
    grid(out, &roof);
    ceilings(out, &roof, gpu);
    draw_marks(out, &roof, mark, count);
    fa_buf_text(out, "</svg>\n<p class=\"small\">");
    if (!problem->measured)
        fa_buf_printf(out, "As %s: ~", report_known_how(problem));
    report_percent(out, problem->tflops / ceiling);
    fa_buf_printf(out, " of the %s ceiling; Q, K, V and O are ",
                  roof.slope * intensity < roof.peak ? "memory" : "tensor-core");
    report_bytes(out, problem->bytes);
    fa_buf_printf(out, ", %.0f GB/s at this time.</p></section>\n",
                  problem->bytes / problem->us * 1e-3);
}

void html_roofline_of_all(fa_buf *out, const html_point *points, size_t count)
{
    const fa_gpu *gpu = &points[0].gpu;
    double low_x = points[0].intensity, high_x = low_x, low_y = points[0].tflops;
    if (!known(gpu))
        return;
    for (size_t i = 0; i < count; i++) {
        low_x = fmin(low_x, points[i].intensity);
        high_x = fmax(high_x, points[i].intensity);
        low_y = fmin(low_y, points[i].tflops);
    }
    struct roof roof = make_roof(gpu, low_x, high_x, low_y);
    fa_buf_text(out, "<figure class=\"panel\">\n");
    open_drawing(out, -points[0].number, "Every problem under this GPU’s ceilings");
    fa_buf_printf(out, "<desc id=\"r%dd\">%zu problems; each mark is a link to its problem.</desc>\n",
                  -points[0].number, count);
    grid(out, &roof);
    ceilings(out, &roof, gpu);
    for (size_t i = 0; i < count; i++) {
        const html_point *point = &points[i];
        struct mark mark = {.kind = point->measured ? "ours" : "predicted"};
        fa_buf_printf(out, "<a href=\"#p%d\"><title>", point->number);
        report_problem_words(out, &point->problem);
        fa_buf_text(out, point->measured ? ": " : ": ~");
        report_tflops(out, point->tflops);
        fa_buf_printf(out, " TFLOP/s, %s</title>", point->known_how);
        shape(out, &mark, at_x(&roof, point->intensity), at_y(&roof, point->tflops));
        fa_buf_text(out, "</a>\n");
    }
    fa_buf_text(out, "</svg>\n<figcaption class=\"small soft\">Filled marks were measured, hollow "
                     "broken ones are predicted, transferred or imported.</figcaption></figure>\n");
}
