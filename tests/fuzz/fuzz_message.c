/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker that was taken over may send: frames of a channel, cut anywhere.
 */
#include "fuzz.h"

#include "pool.h"

long fuzz_taken;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        fa_message message = {0};
        fa_diag diag = {{0}};
        size_t used = 0;
        int rc = fa_message_decode(data + at, size - at, &message, &used, &diag);
        FUZZ_CHECK(rc == 0 || (used == 0 && diag.text[0] != 0));
        FUZZ_CHECK(used <= size - at);
        fuzz_taken += rc == 0 && used != 0;
        if (rc == 0 && used != 0)
            FUZZ_CHECK(cJSON_IsObject(message.json));
        fa_message_free(&message);
        if (rc != 0 || used == 0)
            break;
        at += used;
    }
    return 0;
}
