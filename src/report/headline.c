/* SPDX-License-Identifier: Apache-2.0
 *
 * Only problems that were timed on a GPU are compared. Where a circumstance is on no record, the line says so.
 */
#include "data.h"

#include "json.h"
#include "operation.h"
#include "wording.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS = 16, DRIVERS = 4 };

/* Another kernel's times over the winners'. */
typedef struct comparison {
    char peer[sizeof((fa_baseline *)NULL)->peer];
    size_t problems, ahead; /* compared; those of them on which the winner is faster */
    double logarithms, worst;
} comparison;

struct report_headline {
    char silicon[sizeof((fa_study *)NULL)->silicon], gpu[64];
    const fa_operation *operation;
    size_t problems, timed, imported, failed;
    comparison peer[PEERS], defaults;
    size_t peers;
    double cuda; /* the newest version that a driver was for; 0: not recorded */
    char driver[DRIVERS][80], nvrtc[80];
    size_t drivers;
    double sm_mhz[2], memory_mhz[2], power_w[2]; /* lowest and highest; 0: not recorded */
    int64_t first, last;                         /* unix times */
    bool undated; /* some winners have the day of their file of records alone */
};

/* ---- gathering ------------------------------------------------------------------------------*/
static const cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *item = get(object, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static void compare(comparison *comparison, double ratio)
{
    if (!(ratio > 0))
        return;
    comparison->worst =
        comparison->problems == 0 || ratio < comparison->worst ? ratio : comparison->worst;
    comparison->logarithms += log(ratio);
    comparison->ahead += ratio > 1;
    comparison->problems++;
}

static comparison *find_peer(struct report_headline *headline, const char *name)
{
    for (size_t i = 0; i < headline->peers; i++)
        if (strcmp(headline->peer[i].peer, name) == 0)
            return &headline->peer[i];
    if (headline->peers == PEERS)
        return NULL;
    comparison *peer = &headline->peer[headline->peers++];
    snprintf(peer->peer, sizeof peer->peer, "%s", name);
    return peer;
}

static void widen_by(double range[2], double number)
{
    if (!(number > 0))
        return;
    range[0] = range[0] == 0 || number < range[0] ? number : range[0];
    range[1] = number > range[1] ? number : range[1];
}

static void widen(double range[2], const cJSON *values)
{
    const cJSON *value;
    cJSON_ArrayForEach (value, values)
        widen_by(range, report_number(value));
}

static void take_driver(struct report_headline *headline, const char *release)
{
    size_t n = 0;
    while (n < headline->drivers && strcmp(headline->driver[n], release) != 0)
        n++;
    if (n == headline->drivers && n < DRIVERS)
        snprintf(headline->driver[headline->drivers++], sizeof headline->driver[0], "%s", release);
}

static void take_time(struct report_headline *headline, int64_t at)
{
    headline->first = headline->first == 0 || at < headline->first ? at : headline->first;
    headline->last = at > headline->last ? at : headline->last;
}

static void take_circumstances(struct report_headline *headline, const cJSON *problem)
{
    const cJSON *one;
    cJSON_ArrayForEach (one, get(problem, "environments")) {
        double cuda = report_number(get(one, "driver"));
        headline->cuda = cuda > headline->cuda ? cuda : headline->cuda;
        if (headline->nvrtc[0] == 0) /* its version, without the digest of its library */
            snprintf(headline->nvrtc, sizeof headline->nvrtc, "%.*s",
                     (int)strcspn(text_of(one, "nvrtc"), " "), text_of(one, "nvrtc"));
    }
    cJSON_ArrayForEach (one, get(problem, "drivers"))
        take_driver(headline, cJSON_IsString(one) ? one->valuestring : "");
    widen(headline->sm_mhz, get(problem, "sm_mhz"));
    widen(headline->memory_mhz, get(problem, "memory_mhz"));
    widen(headline->power_w, get(problem, "power_limit_w"));
}

static void take_problem(struct report_headline *headline, const report_problem *problem)
{
    const cJSON *one;
    headline->problems++;
    headline->failed += strcmp(text_of(problem->json, "known_how"), "failed") == 0;
    if (!problem->timed)
        return;
    headline->timed++;
    headline->imported +=
        problem->study.has_winner && problem->study.winner.origin == FA_ORIGIN_IMPORTED;
    headline->undated |= problem->study.has_winner && problem->study.winner.undated;
    compare(&headline->defaults, problem->x_default);
    cJSON_ArrayForEach (one, get(problem->json, "baselines")) {
        comparison *peer = find_peer(headline, text_of(one, "peer"));
        if (peer != NULL)
            compare(peer, report_number(get(one, "ratio")));
    }
    take_circumstances(headline, problem->json);
    take_time(headline, problem->study.unix_time);
}

/* Takes the circumstances of another operation on the same GPU type. */
static void join(struct report_headline *headline, const struct report_headline *other)
{
    headline->timed += other->timed;
    headline->imported += other->imported;
    headline->undated |= other->undated;
    headline->cuda = fmax(headline->cuda, other->cuda);
    if (headline->nvrtc[0] == 0)
        memcpy(headline->nvrtc, other->nvrtc, sizeof headline->nvrtc);
    for (size_t i = 0; i < other->drivers; i++)
        take_driver(headline, other->driver[i]);
    for (int end = 0; end < 2; end++) {
        widen_by(headline->sm_mhz, other->sm_mhz[end]);
        widen_by(headline->memory_mhz, other->memory_mhz[end]);
        widen_by(headline->power_w, other->power_w[end]);
    }
    if (other->timed > 0) {
        take_time(headline, other->first);
        take_time(headline, other->last);
    }
}

int report_headline_add(report *report, const report_problem *problem)
{
    const fa_study *study = &problem->study;
    const fa_operation *operation = fa_operation_of(&study->problem);
    struct report_headline *last =
        report->headlines > 0 ? &report->headline[report->headlines - 1] : NULL;
    if (last == NULL || strcmp(last->silicon, study->silicon) != 0 ||
        last->operation != operation) {
        struct report_headline next = {.operation = operation};
        memcpy(next.silicon, study->silicon, sizeof next.silicon);
        memcpy(next.gpu, study->gpu.name, sizeof next.gpu);
        if (fa_append(&report->headline, &report->headlines, &report->headline_capacity, &next,
                      sizeof next) != 0)
            return FA_ENOMEM;
        last = &report->headline[report->headlines - 1];
    }
    take_problem(last, problem);
    return 0;
}

void report_headlines_free(report *report)
{
    free(report->headline);
    report->headline = NULL;
    report->headlines = 0;
}

/* ---- the sentence ---------------------------------------------------------------------------*/
/* "an H200", "a T4", "an NVIDIA L4": letters that are said one by one begin as their names do. */
static void some_gpu(fa_buf *out, const char *name)
{
    bool spelt = name[0] != 0 && !islower((unsigned char)name[1]);
    const char *vowels = spelt ? "AEFHILMNORSX8" : "AEIOUaeiou8";
    fa_buf_printf(out, "%s %s", name[0] != 0 && strchr(vowels, name[0]) != NULL ? "an" : "a",
                  name[0] != 0 ? name : "unnamed GPU");
}

static double mean_of(const comparison *comparison)
{
    return exp(comparison->logarithms / (double)comparison->problems);
}

static void problems(fa_buf *out, size_t count)
{
    fa_words_grouped(out, (int64_t)count);
    fa_buf_text(out, count == 1 ? " problem" : " problems");
}

/* The most able peer first. */
static int compare_means(const void *a, const void *b)
{
    const comparison *x = a, *y = b;
    double difference = mean_of(x) - mean_of(y);
    return difference < 0 ? -1 : difference > 0 ? 1 : strcmp(x->peer, y->peer);
}

/* "1.11 × as fast as FlashAttention-3 (geometric mean of 36 problems, worst 1.02) and 1.20 × as cuDNN (worst 1.11)" */
static void against(fa_buf *out, const comparison *peer, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool same = i > 0 && peer[i].problems == peer[i - 1].problems;
        bool several = peer[i].problems > 1;
        fa_buf_text(out, i == 0 ? "" : i + 1 < count ? ", " : " and ");
        fa_buf_printf(out, "%.2f × as %s", mean_of(&peer[i]), i == 0 ? "fast as " : "");
        fa_buf_text(out, report_peer_name(peer[i].peer));
        if (!same) {
            fa_buf_text(out, several ? " (geometric mean of " : " (");
            problems(out, peer[i].problems);
        }
        if (several)
            fa_buf_printf(out, "%sworst %.2f", same ? " (" : ", ", peer[i].worst);
        fa_buf_text(out, same && !several ? "" : ")");
    }
}

