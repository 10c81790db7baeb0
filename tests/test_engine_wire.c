/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of fa_service.h: what is written reads back as it was, and whatever somebody else may have written
 * (cut, with fields that are missing, of a wrong type or out of range) is refused with a sentence. Random changes are
 * fuzz/fuzz_wire.c's.
 */
#include "fa_tune.h"

#include "check.h"
#include "problem.h"
#include "search.h"
#include "trial.h"
#include "wire.h"

#include <locale.h>
#include <stdint.h>

enum { ROUNDS = 300 };

/* ---- chance ---------------------------------------------------------------------------------*/
static uint64_t state = 88172645463325252u;

static uint64_t bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int32_t below(int32_t n)
{
    return (int32_t)(bits() % (uint64_t)n);
}

/* Positive, of any size, with all of its bits in use. */
static double real(void)
{
    return ldexp((double)(bits() >> 11 | 1), below(90) - 80);
}

static bool whole; /* whether every member that may be absent is there */

static bool maybe(void)
{
    return whole || below(2);
}

static int32_t count(void)
{
    return maybe() ? 1 + below(INT32_MAX - 1) : 0;
}

/* Up to size - 1 bytes of what JSON has to escape, and of what it has not. */
static void text(char *ret, size_t size)
{
    static const char *const parts[] = {"a",  "Z", "0", "_", " ", "\"",
                                        "\\", "/", "µ", "€", "𝄞", "{"};
    size_t used = 0, wanted = whole ? size / 2 : (size_t)below((int32_t)size);
    for (;;) {
        const char *part = parts[below(12)];
        if (used + strlen(part) > wanted)
            break;
        memcpy(ret + used, part, strlen(part));
        used += strlen(part);
    }
    ret[used] = 0;
}

static fa_problem random_problem(void)
{
    int32_t kv = 1 + below(64);
    return (fa_problem){.dtype = (fa_dtype)below(2),
                        .causal = (fa_causal)below(3),
                        .layout = (fa_layout)below(2),
                        .head_dim = 8 + 8 * below(32),
                        .batch = count(),
                        .heads_q = kv * (1 + below(8)),
                        .heads_kv = kv,
                        .seq_q = count(),
                        .seq_k = count(),
                        .want_lse = below(2),
                        .unaligned = below(2)};
}

static void random_trial(fa_trial *t)
{
    memset(t, 0, sizeof *t);
    snprintf(t->config.family, sizeof t->config.family, "attn_fwd_sm%d", below(1000));
    t->config.count = below(FA_MAX_TUNABLES + 1);
    for (int i = 0; i < t->config.count; i++) {
        snprintf(t->config.tunable[i].name, FA_NAME_MAX, "T%d_%d", i, below(100));
        t->config.tunable[i].value = (int32_t)(bits() & INT32_MAX);
        if (below(4) == 0)
            fa_value_of_text(below(2) ? "half" : "{a, 1}", &t->config.tunable[i].value, NULL);
        else if (below(4) == 0)
            fa_value_of_number(below(9) / -8.0 - 1e-7, &t->config.tunable[i].value, NULL);
    }
    t->status = (fa_status)below(FA_STATUS_MEASURED + 1);
    text(t->reason, sizeof t->reason);
    if (maybe()) {
        t->threads = 1 + below(1024);
        t->smem_bytes = count();
    }
    if (maybe()) {
        t->registers = 1 + below(255);
        t->spill_bytes = count();
        t->static_smem_bytes = below(FA_STATIC_SMEM_MAX + 1);
    }
    t->blocks_per_sm = count();
    for (int i = 0; i < 3; i++)
        t->grid[i] = (uint32_t)bits();
    t->compile_ms = maybe() ? real() : 0;
    t->predicted_us = maybe() ? real() : 0;
    if (maybe()) {
        t->median_us = real();
        t->low_us = real();
        t->high_us = real();
        t->sample_count = count();
    }
    if (maybe()) {
        t->tolerance = real();
        t->max_error = maybe() ? real() : NAN;
    }
    t->raced = below(2);
}

