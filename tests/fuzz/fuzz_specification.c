/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ with a specification at its head: what of it is for the device, and the operation that is made of it.
 */
#include "fuzz.h"

#include "spec.h"

long fuzz_taken;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const fa_operation *operation;
    fa_diag why = {{0}};
    char *text = strndup((const char *)data, size);
    const int rc = fa_spec_make("fuzz.cu", text, NULL, &operation, &why);
    FUZZ_CHECK(rc == 0 || why.text[0] != 0);
    fuzz_taken += rc == 0;
    free(text);
    return 0;
}
