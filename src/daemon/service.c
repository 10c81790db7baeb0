/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "reply.h"

#include <time.h>

enum { RETRY_AFTER_S = 5, STOP_RETRY_S = 2 };

int64_t serve_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t serve_now_ms(const serve_service *service)
{
    return (int64_t)uv_now(service->loop);
}

bool serve_service_is_ready(const serve_service *service)
{
    return service->store_open && !service->store_broken && service->journal_open &&
           !service->stopping;
}

void serve_refuse(serve_service *service, serve_exchange *exchange, const char *message)
{
    service->counts.refused++;
    serve_reply_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY, message,
                        service->stopping ? STOP_RETRY_S : RETRY_AFTER_S);
}

/* The journal's thread ends last, because the last jobs of the other threads are taken out of it. */
void serve_service_thread_ended(void *context)
{
    serve_service *service = context;
    service->threads--;
    if (service->stopping && service->threads == 1)
        serve_thread_stop(service->journal.thread);
}