/* "3 problems", and of which operation in a report that has several. */
static void problems_of(fa_buf *out, size_t count, const struct report_headline *headline,
                        bool several)
{
    problems(out, count);
    if (several)
        fa_buf_printf(out, " of %s", headline->operation->title);
}

static void sentence(fa_buf *out, const struct report_headline *headline, bool several)
{
    fa_buf_text(out, "On ");
    some_gpu(out, headline->gpu);
    if (headline->timed == 0) {
        fa_buf_text(out, ", ");
        problems_of(out, headline->problems, headline, several);
        fa_buf_text(out, headline->failed == headline->problems
                             ? " without a kernel: no config passed"
                         : headline->problems == 1 ? " is not measured yet"
                                                   : " are not measured yet");
    } else if (headline->peers > 0 || headline->defaults.problems > 0) {
        fa_buf_text(out, ", fa-tune's kernels");
        if (several)
            fa_buf_printf(out, " of %s", headline->operation->title);
        fa_buf_text(out, " are ");
        if (headline->peers > 0) {
            against(out, headline->peer, headline->peers);
        } else {
            comparison defaults = headline->defaults;
            snprintf(defaults.peer, sizeof defaults.peer, "their families' defaults");
            against(out, &defaults, 1);
            fa_buf_text(out, "; no other kernel's time is stored");
        }
    } else {
        fa_buf_text(out, ", ");
        problems_of(out, headline->timed, headline, several);
        fa_buf_printf(out, " %s measured, and no other kernel's time is stored",
                      headline->timed == 1 ? "is" : "are");
    }
    fa_buf_text(out, ".");
}

