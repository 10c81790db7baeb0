/* SPDX-License-Identifier: Apache-2.0
 *
 * What the terminal behind stdout and stderr is good for: colour, its width, and prose that breaks at words.
 *
 * Invariant: what is written to a file or a pipe depends on nothing that is asked here, except where
 * --color=always is given.
 */
#ifndef FA_CLI_TERMINAL_H
#define FA_CLI_TERMINAL_H

#include "buf.h"

typedef enum cli_style { CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW } cli_style;
enum { CLI_COLOUR_AUTO, CLI_COLOUR_ALWAYS, CLI_COLOUR_NEVER };

/* By choice. */
extern const char *const cli_colour_names[];
/* How --color was given. Until it is called, and with "auto": a terminal that takes escapes is coloured, unless
 * NO_COLOR is set. */
void cli_colour_choose(int choice);
/* Appends text for stdout in a style; plain where stdout is not coloured. */
void cli_styled(fa_buf *out, cli_style style, const char *text);
/* The escape that begins a style on a descriptor, and the one that ends every style; "" where it is not coloured. */
const char *cli_style_begin(int descriptor, cli_style style);
const char *cli_style_end(int descriptor);

/* fa_wrap() for stdout: as wide as its terminal, and one line where it is none. */
void cli_wrap_here(fa_buf *out, const char *text, size_t column, size_t indent);
/* Appends lines, those that are too wide for stdout's terminal wrapped under their own first word. */
void cli_wrap_lines(fa_buf *out, const char *text);

#endif
