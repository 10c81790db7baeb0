/* SPDX-License-Identifier: Apache-2.0
 *
 * What libmicrohttpd calls: how a request comes in part by part and how its reply goes out; and where
 * libmicrohttpd reads a head more kindly than a proxy before the daemon may.
 */
#ifndef FA_DAEMON_CALLBACKS_H
#define FA_DAEMON_CALLBACKS_H

#include "connection.h"

#include <stdarg.h>

enum {
    HTTP_DISCARD =
        1 << 20 /* bytes read of a body that is not taken, so that the client reads why */
};

void http_connection_changed(void *context, struct MHD_Connection *mhd, void **socket_context,
                             enum MHD_ConnectionNotificationCode code);
enum MHD_Result http_handle(void *context, struct MHD_Connection *mhd, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *upload_size, void **request_context);
void http_request_over(void *context, struct MHD_Connection *mhd, void **request_context,
                       enum MHD_RequestTerminationCode code);
/* Decodes a path or an argument in place. */
size_t http_unescape(void *context, struct MHD_Connection *mhd, char *text);
void http_log(void *context, const char *format, va_list arguments);

#endif
