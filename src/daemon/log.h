/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's log: lines of logfmt on stderr, one write each, from any thread.
 *
 *     serve_log("warn", "note", "text", sentence, NULL); */
#ifndef FA_DAEMON_LOG_H
#define FA_DAEMON_LOG_H

/* Pairs of names and texts follow, then NULL; a pair whose text is "" is left out. */
void serve_log(const char *level, const char *event, ...) __attribute__((sentinel));

#endif
