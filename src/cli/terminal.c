/* SPDX-License-Identifier: Apache-2.0 */
#include "terminal.h"

#include "wording.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- colour ---------------------------------------------------------------------------------*/
const char *const cli_colour_names[] = {"auto", "always", "never", NULL};

static int choice = CLI_COLOUR_AUTO;

void cli_colour_choose(int chosen)
{
    choice = chosen;
}

/* Whether this descriptor's output is coloured. */
static bool is_coloured(int descriptor)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    if (choice != CLI_COLOUR_AUTO)
        return choice == CLI_COLOUR_ALWAYS;
    return isatty(descriptor) == 1 && (none == NULL || none[0] == 0) && term != NULL &&
           strcmp(term, "dumb") != 0;
}

const char *cli_style_begin(int descriptor, cli_style style)
{
    static const char *const escapes[] = {[CLI_BOLD] = "\033[1m",
                                          [CLI_DIM] = "\033[2m",
                                          [CLI_RED] = "\033[1;31m",
                                          [CLI_GREEN] = "\033[32m",
                                          [CLI_YELLOW] = "\033[33m"};
    return is_coloured(descriptor) ? escapes[style] : "";
}

const char *cli_style_end(int descriptor)
{
    return is_coloured(descriptor) ? "\033[0m" : "";
}

void cli_styled(fa_buf *out, cli_style style, const char *text)
{
    fa_buf_printf(out, "%s%s%s", cli_style_begin(STDOUT_FILENO, style), text,
                  cli_style_end(STDOUT_FILENO));
}

/* ---- width ----------------------------------------------------------------------------------*/
void cli_wrap_here(fa_buf *out, const char *text, size_t column, size_t indent)
{
    size_t width = fa_terminal_columns(STDOUT_FILENO);
    fa_wrap(out, text, strlen(text), column, indent, width > 0 ? width : SIZE_MAX);
}

void cli_wrap_lines(fa_buf *out, const char *text)
{
    size_t width = fa_terminal_columns(STDOUT_FILENO);
    while (*text != 0) {
        size_t length = strcspn(text, "\n"), indent = strspn(text, " ");
        if (width == 0 || fa_columns_of(text, length) <= width)
            fa_buf_append(out, text, length);
        else
            fa_wrap(out, text, length, 0, indent < width / 2 ? indent : 0, width);
        text += length;
        if (*text == '\n')
            fa_buf_append(out, text++, 1);
    }
}
