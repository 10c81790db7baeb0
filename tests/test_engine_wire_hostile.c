/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's texts as somebody else may have written them: cut, with fields that are missing, of
 * a wrong type or out of range, and with bytes changed. Every reader refuses them with a sentence.
 */
#include "wire_fixture.h"

#include "json.h"

/* One reader with a text that it takes. */
struct reader {
    const char *name;
    char *json;
    int (*read)(const char *text, size_t size, fa_diag *diag);
    const char *const *optional; /* keys that may be absent or, derived from others, anything */
};

static int read_ask(const char *json, size_t size, fa_diag *diag)
{
    fa_ask ask;
    return fa_ask_read(json, size, &ask, diag);
}

static int read_answer(const char *json, size_t size, fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    return fa_answer_read(json, size, &answer, diag);
}

static int read_progress(const char *json, size_t size, fa_diag *diag)
{
    fa_progress progress;
    fa_trial trial, best;
    return fa_progress_read(json, size, &progress, &trial, &best, diag);
}

static int read_sweep(const char *json, size_t size, fa_diag *diag)
{
    fa_sweep sweep;
    return fa_sweep_read(json, size, &sweep, diag);
}

static int read_event(const char *json, size_t size, fa_diag *diag)
{
    static fa_sweep_parts parts;
    fa_sweep_progress progress;
    return fa_sweep_event_read(json, size, &progress, &parts, diag);
}

static int read_sweep_ask(const char *json, size_t size, fa_diag *diag)
{
    fa_sweep_request request;
    fa_sweep_item *items = NULL;
    char plan[512];
    int rc = fa_sweep_ask_read(json, size, &request, &items, plan, diag);
    free(items);
    return rc;
}

static int read_failure(const char *json, size_t size, fa_diag *diag)
{
    fa_diag message;
    int code;
    return fa_failure_read(json, size, &code, &message, diag);
}

enum { READERS = 7 };

static const char *const answer_optional[] = {"speedup_over_default", "tflops", NULL};
static const char *const ask_optional[] = {"operation", "gpu", "uuid", "ordinal", "effort", "again",
                                           "exact", "first_contact", "timeout_ms", "dtype", "causal",
                                           "layout", "heads_kv", "seq_k", "lse", "unaligned", "plan",
                                           "restart", "budget", "seconds", "trials", "cost",
                                           "price", NULL};
static const char *const progress_optional[] = {"ended", NULL};
static const char *const sweep_optional[] = {"left", NULL};
static const char *const event_optional[] = {"operation", "ended",     "speedup_over_default",
                                             "tflops",    "left",      "tune",
                                             "answer",    "dtype",     "causal",
                                             "layout",    "heads_kv",  "seq_k",
                                             "lse",       "unaligned", NULL};
static const char *const none[] = {NULL};

/* Texts in which every field that may be null is not. */
static bool readers(struct reader ret[READERS])
{
    static fa_sweep_parts parts;
    fa_trial trial, best;
    fa_progress progress;
    do
        random_answer(&parts.answer);
    while (parts.answer.trial.median_us == 0 || parts.answer.trial.tolerance == 0 ||
           parts.answer.trial.threads == 0 || parts.answer.trial.registers == 0 ||
           parts.answer.promised_rank == 0 || parts.answer.default_us == 0 ||
           parts.answer.from_gpu[0] == 0 || parts.answer.trial.config.count == 0);
    do
        random_progress(&progress, &trial, &best);
    while (progress.trial == NULL || progress.best == NULL || progress.left_s < 0);
    parts.tune = progress;
    do
        random_sweep(&parts.sweep);
    while (parts.sweep.budget.seconds == 0 || parts.sweep.budget.trials == 0);
    parts.item = (fa_sweep_item){.problem = random_problem()};
    fa_sweep_progress event = {.sweep = &parts.sweep, .item = &parts.item, .tune = &parts.tune,
                               .answer = &parts.answer};
    fa_sweep_request request = {.size = sizeof request, .items = &parts.item, .count = 1,
                                .plan = "p", .budget = parts.sweep.budget};
    fa_ask ask = {.size = sizeof ask, .problem = random_problem()};
    struct reader all[READERS] = {{"ask", NULL, read_ask, ask_optional},
                                  {"answer", NULL, read_answer, answer_optional},
                                  {"progress", NULL, read_progress, progress_optional},
                                  {"sweep", NULL, read_sweep, sweep_optional},
                                  {"event", NULL, read_event, event_optional},
                                  {"sweep ask", NULL, read_sweep_ask, ask_optional},
                                  {"failure", NULL, read_failure, none}};
    bool good = fa_ask_write(&ask, &all[0].json, NULL) == 0 &&
                fa_answer_write(&parts.answer, &all[1].json, NULL) == 0 &&
                fa_progress_write(&progress, &all[2].json, NULL) == 0 &&
                fa_sweep_write(&parts.sweep, &all[3].json, NULL) == 0 &&
                fa_sweep_event_write(&event, &all[4].json, NULL) == 0 &&
                fa_sweep_ask_write(&request, &all[5].json, NULL) == 0 &&
                fa_failure_write(FA_EIO, "m", &all[6].json, NULL) == 0;
    memcpy(ret, all, sizeof all);
    return good;
}

