/* SPDX-License-Identifier: Apache-2.0 */
#include "data.h"

#include "wording.h"
#include "error.h"
#include "json.h"
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- escaping -------------------------------------------------------------------------------*/
enum { PIECE_MAX = 16 };

/* Bytes of the UTF-8 sequence that begins here; 0: none does. */
static int sequence(const unsigned char *text)
{
    if (text[0] < 0x80)
        return 1;
    int length = text[0] >= 0xc2 && text[0] < 0xe0   ? 2
                 : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
                 : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                     : 0;
    for (int i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] >= 0xa0) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] >= 0x90))
        return 0; /* overlong, a surrogate, or beyond Unicode */
    return length;
}

void report_mend(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != 0;) {
        int length = sequence(c);
        if (length == 0)
            *c = '?';
        c += length == 0 ? 1 : length;
    }
}

/* The next character, made harmless: a control or a character that reorders what stands around it becomes
 * its escape, a byte that is no UTF-8 becomes '?'. Steps over it. */
static void next_piece(const unsigned char **text, char ret[PIECE_MAX])
{
    const unsigned char *c = *text;
    unsigned code = 0;
    int length = sequence(c);
    *text += length > 0 ? length : 1;
    if (length == 0)
        snprintf(ret, PIECE_MAX, "?");
    else if (fa_control_at((const char *)c, &code) > 0)
        snprintf(ret, PIECE_MAX, length == 1 ? "\\x%02x" : "\\u%04x", code);
    else
        snprintf(ret, PIECE_MAX, "%.*s", length, (const char *)c);
}

void report_html_lines(fa_buf *out, const char *text)
{
    char piece[PIECE_MAX];
    for (const unsigned char *c = (const unsigned char *)text; *c != 0;) {
        unsigned char first = *c;
        next_piece(&c, piece);
        fa_buf_text(out, first == '\n'  ? "\n"
                         : first == '&' ? "&amp;"
                         : first == '<' ? "&lt;"
                         : first == '>' ? "&gt;"
                                        : piece);
    }
}

void report_markdown_text(fa_buf *out, const char *text)
{
    char piece[PIECE_MAX];
    for (const unsigned char *c = (const unsigned char *)text; *c != 0;) {
        next_piece(&c, piece);
        if (piece[0] == '<' || piece[0] == '&' || piece[0] == '>')
            fa_buf_text(out, piece[0] == '<' ? "&lt;" : piece[0] == '&' ? "&amp;" : "&gt;");
        else if (strchr("\\`*_[]|#~!", piece[0]) != NULL)
            fa_buf_printf(out, "\\%s", piece);
        else
            fa_buf_text(out, piece);
    }
}

void report_markdown_code(fa_buf *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_=.,:/+- ";
    if (text[strspn(text, plain)] == 0)
        fa_buf_printf(out, "`%s`", text);
    else
        report_markdown_text(out, text);
}

void report_csv_text(fa_buf *out, const char *text)
{
    char piece[PIECE_MAX];
    bool runs = strchr("=+-@", text[0]) != NULL && text[0] != 0;
    bool quoted =
        runs || strpbrk(text, ",\"\r\n\t;'") != NULL || text[strspn(text, " ")] != text[0];
    fa_buf_text(out, runs ? "\"'" : quoted ? "\"" : "");
    for (const unsigned char *c = (const unsigned char *)text; *c != 0;) {
        next_piece(&c, piece);
        fa_buf_text(out, piece[0] == '"' ? "\"\"" : piece);
    }
    fa_buf_text(out, quoted ? "\"" : "");
}

void report_script_json(fa_buf *out, const char *json)
{
    char piece[PIECE_MAX];
    for (const unsigned char *c = (const unsigned char *)json; *c != 0;) {
        unsigned char first = *c;
        next_piece(&c, piece);
        if (first == '<' || first == 0x7f)
            fa_buf_printf(out, "\\u%04x", first);
        else if (first == '\n') /* between problems; in texts JSON escapes it */
            fa_buf_text(out, "\n");
        else
            fa_buf_text(out, piece);
    }
}

/* ---- wording --------------------------------------------------------------------------------*/
void report_us(fa_buf *out, double us)
{
    fa_words_us(out, us, "µs");
}

void report_about(fa_buf *out, double us)
{
    fa_words_about(out, us, "µs");
}

void report_seconds(fa_buf *out, double seconds)
{
    if (!(seconds > 0))
        fa_buf_text(out, "–");
    else if (seconds >= 7200)
        fa_buf_printf(out, "%.1f h", seconds / 3600);
    else if (seconds >= 120)
        fa_buf_printf(out, "%d min %d s", (int)(seconds / 60), (int)seconds % 60);
    else
        fa_buf_printf(out, seconds < 0.0995 ? "%.3f s" : "%.1f s", seconds);
}

void report_ratio(fa_buf *out, double ratio)
{
    fa_buf_printf(out, "%.2f×", ratio);
}

void report_driver(fa_buf *out, double version)
{
    fa_buf_printf(out, "CUDA %d.%d", (int)version / 1000, (int)version % 1000 / 10);
}

const char *report_peer_name(const char *peer)
{
    static const char *const known[][2] = {
        {"pytorch-cudnn", "cuDNN"},
        {"pytorch-fa2", "PyTorch's FA2"},
        {"pytorch-efficient", "PyTorch's efficient attention"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(peer, known[i][0]) == 0)
            return known[i][1];
    return peer;
}

double report_number(const cJSON *value)
{
    return cJSON_IsNumber(value) && isfinite(value->valuedouble) ? value->valuedouble : NAN;
}

void report_add_words(cJSON *object, const char *name, const fa_problem *problem)
{
    fa_buf words = {0};
    fa_problem_words(&words, problem, " · ", false);
    /* Without it the document is not printed. */
    fa_json_add(object, name, words.failed ? NULL : cJSON_CreateString(words.data));
    fa_buf_free(&words);
}

void report_add_problem(cJSON *object, const fa_problem *problem)
{
    fa_json_add(object, "problem", fa_problem_to_json(problem));
    report_add_words(object, "words", problem);
}