static void random_answer(fa_answer *a)
{
    static const char hex[] = "0123456789abcdef";
    memset(a, 0, sizeof *a);
    a->problem = random_problem();
    a->from_problem = random_problem();
    text(a->gpu.name, sizeof a->gpu.name);
    a->gpu.sm = count();
    a->gpu.sm_count = count();
    a->gpu.smem_per_block = count();
    a->gpu.smem_per_sm = count();
    a->gpu.smem_reserved = count();
    a->gpu.regs_per_sm = count();
    a->gpu.threads_per_sm = count();
    a->gpu.blocks_per_sm = count();
    a->gpu.l2_bytes = (int64_t)(bits() >> 25);
    a->gpu.memory_bus_bits = count();
    a->gpu.clock_mhz = count();
    a->gpu.bandwidth_gbs = real();
    a->gpu.tensor_tflops = real();
    a->gpu.present = below(2);
    a->gpu.ordinal = below(10) - 1;
    text(a->gpu.uuid, sizeof a->gpu.uuid);
    a->origin = (fa_origin)below(FA_ORIGIN_NEAREST + 1);
    random_trial(&a->trial);
    text(a->entry, sizeof a->entry);
    for (int i = 0, length = maybe() ? 64 : 0; i < length; i++)
        a->cubin_key[i] = hex[below(16)];
    text(a->nvrtc, sizeof a->nvrtc);
    a->driver_version = count();
    a->unix_time = (int64_t)(bits() >> 25);
    a->default_us = maybe() ? real() : 0;
    a->tune_s = maybe() ? real() : 0;
    int32_t *funnel[] = {&a->space,  &a->in_budget, &a->compiled, &a->clean,
                         &a->proved, &a->measured,  &a->failed,   &a->ties};
    for (size_t i = 0; i < 8; i++)
        *funnel[i] = count();
    a->from_store = below(2);
    text(a->from_gpu, sizeof a->from_gpu);
    text(a->why, sizeof a->why);
    a->shortlist_only = below(2);
    if (maybe()) {
        text(a->strategy, sizeof a->strategy);
        a->space_estimated = below(2);
        a->undated = below(2);
    }
    a->from_system = below(2);
}

/* ---- the texts ------------------------------------------------------------------------------*/
/* Room for a value of every kind of text. */
struct value {
    fa_ask ask;
    fa_answer answer;
    int code;
    fa_diag message;
};

/* The name of a strategy, or NULL. */
static const char *random_strategy(void)
{
    return maybe() ? fa_search_strategy(below(4)) : NULL;
}

static void make_ask(struct value *v)
{
    v->ask = (fa_ask){.size = sizeof v->ask,
                      .problem = random_problem(),
                      .ordinal = below(1024),
                      .effort = (fa_effort)below(4),
                      .again = below(2),
                      .exact = below(2),
                      .first_contact = below(2),
                      .timeout_ms = count(),
                      .evaluations = below(20001),
                      .seconds = below(1 << 20) / 8.0};
    const char *strategy = random_strategy();
    snprintf(v->ask.strategy, sizeof v->ask.strategy, "%s", strategy != NULL ? strategy : "");
    text(v->ask.gpu, sizeof v->ask.gpu);
    text(v->ask.uuid, sizeof v->ask.uuid);
}

static int write_ask(const struct value *v, char **ret)
{
    return fa_ask_write(&v->ask, ret, NULL);
}

static int read_ask(const char *json, size_t size, struct value *v, fa_diag *diag)
{
    return fa_ask_read(json, size, &v->ask, diag);
}

static void make_answer(struct value *v)
{
    random_answer(&v->answer);
    v->answer.size = sizeof v->answer;
}

static int write_answer(const struct value *v, char **ret)
{
    return fa_answer_write(&v->answer, ret, NULL);
}

static int read_answer(const char *json, size_t size, struct value *v, fa_diag *diag)
{
    v->answer.size = sizeof v->answer;
    return fa_wire_read(json, size, FA_ANSWER_TEXT_MAX, "answer", fa_wire_read_answer, &v->answer,
                        diag);
}

static void make_failure(struct value *v)
{
    v->code = FA_ENOTFOUND;
    snprintf(v->message.text, sizeof v->message.text, "nothing \"stored\"");
}

static int write_failure(const struct value *v, char **ret)
{
    return fa_failure_write(v->code, v->message.text, ret, NULL);
}

static int read_failure(const char *json, size_t size, struct value *v, fa_diag *diag)
{
    return fa_failure_read(json, size, &v->code, &v->message, diag);
}

static const char *const none[] = {NULL};
static const char *const answer_optional[] = {"speedup_over_default", "tflops",  "strategy",
                                              "space_estimated",      "undated", NULL};