/* ---- the circumstances ----------------------------------------------------------------------*/
static void range(fa_buf *out, const char *what, const double range[2], const char *unit)
{
    fa_buf_printf(out, " · %s", what);
    if (range[1] == 0) {
        fa_buf_text(out, " not recorded");
        return;
    }
    fa_buf_text(out, " ");
    fa_words_grouped(out, (int64_t)range[0]);
    if (range[1] > range[0]) {
        fa_buf_text(out, " to ");
        fa_words_grouped(out, (int64_t)range[1]);
    }
    fa_buf_printf(out, " %s", unit);
}

static void driver(fa_buf *out, const struct report_headline *headline)
{
    fa_buf_text(out, " · driver");
    for (size_t i = 0; i < headline->drivers; i++)
        fa_buf_printf(out, "%s %s", i > 0 ? "," : "", headline->driver[i]);
    if (headline->cuda > 0) {
        fa_buf_text(out, headline->drivers > 0 ? " (for " : " for ");
        report_driver(out, headline->cuda);
        fa_buf_text(out, headline->drivers > 0 ? ")" : "");
    } else if (headline->drivers == 0) {
        fa_buf_text(out, " not recorded");
    }
}

/* "H200 · driver 580.159.04 (for CUDA 13.0) · CUDA 13.0 (NVRTC) · SM clock 1,410 to 1,980 MHz · …" */
static void circumstances(fa_buf *out, const struct report_headline *headline)
{
    fa_buf_text(out, headline->gpu);
    if (headline->timed == 0) {
        fa_buf_text(out, " · nothing was measured");
        fa_buf_text(out, headline->failed < headline->problems ? ": times are the model's" : "");
        return;
    }
    driver(out, headline);
    fa_buf_text(out, " · CUDA ");
    if (headline->nvrtc[0] != 0)
        fa_buf_printf(out, "%s (NVRTC)", headline->nvrtc);
    else
        fa_buf_text(out, "not recorded");
    range(out, "SM clock", headline->sm_mhz, "MHz");
    if (headline->memory_mhz[1] > 0)
        range(out, "memory clock", headline->memory_mhz, "MHz");
    range(out, "power limit", headline->power_w, "W");
    fa_buf_text(out, " · measured ");
    if (headline->imported > 0)
        fa_buf_text(out, headline->imported == headline->timed ? "elsewhere and imported, "
                                                               : "partly elsewhere, ");
    if (headline->undated) { /* the first of the days is not known */
        fa_buf_text(out, "by ");
    } else if (headline->last / 86400 > headline->first / 86400) {
        fa_words_day(out, headline->first);
        fa_buf_text(out, " to ");
    }
    fa_words_day(out, headline->last);
}

