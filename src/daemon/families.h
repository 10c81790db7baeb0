/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel families that clients send, where the operator allows it: a manifest and a template, kept
 * beside the store in families/ID, ID being the SHA-256 of their content. Nothing of them is
 * trusted: manifests are bounded where they are read, source is compiled in strict workers only
 * (fa_options' untrusted_templates), and winners of a family are found by those who name its ID.
 * A kernel specification comes in the place of a manifest, and is an operation of its own, "NAME@HASH", which asks name.
 *
 * A family is made in families/.new-XXXXXX by a daemon that shares the lock of families/, and moved
 * when it is whole. A daemon that holds the lock alone knows that nobody makes a family, in any daemon
 * on this store: a folder of such a name was then left behind by a daemon that was killed.
 */
#ifndef FA_DAEMON_FAMILIES_H
#define FA_DAEMON_FAMILIES_H

#include "service.h"

void serve_post_family(serve_service *service, serve_exchange *exchange);
/* Makes this the tuner of a client's family; it is opened unless it was asked for last. */
int serve_family_open(const serve_service *service, const char *id, serve_family_tuner *family,
                      fa_diag *diag);
/* Makes the operations of specifications known that were sent to earlier daemons on this store. */
void serve_families_load(const serve_service *service);
/* Removes what daemons that were killed had half made; on the thread that makes families, which would otherwise hold
 * the lock that this needs. */
void serve_families_clean(const serve_service *service);

#endif
