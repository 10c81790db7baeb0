/* SPDX-License-Identifier: Apache-2.0
 *
 * Error sentences and the name tables, each made from one X-macro or one array.
 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t fa_utf8_at(const char *text, size_t left, uint32_t *ret_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *c = (const unsigned char *)text;
    size_t size = *c < 0x80 ? 1 : *c >> 5 == 6 ? 2 : *c >> 4 == 14 ? 3 : *c >> 3 == 30 ? 4 : 0;
    uint32_t code = size == 1 ? *c : *c & (0x7fu >> size);
    for (size_t i = 1; i < size && i < left; i++) {
        if (c[i] >> 6 != 2)
            return 0;
        code = code << 6 | (c[i] & 0x3fu);
    }
    *ret_code = code;
    return size <= left && code >= least[size] && code <= 0x10ffff && code >> 11 != 0x1b ? size : 0;
}

int fa_control_at(const char *text, unsigned *ret_code)
{
    uint32_t code = 0;
    size_t length = fa_utf8_at(text, 4, &code); /* no further than the text's NUL */
    bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    bool reorders = code == 0x061c || (code >= 0x200b && code <= 0x200f) ||
                    (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
                    code == 0xfeff;
    if (length == 0 || !(control || reorders))
        return 0;
    *ret_code = code;
    return (int)length;
}

/* Terminals act on control bytes, and texts from compilers and drivers are not ours. */
static void escape_control(const char *text, char *out, size_t size)
{
    size_t n = 0;
    int length;
    for (; *text != 0 && n + 7 < size; text += length > 0 ? length : 1) {
        unsigned code = 0;
        length = fa_control_at(text, &code);
        if (length == 0)
            out[n++] = *text;
        else if (*text == '\n' || *text == '\t')
            out[n++] = ' ';
        else
            n += (size_t)snprintf(out + n, size - n, length == 1 ? "\\x%02x" : "\\u%04x", code);
    }
    out[n] = 0;
}

int fa_fail(fa_diag *diag, int code, const char *format, ...)
{
    if (diag != NULL) {
        char text[sizeof diag->text];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        escape_control(text, diag->text, sizeof diag->text);
    }
    return code;
}

int fa_have(bool memory, const char *what, fa_diag *diag)
{
    return memory ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for %s", what);
}

int fa_expect(bool all, const char *names, fa_diag *diag)
{
    return all ? 0 : fa_fail(diag, FA_EINVAL, "%s is NULL", names);
}

int fa_fail_in(fa_diag *diag, int code, const char *format, ...)
{
    if (diag != NULL) {
        char prefix[sizeof diag->text], text[2 * sizeof diag->text + 2];
        va_list args;
        va_start(args, format);
        vsnprintf(prefix, sizeof prefix, format, args);
        va_end(args);
        snprintf(text, sizeof text, "%s: %s", prefix, diag->text);
        escape_control(text, diag->text, sizeof diag->text);
    }
    return code;
}

#define ROW(name, value, text) [value] = text,
const char *const fa_status_names[] = {FA_STATUSES(ROW) NULL};
const char *const fa_origin_names[] = {FA_ORIGINS(ROW) NULL};
const char *const fa_sweep_state_names[] = {FA_SWEEP_STATES(ROW) NULL};
const char *const fa_item_state_names[] = {FA_ITEM_STATES(ROW) NULL};
#undef ROW
#define ROW(name, value, text) {value, #name, text},
static const struct {
    int value;
    const char *name, *text;
} errors[] = {FA_ERRORS(ROW)};
#undef ROW

const char *fa_error_text(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].value == code)
            return errors[i].text;
    return code == FA_OK ? "ok" : "unknown error";
}

const char *fa_name_at(const char *const *names, int value)
{
    for (int i = 0; names[i] != NULL; i++)
        if (i == value)
            return names[i];
    return "unknown";
}

int fa_name_find(const char *const *names, const char *name, int *ret_value)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0) {
            *ret_value = i;
            return 0;
        }
    return FA_ENOTFOUND;
}

const char *fa_error_name(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].value == code)
            return errors[i].name;
    return NULL;
}

int fa_error_parse(const char *name, int *ret_code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, name) == 0) {
            *ret_code = errors[i].value;
            return 0;
        }
    return FA_ENOTFOUND;
}

#define NAME(kind)                                        \
    const char *fa_##kind##_name(fa_##kind value)         \
    {                                                     \
        return fa_name_at(fa_##kind##_names, (int)value); \
    }
NAME(status)
NAME(origin)
NAME(sweep_state)
NAME(item_state)

int fa_status_parse(const char *name, fa_status *ret)
{
    int value, rc = fa_name_find(fa_status_names, name, &value);
    if (rc == 0)
        *ret = (fa_status)value;
    return rc;
}

int fa_origin_trust(fa_origin origin)
{
    static const fa_origin order[] = {FA_ORIGIN_MEASURED,    FA_ORIGIN_MEASURED_SAME_SILICON,
                                      FA_ORIGIN_IMPORTED,    FA_ORIGIN_NEAREST,
                                      FA_ORIGIN_TRANSFERRED, FA_ORIGIN_PREDICTED,
                                      FA_ORIGIN_UNRANKED};
    int trust = 0;
    while (trust < (int)(sizeof order / sizeof *order) && order[trust] != origin)
        trust++;
    return trust;
}

bool fa_origin_is_measured(fa_origin origin)
{
    return origin == FA_ORIGIN_MEASURED || origin == FA_ORIGIN_MEASURED_SAME_SILICON;
}

fa_origin fa_origin_untimed(const fa_trial *trial)
{
    return trial->predicted_us > 0 ? FA_ORIGIN_PREDICTED : FA_ORIGIN_UNRANKED;
}