static const char *const ask_optional[] = {
    "operation",     "gpu",        "uuid",    "ordinal",  "effort",      "again",    "exact",
    "first_contact", "timeout_ms", "dtype",   "causal",   "layout",      "heads_kv", "seq_k",
    "lse",           "unaligned",  "seconds", "strategy", "evaluations", NULL};
/* A kind of text, and the keys that may be absent or, derived from others, anything. */
static const struct kind {
    const char *name;
    void (*make)(struct value *v);
    int (*write)(const struct value *v, char **ret);
    int (*read)(const char *json, size_t size, struct value *v, fa_diag *diag);
    const char *const *optional;
} kinds[] = {
    {"ask", make_ask, write_ask, read_ask, ask_optional},
    {"answer", make_answer, write_answer, read_answer, answer_optional},
    {"failure", make_failure, write_failure, read_failure, none},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- round trips ----------------------------------------------------------------------------*/
/* Whether two structs have the same bytes; both began as zeros. A pointer differs, and is no part of what is compared:
 * it is made the same first. */
#define SAME(member) (memcmp(&a->member, &b->member, sizeof a->member) == 0)

static bool same_problem(const fa_problem *a, fa_problem *b)
{
    bool same = fa_problem_equal(a, b);
    *b = *a; /* NULL and attention's operation are the same */
    return same;
}

static bool same_answer(const fa_answer *a, fa_answer *b)
{
    return same_problem(&a->problem, &b->problem) &&
           same_problem(&a->from_problem, &b->from_problem) && memcmp(a, b, sizeof *a) == 0;
}

/* `b` was read from what was written of `a`. */
static bool same_value(const struct value *a, struct value *b)
{
    return same_problem(&a->ask.problem, &b->ask.problem) && SAME(ask) &&
           (a->answer.size == 0 || same_answer(&a->answer, &b->answer)) && a->code == b->code &&
           strcmp(a->message.text, b->message.text) == 0;
}

static void every_text_reads_back_as_it_was(void)
{
    static struct value value, back;
    for (int i = 0; i < ROUNDS * KINDS; i++) {
        const struct kind *kind = &kinds[i % KINDS];
        char *json = NULL;
        fa_diag diag = {{0}};
        memset(&value, 0, sizeof value);
        memset(&back, 0, sizeof back);
        kind->make(&value);
        CHECK_INT(kind->write(&value, &json), 0);
        CHECK(strchr(json, '\n') == NULL);
        CHECK_OK(kind->read(json, strlen(json), &back, &diag), diag);
        bool same = same_value(&value, &back);
        if (!same)
            printf("# %s: %s\n", kind->name, json);
        CHECK(same);
        free(json);
    }
}

static void a_failure_of_a_code_that_is_not_known_here_is_one_of_input_and_output(void)
{
    static const char odd[] = "{\"error\":{\"code\":\"FA_ENEW\",\"message\":\"m\"}}";
    int code = 0;
    fa_diag message, diag = {{0}};
    CHECK_OK(fa_failure_read(odd, strlen(odd), &code, &message, &diag), diag);
    CHECK_INT(code, FA_EIO);
}

static void a_locale_with_a_decimal_comma_changes_nothing(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    static fa_answer answer, back = {.size = sizeof back};
    char *json = NULL, *plain = NULL;
    fa_diag diag = {{0}};
    bool set = false;
    random_answer(&answer);
    answer.size = sizeof answer;
    answer.default_us = 1.5;
    CHECK_OK(fa_answer_write(&answer, &plain, &diag), diag);
    for (size_t i = 0; i < 3 && !set; i++)
        set = setlocale(LC_NUMERIC, names[i]) != NULL;
    int rc = set ? fa_answer_write(&answer, &json, &diag) : 0;
    int read = set && rc == 0 ? fa_wire_read(json, strlen(json), FA_ANSWER_TEXT_MAX, "answer",
                                             fa_wire_read_answer, &back, &diag)
                              : 0;
    setlocale(LC_NUMERIC, "C");
    if (set) {
        CHECK_OK(rc, diag);
        CHECK_OK(read, diag);
        CHECK_TEXT(json, plain);
        CHECK(same_answer(&answer, &back));
    }
    free(json);
    free(plain);
    if (!set)
        SKIP("no locale with a decimal comma is installed");
}

/* ---- asks by hand ---------------------------------------------------------------------------*/
static void an_ask_of_four_numbers_is_enough(void)
{
    static const char json[] =
        "{\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":512}}";
    fa_ask ask;
    fa_diag diag = {{0}};
    fa_problem expected = {.head_dim = 64, .batch = 4, .heads_q = 8, .heads_kv = 8, .seq_q = 512,
                           .seq_k = 512};
    CHECK_OK(fa_ask_read(json, strlen(json), &ask, &diag), diag);
    CHECK(fa_problem_equal(&ask.problem, &expected));
    CHECK_INT(ask.effort, FA_EFFORT_MEASURE);
    CHECK_INT(ask.size, sizeof ask);
}

