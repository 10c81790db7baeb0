/* SPDX-License-Identifier: Apache-2.0
 *
 * The store as the daemon's threads use it: how tuners are opened, whether the store has changed or
 * is broken, the devices of this host, and the text of an answer.
 */
#ifndef FA_DAEMON_TUNERS_H
#define FA_DAEMON_TUNERS_H

#include "service.h"

void serve_tuner_options(const serve_settings *settings, fa_options *ret_options);
/* {"answer":…,"cubin":{"key":…,"sha256":…,"size":…}}; malloced. The tuner's thread. */
int serve_kernel_text(fa_tuner *tuner, const fa_answer *answer, char **ret_text, fa_diag *diag);

/* Whether what a tuner has returned says that its store, a file, has to be opened anew. */
bool serve_tuner_is_broken(const fa_tuner *tuner, int rc);

/* ---- on the lookup thread ---- */
/* Tells the loop once the store has changed, and opens it anew when it is broken. */
void serve_tuner_watch(void *service);
/* Whether rc says that the store is broken and it could be opened anew, which sets it right: the
 * caller looks again. Where it cannot be, the daemon is not ready until it can. */
bool serve_tuner_reopen(serve_service *service, int rc);
void serve_tuner_close(void *service);
/* The devices here, asked of the driver once. */
void serve_find_devices(serve_service *service);

#endif
