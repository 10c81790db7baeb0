/* SPDX-License-Identifier: Apache-2.0
 *
 * The client of a service: `fa-tune serve` on this host's Unix socket, or on a TCP port with a token.
 *
 * One question: POST /v1/kernel, and then GET /v1/cubins/KEY. What the server answers is the answer, also when that is a
 * failure of the request itself. When the server is gone, or cannot do its part, or says what cannot be, the caller does
 * without: one note, and the server is not asked again for a while.
 *
 * Invariants: any number of threads ask, each over a connection of its own, and none waits for another's question. Every
 * reply is hostile until checked: sizes, types, hashes, and who owns the socket.
 */
#ifndef FA_SOURCES_REMOTE_H
#define FA_SOURCES_REMOTE_H

#include "source.h"

/* For fa_open. The server that options and environment name; *ret_service stays as it is when they name none. Opens
 * nothing yet. */
int fa_service_make(const fa_options *options, fa_service **ret_service, fa_diag *diag);
/* Whether it answers, for fa_doctor(). */
int fa_service_check(const fa_service *service, char *ret_text, size_t size, fa_diag *diag);

#endif