static bool listed(const char *const *names, const char *name)
{
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static int read_json(const struct reader *reader, const cJSON *json, fa_diag *diag)
{
    char *printed = cJSON_PrintUnformatted(json);
    char *copy = malloc(strlen(printed)); /* exactly as long: reading beyond it is seen */
    memcpy(copy, printed, strlen(printed));
    int rc = reader->read(copy, strlen(printed), diag);
    free(copy);
    cJSON_free(printed);
    return rc;
}

static void every_text_is_refused_when_it_is_cut_at_any_byte(void)
{
    struct reader reader[READERS];
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        size_t size = strlen(reader[r].json);
        fa_diag diag;
        CHECK_OK(reader[r].read(reader[r].json, size, &diag), diag);
        for (size_t cut = 0; cut < size; cut++) {
            char *copy = malloc(cut > 0 ? cut : 1);
            memcpy(copy, reader[r].json, cut);
            int rc = reader[r].read(copy, cut, &diag);
            free(copy);
            CHECK_INT(rc, FA_EINVAL);
        }
        free(reader[r].json);
    }
}

/* A value in a document, found by its number in the order of the text. */
struct place {
    int left;
    cJSON *parent, *item;
    bool optional; /* it, or what holds it, is listed */
    bool tunable;  /* a tunable's value or name, which are anybody's */
};

