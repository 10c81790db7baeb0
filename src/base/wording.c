/* SPDX-License-Identifier: Apache-2.0 */
#include "wording.h"
#include "tunable.h"

#include <stdio.h>

const char *fa_commas(int64_t number, char buffer[FA_COMMAS_MAX])
{
    char digits[24];
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int size = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    char *out = buffer;
    if (number < 0)
        *out++ = '-';
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = 0;
    return buffer;
}

void fa_words_grouped(fa_buf *out, int64_t value)
{
    char buffer[FA_COMMAS_MAX];
    fa_buf_text(out, fa_commas(value, buffer));
}

/* `digits` after the point below 10, and one less below 1,000. */
static void put_us(fa_buf *out, double us, int digits, const char *micro)
{
    if (us >= 9999.5 && us < 1e15)
        fa_words_grouped(out, (int64_t)(us + 0.5));
    else
        fa_buf_printf(out, "%.*f", digits, us);
    fa_buf_printf(out, " %s", micro);
}

void fa_words_us(fa_buf *out, double us, const char *micro)
{
    put_us(out, us, us < 9.995 ? 2 : us < 999.95 ? 1 : 0, micro);
}

void fa_words_about(fa_buf *out, double us, const char *micro)
{
    fa_buf_text(out, "~");
    put_us(out, us, us < 99.95 ? 1 : 0, micro);
}

void fa_words_config(fa_buf *out, const fa_config *config)
{
    char room[FA_VALUE_TEXT_MAX];
    fa_buf_text(out, config->family);
    for (int i = 0; i < config->count; i++)
        fa_buf_printf(out, " %s=%s", config->tunable[i].name,
                      fa_value_words(config->tunable[i].value, room));
}

/* ---- stages ---------------------------------------------------------------------------------*/
const fa_status fa_stages[FA_STAGES] = {
    FA_STATUS_CONSTRAINT,     FA_STATUS_BUDGET,        FA_STATUS_REGISTERS,
    FA_STATUS_DOES_NOT_PAY,   FA_STATUS_PENDING,       FA_STATUS_COMPILE_TIMEOUT,
    FA_STATUS_COMPILE_FAILED, FA_STATUS_CUBIN,         FA_STATUS_SPILLS,
    FA_STATUS_LOAD_FAILED,    FA_STATUS_LAUNCH_FAILED, FA_STATUS_OUT_OF_MEMORY,
    FA_STATUS_TIMEOUT,        FA_STATUS_CRASHED,       FA_STATUS_WRONG,
    FA_STATUS_COMPILED,       FA_STATUS_MEASURED,
};

const char *fa_stage_meaning(fa_status status)
{
    static const char *const meanings[FA_STAGES] = {
        [FA_STATUS_PENDING] = "fit the budget and were not tried yet",
        [FA_STATUS_CONSTRAINT] = "impossible",
        [FA_STATUS_BUDGET] = "do not fit the shared memory",
        [FA_STATUS_REGISTERS] = "do not fit the registers, by an estimate",
        [FA_STATUS_COMPILE_FAILED] = "do not compile",
        [FA_STATUS_COMPILE_TIMEOUT] = "compile too long",
        [FA_STATUS_SPILLS] = "spill registers to local memory",
        [FA_STATUS_CUBIN] = "contradict their budget",
        [FA_STATUS_COMPILED] = "compiled clean, not timed",
        [FA_STATUS_LOAD_FAILED] = "did not load",
        [FA_STATUS_LAUNCH_FAILED] = "did not launch",
        [FA_STATUS_WRONG] = "gave wrong results",
        [FA_STATUS_CRASHED] = "took their worker down",
        [FA_STATUS_TIMEOUT] = "ran past their time limit",
        [FA_STATUS_OUT_OF_MEMORY] = "did not fit the device's memory",
        [FA_STATUS_MEASURED] = "proved and timed",
        [FA_STATUS_DOES_NOT_PAY] = "possible, and known not to pay",
    };
    return status >= 0 && (int)status < FA_STAGES ? meanings[status] : "";
}
