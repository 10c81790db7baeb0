/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of NVRTC's options a kernel's author may set.
 *
 * Invariant: a list of what is allowed. None of it names a file, runs anything, or changes what a compile gives back.
 */
#include "nvrtc.h"

#include <ctype.h>
#include <string.h>

enum value { NONE, TRUTH, NUMBERS, MACRO, WORDS };

static const struct option {
    const char *name; /* behind one or two hyphens */
    enum value value;
    const char *words; /* each with a space on both sides */
} options[] = {{"std=", WORDS, " c++03 c++11 c++14 c++17 c++20 c++23 "},
               {"use_fast_math", NONE, ""},
               {"extra-device-vectorization", NONE, ""},
               {"restrict", NONE, ""},
               {"lineinfo", NONE, ""},
               {"generate-line-info", NONE, ""},
               {"w", NONE, ""},
               {"disable-warnings", NONE, ""},
               {"default-device", NONE, ""},
               {"device-as-default-execution-space", NONE, ""},
               {"device-int128", NONE, ""},
               {"fmad=", TRUTH, ""},
               {"ftz=", TRUTH, ""},
               {"prec-div=", TRUTH, ""},
               {"prec-sqrt=", TRUTH, ""},
               {"maxrregcount=", NUMBERS, ""},
               {"diag-suppress=", NUMBERS, ""},
               {"define-macro=", MACRO, ""},
               {"D", MACRO, ""},
               {"undefine-macro=", MACRO, ""},
               {"U", MACRO, ""},
               {"ptxas-options=", WORDS, " -O0 -O1 -O2 -O3 -dlcm=ca -dlcm=cg -dlcm=cs -dlcm=cv "},
               {"Xptxas=", WORDS, " -O0 -O1 -O2 -O3 -dlcm=ca -dlcm=cg -dlcm=cs -dlcm=cv "}};

/* NAME or NAME=VALUE, of one line. */
static bool is_macro(const char *text)
{
    if (!isalpha((unsigned char)text[0]) && text[0] != '_')
        return false;
    while (isalnum((unsigned char)*text) || *text == '_')
        text++;
    bool right = *text == 0 || *text == '=';
    for (; *text != 0; text++)
        right = right && *text >= ' ' && *text <= '~';
    return right;
}

static bool is_word(const char *text, const char *words)
{
    const char *at = text[0] != 0 && strchr(text, ' ') == NULL ? strstr(words, text) : NULL;
    return at != NULL && at[-1] == ' ' && at[strlen(text)] == ' ';
}

static bool takes(const struct option *option, const char *value)
{
    switch (option->value) {
    case NONE:
        return value[0] == 0;
    case TRUTH:
        return is_word(value, " true false ");
    case NUMBERS:
        return value[0] != 0 && strspn(value, "0123456789,") == strlen(value);
    case MACRO:
        return is_macro(value);
    case WORDS:
        return is_word(value, option->words);
    }
    return false;
}

bool fa_nvrtc_allows(const char *text)
{
    const char *name = text + strspn(text, "-");
    if (name == text || name - text > 2 || strlen(text) > 200)
        return false;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t size = strlen(options[i].name);
        if (strncmp(name, options[i].name, size) == 0 && takes(&options[i], name + size))
            return true;
    }
    return false;
}