static void find_place(const struct reader *reader, cJSON *parent, bool optional, bool tunable,
                       struct place *place)
{
    for (cJSON *item = parent->child; item != NULL && place->item == NULL; item = item->next) {
        bool here = optional || (item->string != NULL && listed(reader->optional, item->string));
        if (place->left-- == 0) {
            place->parent = parent;
            place->item = item;
            place->optional = here;
            place->tunable = tunable;
            return;
        }
        find_place(reader, item, here,
                   item->string != NULL && strcmp(item->string, "tunables") == 0, place);
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
 * `must` says so, and reads on or refuses elsewhere. Returns how often it had to; < 0: it did not. */
static int replace_each(const struct reader *reader, const char *value,
                        bool (*must)(const cJSON *was), bool optional_too)
{
    int refused = 0;
    for (int n = 0;; n++) {
        fa_diag diag = {{0}};
        cJSON *root = cJSON_Parse(reader->json);
        struct place place = {.left = n};
        find_place(reader, root, false, false, &place);
        if (place.item == NULL) {
            cJSON_Delete(root);
            return refused;
        }
        char key[64];
        snprintf(key, sizeof key, "%s", place.item->string != NULL ? place.item->string : "[]");
        bool needed = must(place.item) && (optional_too || !place.optional) && !place.tunable;
        if (value == NULL)
            cJSON_Delete(cJSON_DetachItemViaPointer(place.parent, place.item));
        else if (place.item->string != NULL)
            cJSON_ReplaceItemInObjectCaseSensitive(place.parent, key, cJSON_CreateRaw(value));
        else
            cJSON_ReplaceItemViaPointer(place.parent, place.item, cJSON_CreateRaw(value));
        int rc = read_json(reader, root, &diag);
        cJSON_Delete(root);
        refused += needed;
        if ((rc != 0 && rc != FA_EINVAL) || (needed && rc == 0)) {
            printf("# %s: \"%s\" as %s gave %d\n", reader->name, key,
                   value != NULL ? value : "nothing", rc);
            return -1;
        }
        if (rc != 0 && diag.text[0] == 0)
            return -1;
    }
}

static void every_field_that_is_missing_or_of_a_wrong_type_is_told(void)
{
    struct reader reader[READERS];
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        bool ask = reader[r].optional == ask_optional; /* what is there must be right */
        CHECK(replace_each(&reader[r], NULL, always, false) > 0);
        CHECK(replace_each(&reader[r], "[]", always, ask) > 0);
        CHECK(replace_each(&reader[r], "[[[[[[[[\"x\"]]]]]]]]", always, ask) > 0);
        CHECK(replace_each(&reader[r], "\"x\"", was_number, ask) >= 0);
        CHECK(replace_each(&reader[r], "\"x\"", was_flag, ask) >= 0);
        CHECK(replace_each(&reader[r], "12", was_text, ask) > 0);
        CHECK(replace_each(&reader[r], "12", was_flag, ask) >= 0);
        CHECK(replace_each(&reader[r], "null", was_flag, ask) >= 0);
        free(reader[r].json);
    }
}

static void every_number_out_of_range_is_told(void)
{
    struct reader reader[READERS];
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        bool ask = reader[r].optional == ask_optional;
        static const char *const values[] = {"-2", "1e999", "-1e999", "NaN", "Infinity", "-Infinity",
                                             "0x10", "1e", "--1"};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            CHECK(replace_each(&reader[r], values[i], was_number, ask) >= 0);
        free(reader[r].json);
    }
}

static void every_text_that_is_too_long_or_unclean_is_told(void)
{
    static char longer[2100];
    struct reader reader[READERS];
    memset(longer, 'a', sizeof longer - 1);
    longer[0] = longer[sizeof longer - 2] = '"';
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        if (strcmp(reader[r].name, "failure") != 0) /* its message is cut to the sentence's size */
            CHECK(replace_each(&reader[r], longer, was_text, true) > 0);
        CHECK(replace_each(&reader[r], "\"\\u0000\"", was_text, true) >= 0);
        CHECK(replace_each(&reader[r], "\"a\\u001bb\"", was_text, true) > 0);
        CHECK(replace_each(&reader[r], "\"\\ud800\"", was_text, true) > 0);
        CHECK(replace_each(&reader[r], "\"\xc0\xaf\"", was_text, true) > 0);
        CHECK(replace_each(&reader[r], "\"\xf4\x90\x80\x80\"", was_text, true) > 0);
        free(reader[r].json);
    }
}

static void texts_with_random_bytes_changed_are_read_or_refused(void)
{
    struct reader reader[READERS];
    int refused = 0;
    CHECK(readers(reader));
    for (int r = 0; r < READERS; r++) {
        size_t size = strlen(reader[r].json);
        for (int i = 0; i < 4 * ROUNDS; i++) {
            char *copy = malloc(size);
            fa_diag diag;
            memcpy(copy, reader[r].json, size);
            for (int k = 0; k <= i % 4; k++) {
                int32_t at = below((int32_t)size);
                copy[at] = (char)bits();
            }
            int rc = reader[r].read(copy, size, &diag);
            free(copy);
            CHECK(rc == 0 || rc == FA_EINVAL);
            refused += rc != 0;
        }
        free(reader[r].json);
    }
    CHECK(refused > READERS * ROUNDS);
}

int main(void)
{
    TEST(every_text_is_refused_when_it_is_cut_at_any_byte);
    TEST(every_field_that_is_missing_or_of_a_wrong_type_is_told);
    TEST(every_number_out_of_range_is_told);
    TEST(every_text_that_is_too_long_or_unclean_is_told);
    TEST(texts_with_random_bytes_changed_are_read_or_refused);
    return check_done();
}
