/* SPDX-License-Identifier: Apache-2.0
 *
 * Ctrl-C as a wish: the first SIGINT or SIGTERM is remembered and the work ends in order; a
 * second one kills as if this program did nothing about it.
 */
#ifndef FA_CLI_INTERRUPT_H
#define FA_CLI_INTERRUPT_H

void cli_interrupt_install(void);
int cli_interrupted(void); /* the signal's number, or 0 */

#endif