/* ---- as JSON --------------------------------------------------------------------------------*/
static void add_words(cJSON *item, const char *name, fa_buf *words)
{
    fa_json_add(item, name,
                words->failed || words->data == NULL ? NULL : cJSON_CreateString(words->data));
    fa_buf_free(words);
}

static cJSON *peer_json(const comparison *peer)
{
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "peer", peer->peer);
    fa_json_add_text(item, "name", report_peer_name(peer->peer));
    fa_json_add_number(item, "problems", (double)peer->problems);
    fa_json_add_number(item, "ahead", (double)peer->ahead);
    fa_json_add_number(item, "gain", mean_of(peer));
    fa_json_add_number(item, "worst", peer->worst);
    return item;
}

static void drop_unknown(struct report_headline *headline)
{
    size_t kept = 0;
    for (size_t i = 0; i < headline->peers; i++)
        if (headline->peer[i].problems > 0)
            headline->peer[kept++] = headline->peer[i];
    headline->peers = kept;
    qsort(headline->peer, kept, sizeof *headline->peer, compare_means);
}

/* A headline joined with the others of its GPU type. */
static struct report_headline of_gpu(const report *report, size_t at, bool *ret_first)
{
    struct report_headline gpu = report->headline[at];
    *ret_first = true;
    for (size_t other = 0; other < report->headlines; other++) {
        if (other == at || strcmp(report->headline[other].silicon, gpu.silicon) != 0)
            continue;
        *ret_first = *ret_first && at < other;
        join(&gpu, &report->headline[other]);
    }
    return gpu;
}

/* GPU types on which nothing is measured, where a sentence for each would hide what is; else 0. */
static int count_unmeasured(const report *report)
{
    enum { MANY = 4 };
    int types = 0, unmeasured = 0;
    bool first;
    for (size_t at = 0; at < report->headlines; at++) {
        bool none = of_gpu(report, at, &first).timed == 0;
        types += first;
        unmeasured += first && none;
    }
    return unmeasured >= MANY && unmeasured < types ? unmeasured : 0;
}

cJSON *report_headlines_json(const report *report)
{
    cJSON *list = cJSON_CreateArray();
    const int unmeasured = count_unmeasured(report);
    for (size_t n = 0; n < 2 * report->headlines; n++) { /* GPU types with a measurement first */
        size_t at = n % report->headlines;
        bool first;
        struct report_headline headline = report->headline[at], gpu = of_gpu(report, at, &first);
        if ((gpu.timed > 0) != (n < report->headlines) || (gpu.timed == 0 && unmeasured > 0))
            continue;
        fa_buf words = {0};
        drop_unknown(&headline);
        cJSON *item = cJSON_CreateObject();
        fa_json_add_text(item, "gpu", headline.gpu);
        fa_json_add_text(item, "silicon", headline.silicon);
        fa_json_add_text(item, "operation", headline.operation->name);
        fa_json_add_number(item, "problems", (double)headline.problems);
        fa_json_add_number(item, "measured", (double)headline.timed);
        sentence(&words, &headline,
                 headline.operation != fa_operation_of(NULL) || report->headlines > 1);
        add_words(item, "sentence", &words);
        circumstances(&words, &gpu);
        add_words(item, "circumstances", &words);
        cJSON *peers = fa_json_add_array(item, "peers");
        for (size_t p = 0; p < headline.peers; p++)
            fa_json_push(peers, peer_json(&headline.peer[p]));
        fa_json_push(list, item);
    }
    if (unmeasured > 0) {
        char text[80];
        cJSON *item = cJSON_CreateObject();
        snprintf(text, sizeof text, "Nothing is measured on %d other GPU types.", unmeasured);
        fa_json_add_number(item, "measured", 0);
        fa_json_add_text(item, "sentence", text);
        fa_json_add_text(item, "circumstances", "Their times are the model's.");
        fa_json_add_array(item, "peers");
        fa_json_push(list, item);
    }
    return list;
}