static void a_search_that_cannot_be_is_refused_as_it_is_read(void)
{
    static const struct {
        const char *part, *sentence;
    } wrong[] = {
        {"\"strategy\":\"guess\"", "there is no strategy \"guess\""},
        {"\"strategy\":\"surrogate-of-a-surrogate\"", "strategy"},
        {"\"strategy\":7", "strategy"},
        {"\"evaluations\":20001", "evaluations is 20001"},
        {"\"evaluations\":-1", "evaluations"},
        {"\"evaluations\":1.5", "evaluations"},
        {"\"%s\":-1", "seconds"},
        {"\"%s\":1e10", "seconds"},
        {"\"%s\":1e999", "seconds"},
        {"\"%s\":\"soon\"", "seconds"},
    };
    static const char problem[] =
        "\"problem\":{\"head_dim\":64,\"batch\":4,\"heads_q\":8,\"seq_q\":512}";
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char part[64], json[256], plan[512];
        fa_ask ask = {.size = 0};
        fa_sweep_request request = {.size = 0};
        fa_sweep_item *items = NULL;
        fa_diag diag = {{0}};
        snprintf(part, sizeof part, wrong[i].part, "seconds");
        snprintf(json, sizeof json, "{%s,%s}", problem, part);
        CHECK_INT(fa_ask_read(json, strlen(json), &ask, &diag), FA_EINVAL);
        CHECK_HAS(diag.text, wrong[i].sentence);
        CHECK_INT(ask.size, 0);
        snprintf(part, sizeof part, wrong[i].part, "seconds_each");
        snprintf(json, sizeof json, "{\"items\":[{%s}],%s}", problem, part);
        CHECK_INT(fa_sweep_ask_read(json, strlen(json), &request, &items, plan, &diag), FA_EINVAL);
        CHECK_HAS(diag.text, wrong[i].sentence);
        CHECK(items == NULL);
    }
}

