/* SPDX-License-Identifier: Apache-2.0
 *
 * Cubins from a compiler that may have been taken over, or from a bundle: 'P' and changes to a
 * small one that is right, or 'R' and the bytes themselves.
 */
#include "fuzz.h"

#include "../fake_cubin.h"
#include "attn_launch.h"
#include "cubin.h"

long fuzz_taken;

static void read_all(const uint8_t *bytes, size_t size)
{
    fa_diag diag;
    fa_cubin_info info;
    struct fa_attn_boxes boxes;
    bool serving;
    char hex[FA_HASH_HEX], constant[24];
    int rc = fa_cubin_read(bytes, size, "attn_fwd", &info, &diag);
    fuzz_taken += rc == 0;
    if (rc == 0)
        FUZZ_CHECK(info.registers >= 0 && info.stack_bytes >= 0 && info.parameter_count >= 0);
    fa_attn_boxes_read(&(fa_cubin_entry){bytes, size, "attn_fwd", .workspace = size % 2 != 0},
                       &boxes, &serving, &diag);
    fa_cubin_code(bytes, size, "attn_fwd", hex, &diag);
    fa_cubin_constant(bytes, size, "fa_attn_boxes_wanted", constant, sizeof constant, &diag);
    uint64_t variable;
    fa_cubin_variable(bytes, size, "fa_attn_boxes_wanted", &variable, &diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char made[FAKE_CUBIN_MAX];
    static const uint32_t boxes[6] = {64, 128, 64, 64, 1, 2};
    if (size > 0 && data[0] == 'R') {
        read_all(data + 1, size - 1);
    } else if (size > 0 && data[0] == 'P') {
        fake_cubin c = {.sm = 90,
                        .entry = "attn_fwd",
                        .registers = 40,
                        .stack = 8,
                        .threads_x = 128,
                        .marker = "family=x;",
                        .sizes = {160, 512},
                        .boxes = boxes};
        size_t whole = fake_cubin_build(&c, made);
        uint8_t *copy = malloc(whole);
        FUZZ_CHECK(copy != NULL);
        memcpy(copy, made, whole);
        fuzz_patch(copy, whole, data + 1, size - 1);
        read_all(copy, whole);
        free(copy);
    }
    return 0;
}
