/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL's client library. It is opened at run time, when a store needs it: linked, it would double the
 * start of every process that links the library.
 */
#ifndef FA_DB_LIBPQ_H
#define FA_DB_LIBPQ_H

#include "fa_types.h"

#include <libpq-fe.h>

/* clang-format off */
#define FA_PQ_FUNCTIONS(X)                                                                       \
    X(backendPID) X(clear) X(cmdTuples) X(conninfoFree) X(conninfoParse) X(connectStartParams)   \
    X(consumeInput) X(errorMessage) X(finish) X(flush) X(freemem) X(ftype) X(getResult)          \
    X(getisnull) X(getlength) X(getvalue) X(isBusy) X(nfields) X(notifies) X(ntuples) X(reset)   \
    X(resultErrorField) X(resultStatus) X(sendPrepare) X(sendQuery) X(sendQueryPrepared)         \
    X(serverVersion) X(setNoticeReceiver) X(setnonblocking) X(socket) X(status)                  \
    X(transactionStatus)
/* clang-format on */

#define FA_PQ_MEMBER(name) __typeof__(PQ##name) *name;
typedef struct fa_pq {
    FA_PQ_FUNCTIONS(FA_PQ_MEMBER)
} fa_pq;
#undef FA_PQ_MEMBER
/* FA_ENOTSUP with what to install. Once loaded it stays. */
int fa_pq_load(const fa_pq **ret_pq, fa_diag *diag);

#endif
