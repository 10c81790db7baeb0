/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of fa_service.h: what is read is written again as it was, and whatever somebody else may have written (cut, with
 * fields that are missing, of a wrong type or out of range) is refused with a sentence. Random changes are fuzz/fuzz_wire.c's.
 */
#include "fa_tune.h"

#include "check.h"
#include "json.h"
#include "sources.h"

#include <locale.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SOME "'dtype':'bf16','causal':'top-left','layout':'bshd','head_dim':72,'batch':2147483647,"
#define PROBLEM                     \
    "{'operation':'attn_fwd'," SOME \
    "'heads_q':8,'heads_kv':2,'seq_q':1,'seq_k':77,'lse':true,'unaligned':true}"
#define FUNNEL "{'space':1,'in_budget':2,'compiled':3,'clean':4,'proved':5,'measured':6,'failed':7}"

/* ' stands for ". Every member is there, and none is null, 0 or empty where that is what it is when it is not known. */
static const char ask[] =
    "{'problem':" PROBLEM
    ",'gpu':'L4','uuid':'GPU-µ€𝄞','first_contact':true,'timeout_ms':5,'ordinal':1023,'effort':'patient',"
    "'again':true,'exact':true,'same_bits':'default','strategy':'random','evaluations':20000,'seconds':0.1}";
static const char answer[] =
    "{'problem':" PROBLEM
    ",'gpu':{'name':'L4','sm':89,'sm_count':58,'smem_per_block':1,'smem_per_sm':2,'smem_reserved':3,"
    "'regs_per_sm':4,'threads_per_sm':5,'blocks_per_sm':6,'memory_bus_bits':7,'clock_mhz':8,'l2_bytes':549755813887,"
    "'bandwidth_gbs':0.1,'tensor_tflops':121.15968,'present':true,'ordinal':3,'uuid':'GPU-1'},'origin':'nearest',"
    "'from_store':true,'from_system':true,'config':{'family':'attn_fwd_sm80','tunables':{'A':2147483647,'B':'half','C':-0.1250001}},"
    "'status':'measured','reason':'a \\\\ {}','threads':1024,'smem_bytes':9,'static_smem_bytes':1048576,'registers':255,"
    "'spill_bytes':10,'blocks_per_sm':11,'grid':[4294967295,1,2],'compile_ms':0.30000000000000004,'predicted_us':1e-24,"
    "'median_us':0.75,'low_us':1.7976931348623157e+308,'high_us':3,'sample_count':12,'max_error':1e-05,'tolerance':0.001,"
    "'raced':true,'spilled':true,'entry':'attn_fwd','cubin_key':'" HASH
    "','nvrtc':'13.0','driver_version':12080,'unix_time':1795949702,"
    "'default_us':1.5,'tune_s':2.5,"
    "'funnel':" FUNNEL ",'ties':8,'from_problem':" PROBLEM
    ",'from_gpu':'A10','why':'so','shortlist_only':true,"
    "'strategy':'random','undated':true,'ties_differ':7,'same_bits':'default'";
static const char failure[] = "{'error':{'code':'FA_ENOTFOUND','message':'nothing \\'stored\\''}}";

static char *quoted(const char *text, const char *end)
{
    char *out = NULL;
    if (asprintf(&out, "%s%s", text, end) < 0)
        abort();
    for (char *c = out; *c != 0; c++)
        *c = *c == '\'' ? '"' : *c;
    return out;
}

/* ---- the kinds: each reads a text, and writes what it read. ret_text may be NULL ---------------*/
static int again_ask(const char *text, size_t size, char **ret_text, fa_diag *diag)
{
    fa_ask read;
    const int rc = fa_ask_read(text, size, &read, diag);
    return rc != 0 || ret_text == NULL ? rc : fa_ask_write(&read, ret_text, diag);
}

static int again_answer(const char *text, size_t size, char **ret_text, fa_diag *diag)
{
    fa_answer read;
    FA_ENDS(fa_free_at) char *reply = NULL;
    const int length = asprintf(&reply, "{\"answer\":%.*s}", (int)size, text);
    const int rc = fa_kernel_read(reply, (size_t)length, &read, diag);
    return rc != 0 || ret_text == NULL ? rc : fa_answer_write(&read, ret_text, diag);
}

static int again_failure(const char *text, size_t size, char **ret_text, fa_diag *diag)
{
    int code;
    fa_diag message;
    const int rc = fa_failure_read(text, size, &code, &message, diag);
    return rc != 0 || ret_text == NULL ? rc : fa_failure_write(code, message.text, ret_text, diag);
}