static void texts_beyond_the_limits_are_refused_before_they_are_parsed(void)
{
    char *huge = malloc(FA_SWEEP_ASK_TEXT_MAX + 2);
    fa_ask ask;
    fa_sweep_request request;
    fa_sweep_item *items;
    char plan[512];
    fa_diag diag = {{0}};
    CHECK(huge != NULL);
    memset(huge, '[', FA_SWEEP_ASK_TEXT_MAX + 2); /* would end a parser that recurses */
    CHECK_INT(fa_ask_read(huge, FA_ASK_TEXT_MAX, &ask, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "nested deeper");
    CHECK_INT(fa_ask_read(huge, FA_ASK_TEXT_MAX + 1, &ask, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "16384 is the most");
    CHECK_INT(fa_sweep_ask_read(huge, FA_SWEEP_ASK_TEXT_MAX + 1, &request, &items, plan, &diag),
              FA_EINVAL);
    CHECK_HAS(diag.text, "is the most");
    free(huge);
}

static void control_bytes_and_broken_utf8_in_sentences_are_replaced_when_written(void)
{
    static fa_answer answer, back = {.size = sizeof back};
    char *json = NULL;
    fa_diag diag = {{0}};
    random_answer(&answer);
    answer.size = sizeof answer;
    strcpy(answer.why, "one\ntwo\x1b[31m \xff\xc3 \xc2\x85 \xed\xa0\x80 ok");
    CHECK_OK(fa_answer_write(&answer, &json, &diag), diag);
    CHECK_OK(fa_wire_read(json, strlen(json), FA_ANSWER_TEXT_MAX, "answer", fa_wire_read_answer,
                          &back, &diag),
             diag);
    CHECK_TEXT(back.why, "one two [31m ?? ?? ??? ok");
    free(json);
}

/* ---- hostile texts --------------------------------------------------------------------------*/
static int read_text(const struct kind *kind, const char *json, size_t size, fa_diag *diag)
{
    static struct value value;
    return kind->read(json, size, &value, diag);
}

/* A text of this kind in which every member that may be null is not. Caller frees. */
static char *whole_text(const struct kind *kind)
{
    static struct value value;
    char *json = NULL;
    memset(&value, 0, sizeof value);
    whole = true;
    kind->make(&value);
    whole = false;
    return kind->write(&value, &json) == 0 ? json : NULL;
}

static bool listed(const char *const *names, const char *name)
{
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static int read_json(const struct kind *kind, const cJSON *json, fa_diag *diag)
{
    char *printed = cJSON_PrintUnformatted(json);
    char *copy = malloc(strlen(printed)); /* exactly as long: reading beyond it is seen */
    memcpy(copy, printed, strlen(printed));
    int rc = read_text(kind, copy, strlen(printed), diag);
    free(copy);
    cJSON_free(printed);
    return rc;
}

static void every_text_is_refused_when_it_is_cut_at_any_byte(void)
{
    for (int k = 0; k < KINDS; k++) {
        char *json = whole_text(&kinds[k]);
        size_t size = strlen(json);
        fa_diag diag;
        CHECK_OK(read_text(&kinds[k], json, size, &diag), diag);
        for (size_t cut = 0; cut < size; cut++) {
            char *copy = malloc(cut > 0 ? cut : 1);
            memcpy(copy, json, cut);
            int rc = read_text(&kinds[k], copy, cut, &diag);
            free(copy);
            CHECK_INT(rc, FA_EINVAL);
        }
        free(json);
    }
}

/* A value in a document, found by its number in the order of the text. */
struct place {
    int left;
    cJSON *parent, *item;
    bool optional; /* it, or what holds it, is listed */
    bool tunable;  /* a tunable's value or name, which are anybody's */
};

static void find_place(const struct kind *kind, cJSON *parent, bool optional, bool tunable,
                       struct place *place)
{
    for (cJSON *item = parent->child; item != NULL && place->item == NULL; item = item->next) {
        bool here = optional || (item->string != NULL && listed(kind->optional, item->string));
        if (place->left-- == 0) {
            place->parent = parent;
            place->item = item;
            place->optional = here;
            place->tunable = tunable;
            return;
        }
        find_place(kind, item, here, item->string != NULL && strcmp(item->string, "tunables") == 0,
                   place);
    }
}

static bool always(const cJSON *item)
{
    (void)item;
    return true;
}

static bool was_number(const cJSON *item)
{
    return cJSON_IsNumber(item) != 0;
}

static bool was_text(const cJSON *item)
{
    return cJSON_IsString(item) != 0;
}

static bool was_flag(const cJSON *item)
{
    return cJSON_IsBool(item) != 0;
}

/* With every value in turn replaced by `value` (NULL: left out), a reader refuses the text wherever
 * `must` says so, and reads on or refuses elsewhere (of which places a quarter is tried). Returns how often it had to; < 0: it did not. */
static int replace_each(const struct kind *kind, const char *json, const char *value,
                        bool (*must)(const cJSON *was), bool optional_too)
{
    int refused = 0;
    for (int n = 0;; n++) {
        fa_diag diag = {{0}};
        cJSON *root = cJSON_Parse(json);
        struct place place = {.left = n};
        find_place(kind, root, false, false, &place);
        if (place.item == NULL) {
            cJSON_Delete(root);
            return refused;
        }
        char key[64];
        snprintf(key, sizeof key, "%s", place.item->string != NULL ? place.item->string : "[]");
        bool needed = must(place.item) && (optional_too || !place.optional) && !place.tunable;
        if (!needed && n % 4 != 0 && getenv("FA_TEST_SLOW") == NULL) {
            cJSON_Delete(root);
            continue;
        }
        if (value == NULL)
            cJSON_Delete(cJSON_DetachItemViaPointer(place.parent, place.item));
        else if (place.item->string != NULL)
            cJSON_ReplaceItemInObjectCaseSensitive(place.parent, key, cJSON_CreateRaw(value));
        else
            cJSON_ReplaceItemViaPointer(place.parent, place.item, cJSON_CreateRaw(value));
        int rc = read_json(kind, root, &diag);
        cJSON_Delete(root);
        refused += needed;
        if ((rc != 0 && rc != FA_EINVAL) || (needed && rc == 0)) {
            printf("# %s: \"%s\" as %s gave %d\n", kind->name, key,
                   value != NULL ? value : "nothing", rc);
            return -1;
        }
        if (rc != 0 && diag.text[0] == 0)
            return -1;
    }
}

static void every_field_that_is_missing_or_of_a_wrong_type_is_told(void)
{
    for (int k = 0; k < KINDS; k++) {
        char *json = whole_text(&kinds[k]);
        bool ask = kinds[k].optional == ask_optional; /* what is there must be right */
        CHECK(replace_each(&kinds[k], json, NULL, always, false) > 0);
        CHECK(replace_each(&kinds[k], json, "[]", always, ask) > 0);
        CHECK(replace_each(&kinds[k], json, "[[[[[[[[\"x\"]]]]]]]]", always, ask) > 0);
        CHECK(replace_each(&kinds[k], json, "\"x\"", was_number, ask) >= 0);
        CHECK(replace_each(&kinds[k], json, "\"x\"", was_flag, ask) >= 0);
        CHECK(replace_each(&kinds[k], json, "12", was_text, ask) > 0);
        CHECK(replace_each(&kinds[k], json, "12", was_flag, ask) >= 0);
        CHECK(replace_each(&kinds[k], json, "null", was_flag, ask) >= 0);
        free(json);
    }
}

static void every_number_out_of_range_is_told(void)
{
    for (int k = 0; k < KINDS; k++) {
        char *json = whole_text(&kinds[k]);
        bool ask = kinds[k].optional == ask_optional;
        static const char *const values[] = {"-2",        "1e999", "-1e999", "NaN", "Infinity",
                                             "-Infinity", "0x10",  "1e",     "--1"};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            CHECK(replace_each(&kinds[k], json, values[i], was_number, ask) >= 0);
        free(json);
    }
}

static void shared_memory_that_no_gpu_has_is_refused(void)
{
    struct value v;
    fa_diag diag = {{0}};
    make_answer(&v);
    v.answer.trial.registers = 32;
    for (int32_t over = 0; over < 2; over++) {
        char *json = NULL;
        v.answer.trial.static_smem_bytes = FA_STATIC_SMEM_MAX + over;
        CHECK_INT(write_answer(&v, &json), 0);
        CHECK_INT(read_answer(json, strlen(json), &v, &diag), over != 0 ? FA_EINVAL : 0);
        free(json);
    }
    CHECK_HAS(diag.text, "static_smem_bytes");
}

static void every_text_that_is_too_long_or_unclean_is_told(void)
{
    static char longer[2100];
    memset(longer, 'a', sizeof longer - 1);
    longer[0] = longer[sizeof longer - 2] = '"';
    for (int k = 0; k < KINDS; k++) {
        char *json = whole_text(&kinds[k]);
        if (strcmp(kinds[k].name, "failure") != 0) /* its message is cut to the sentence's size */
            CHECK(replace_each(&kinds[k], json, longer, was_text, true) > 0);
        CHECK(replace_each(&kinds[k], json, "\"\\u0000\"", was_text, true) >= 0);
        CHECK(replace_each(&kinds[k], json, "\"a\\u001bb\"", was_text, true) > 0);
        CHECK(replace_each(&kinds[k], json, "\"\\ud800\"", was_text, true) > 0);
        CHECK(replace_each(&kinds[k], json, "\"\xc0\xaf\"", was_text, true) > 0);
        CHECK(replace_each(&kinds[k], json, "\"\xf4\x90\x80\x80\"", was_text, true) > 0);
        free(json);
    }
}

int main(void)
{
    TEST(every_text_reads_back_as_it_was);
    TEST(a_failure_of_a_code_that_is_not_known_here_is_one_of_input_and_output);
    TEST(a_locale_with_a_decimal_comma_changes_nothing);
    TEST(an_ask_of_four_numbers_is_enough);
    TEST(a_search_that_cannot_be_is_refused_as_it_is_read);
    TEST(texts_beyond_the_limits_are_refused_before_they_are_parsed);
    TEST(control_bytes_and_broken_utf8_in_sentences_are_replaced_when_written);
    TEST(every_text_is_refused_when_it_is_cut_at_any_byte);
    TEST(every_field_that_is_missing_or_of_a_wrong_type_is_told);
    TEST(every_number_out_of_range_is_told);
    TEST(shared_memory_that_no_gpu_has_is_refused);
    TEST(every_text_that_is_too_long_or_unclean_is_told);
    return check_done();
}
