/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on stderr, as logfmt or JSON, one write each; any thread.
 *
 *     serve_log(SERVE_INFO, "job started", "job", id, "gpu", "L4", NULL);
 */
#ifndef FA_DAEMON_LOG_H
#define FA_DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

typedef enum serve_level { SERVE_ERROR, SERVE_WARN, SERVE_INFO, SERVE_DEBUG } serve_level;

/* Before any other thread runs. */
void serve_log_setup(serve_level level, bool json);
bool serve_log_wants(serve_level level);
/* Pairs of names and texts follow, then NULL; a pair whose text is NULL or "" is left out. */
void serve_log(serve_level level, const char *event, ...) __attribute__((sentinel));

/* A number as a text for one line. */
typedef struct serve_number {
    char text[32];
} serve_number;
serve_number serve_integer(int64_t value);

#endif