static const struct kind {
    const char *name, *text, *end;
    int (*again)(const char *text, size_t size, char **ret_text, fa_diag *diag);
    const char *optional; /* keys that may be absent; of an ask they are right where present */
    bool strict;
} kinds[] = {
    {"ask", ask, "", again_ask,
     " operation gpu uuid ordinal effort again exact first_contact timeout_ms dtype causal layout heads_kv seq_k lse unaligned "
     "seconds strategy evaluations same_bits ",
     true},
    /* Two are made of others, and are not read. */
    {"answer", answer, ",'speedup_over_default':2,'tflops':null}", again_answer,
     " speedup_over_default tflops strategy undated ties_differ same_bits spilled ", false},
    {"failure", failure, "", again_failure, " ", false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

TEST(every_text_reads_back_as_it_was_in_any_locale)
{
    static const char *const locales[] = {"C", "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    for (size_t i = 0; i < KINDS * sizeof locales / sizeof *locales; i++) {
        const struct kind *kind = &kinds[i % KINDS];
        char *given = quoted(kind->text, kind->end), *back = NULL;
        fa_diag diag = {{0}};
        setlocale(LC_NUMERIC,
                  locales[i / KINDS]); /* one with a decimal comma, where it is installed */
        const int rc = kind->again(given, strlen(given), &back, &diag);
        setlocale(LC_NUMERIC, "C");
        CHECK_OK(rc, diag);
        CHECK_TEXT(back, given);
        free(back);
        for (size_t cut = 0; cut < strlen(given); cut += 1 + i / KINDS) {
            char *part = strndup(given, cut);
            CHECK_INT(kind->again(part, cut, NULL, &diag), FA_EINVAL);
            free(part);
        }
        free(given);
    }
}

/* ---- hostile texts --------------------------------------------------------------------------*/
/* The n-th value of a document in the order of its text. */
struct place {
    int left;
    cJSON *parent, *item;
    bool optional; /* it, or what holds it, is listed */
    bool anybodys; /* the value or name of a tunable */
};

static void find_place(const struct kind *kind, cJSON *parent, bool optional, bool anybodys,
                       struct place *place)
{
    for (cJSON *item = parent->child; item != NULL && place->item == NULL; item = item->next) {
        char key[64];
        snprintf(key, sizeof key, " %s ", item->string != NULL ? item->string : "[]");
        const bool here = optional || strstr(kind->optional, key) != NULL;
        if (place->left-- == 0)
            *place = (struct place){-1, parent, item, here, anybodys};
        else
            find_place(kind, item, here, strcmp(key, " tunables ") == 0, place);
    }
}

TEST(every_value_that_is_missing_of_a_wrong_type_or_out_of_range_is_told)
{
    enum {
        NUMBER = cJSON_Number,
        STRING = cJSON_String,
        FLAG = cJSON_True,
        ANY = NUMBER | STRING | FLAG | cJSON_Object | cJSON_Array
    };
    static char longer[2100];
    static const struct {
        const char *value; /* NULL: it is left out */
        int instead;       /* of values of which type a reader must refuse it */
    } wrong[] = {{NULL, ANY},
                 {"[]", ANY & ~cJSON_Array},
                 {"[[[[[[[[\"x\"]]]]]]]]", ANY},
                 {"\"x\"", NUMBER | FLAG},
                 {"12", STRING | FLAG},
                 {"null", FLAG},
                 {"-2", NUMBER},
                 {"1e999", NUMBER},
                 {"-1e999", NUMBER},
                 {"NaN", ANY},
                 {"-Infinity", ANY},
                 {"0x10", ANY},
                 {"1e", ANY},
                 {"--1", ANY},
                 {longer, STRING},
                 {"\"\\u0000\"", ANY},
                 {"\"a\\u001bb\"", ANY},
                 {"\"\\ud800\"", ANY},
                 {"\"\xc0\xaf\"", ANY},
                 {"\"\xf4\x90\x80\x80\"", ANY}};
    memset(longer, 'a', sizeof longer - 1);
    longer[0] = longer[sizeof longer - 2] = '"';
    for (size_t i = 0; i < KINDS * sizeof wrong / sizeof *wrong; i++) {
        const struct kind *kind = &kinds[i % KINDS];
        const char *value = wrong[i / KINDS].value;
        char *given = quoted(kind->text, kind->end);
        for (int n = 0;; n++) {
            fa_diag diag = {{0}};
            cJSON *root = cJSON_Parse(given);
            struct place place = {.left = n};
            find_place(kind, root, false, false, &place);
            if (place.item == NULL) {
                CHECK(n > 2);
                cJSON_Delete(root);
                break;
            }
            const bool needed = (wrong[i / KINDS].instead & place.item->type) != 0 &&
                                !place.anybodys &&
                                (wrong[i / KINDS].instead == ANY && value != NULL && value[0] != '['
                                     ? true /* no text of JSON, or an unclean one */
                                     : !place.optional || (kind->strict && value != NULL));
            char key[64];
            snprintf(key, sizeof key, "%s", place.item->string != NULL ? place.item->string : "[]");
            if (value == NULL)
                cJSON_Delete(cJSON_DetachItemViaPointer(place.parent, place.item));
            else if (place.item->string != NULL)
                cJSON_ReplaceItemInObjectCaseSensitive(place.parent, key, cJSON_CreateRaw(value));
            else
                cJSON_ReplaceItemViaPointer(place.parent, place.item, cJSON_CreateRaw(value));
            char *text = cJSON_PrintUnformatted(root);
            const int rc = kind->again(text, strlen(text), NULL, &diag);
            if ((rc != 0 && (rc != FA_EINVAL || diag.text[0] == 0)) || (needed && rc == 0)) {
                printf("# %s: \"%s\" as %s gave %d\n", kind->name, key,
                       value != NULL ? value : "nothing", rc);
                CHECK(false);
            }
            free(text);
            cJSON_Delete(root);
        }
        free(given);
    }
}

/* ---- by hand --------------------------------------------------------------------------------*/
static void one_text_gives_this(const char *text, int rc, const char *sentence)
{
    fa_ask one;
    fa_sweep_ask many = {.items = NULL};
    FA_ENDS(fa_free_at) char *asked = quoted(text, "");
    fa_diag diag = {{0}};
    const bool sweep = strstr(text, "'items'") != NULL;
    CHECK_INT(sweep ? fa_sweep_ask_read(asked, strlen(asked), &many, &diag)
                    : fa_ask_read(asked, strlen(asked), &one, &diag),
              rc);
    CHECK_HAS(diag.text, sentence);
    if (rc == 0)
        CHECK(!sweep
                  ? one.request.effort == FA_EFFORT_MEASURE && one.request.problem.heads_kv == 8 &&
                        one.request.problem.seq_k == 512 && one.request.size == sizeof one.request
                  : many.request.count == 1 && many.request.each.strategy != NULL &&
                        many.request.plan == many.plan && many.request.items == many.items);
    free(many.items);
}

TEST(asks_are_read_by_their_rules)
{
#define FOUR "'problem':{'head_dim':64,'batch':4,'heads_q':8,'seq_q':512}"
    one_text_gives_this("{" FOUR "}", 0, "");
    one_text_gives_this("{'items':[{" FOUR "}],'plan':'p','strategy':'random'}", 0, "");
    one_text_gives_this("{" FOUR ",'gpo':'L4'}", FA_EINVAL, "gpo");
    one_text_gives_this("{" FOUR ",'strategy':'surrogate-of-a-surrogate'}", FA_EINVAL, "strategy");
    one_text_gives_this("{'items':[{" FOUR "}],'strategy':'guess'}", FA_EINVAL,
                        "there is no strategy \"guess\"");
    one_text_gives_this("{'items':[{" FOUR "}],'evaluations':20001}", FA_EINVAL,
                        "evaluations is 20001");
    one_text_gives_this("{'items':[{" FOUR "}],'seconds_each':1e10}", FA_EINVAL, "seconds");
    one_text_gives_this("{'items':[{" FOUR "},7]}", FA_EINVAL,
                        "item 2: ask: an item must be an object");
    one_text_gives_this("{'items':[]}", FA_EINVAL, "1 to 10000");
    one_text_gives_this("{'items':[{" FOUR "}],'budget':{'euros':1}}", FA_EINVAL, "euros");
    FA_ENDS(fa_free_at) char *huge = malloc(FA_SWEEP_ASK_TEXT_MAX + 2);
    fa_ask one;
    fa_sweep_ask many;
    fa_diag diag = {{0}};
    memset(huge, '[', FA_SWEEP_ASK_TEXT_MAX + 2); /* would end a parser that recurses */
    CHECK_FAILS(fa_ask_read(huge, FA_ASK_TEXT_MAX, &one, &diag), FA_EINVAL, "nested deeper");
    CHECK_FAILS(fa_ask_read(huge, FA_ASK_TEXT_MAX + 1, &one, &diag), FA_EINVAL,
                "16384 is the most");
    CHECK_FAILS(fa_sweep_ask_read(huge, FA_SWEEP_ASK_TEXT_MAX + 1, &many, &diag), FA_EINVAL,
                "is the most");
}

TEST(sentences_are_cleaned_and_codes_of_later_versions_read)
{
    static const char odd[] = "{\"error\":{\"code\":\"FA_ENEW\",\"message\":\"m\"}}";
    char *text = NULL;
    int code = 0;
    fa_diag message = {{0}}, diag = {{0}};
    CHECK_OK(fa_failure_read(odd, strlen(odd), &code, &message, &diag), diag);
    CHECK_INT(code, FA_EIO);
    CHECK_OK(
        fa_failure_write(1, "one\ntwo\x1b[31m \xff\xc3 \xc2\x85 \xed\xa0\x80 ok", &text, &diag),
        diag);
    CHECK_TEXT(text, "{\"error\":{\"code\":\"FA_EIO\",\"message\":\"one two [31m ?? ?? ??? ok\"}}");
    free(text);
    /* Shared memory that no GPU has. */
    char *given = quoted(answer, "}"), *digit = strstr(given, "1048576") + 6;
    for (int over = 0; over < 2; over++, ++*digit)
        CHECK_INT(again_answer(given, strlen(given), NULL, &diag), over != 0 ? FA_EINVAL : 0);
    CHECK_HAS(diag.text, "static_smem_bytes");
    free(given);
}
