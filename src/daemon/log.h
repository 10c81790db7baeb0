/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FA_DAEMON_LOG_H
#define FA_DAEMON_LOG_H

/* A line of logfmt on stderr, behind its time, in one write; any thread. Texts in it have no line breaks: fa_diag's and names.
 *
 *     serve_log("level=info event=\"tune ended\" gpu=\"%s\"", gpu->name); */
void serve_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
