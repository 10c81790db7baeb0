/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments that are copied to a variable of the kernel's module in front of its launch, as __constant__ memory is filled:
 * tensors of an operation.json with a "symbol".
 *
 * Invariant: a copy is never larger than the variable. What lies behind the copy keeps what the module gave it.
 *
 * May be used by: tuner/ops. Thread-safety: fa_symbols_copy() of one module from one thread at a time (fa_module_enter());
 * the others from any.
 */
#ifndef FA_TUNER_OPS_SYMBOLS_H
#define FA_TUNER_OPS_SYMBOLS_H

#include "driver.h"
#include "tensors.h"

/* The variables of one loaded module. */
typedef struct fa_symbols {
    int count;
    struct {
        int tensor; /* of the list */
        fa_device_ptr at;
        size_t bytes;
    } of[FA_TENSORS_MAX];
} fa_symbols;

/* Compares the variables of a cubin with the tensors. FA_ECORRUPT: one is missing, or smaller than its tensor. */
int fa_symbols_check(const fa_tensor_list *list, const void *cubin, size_t size, fa_diag *diag);

/* Those of the variables that the module has: all, if its cubin was checked. */
int fa_symbols_find(const fa_tensor_list *list, fa_module *module, fa_symbols *ret_symbols,
                    fa_diag *diag);

/* Copies the tensors at these addresses, of this problem's sizes, in the order of the stream. FA_EINVAL: one is larger than
 * its variable; nothing was copied then. */
int fa_symbols_copy(fa_driver *driver, const fa_symbols *symbols, const fa_tensor_list *list,
                    const fa_problem *problem, const uint64_t address[FA_TENSORS_MAX],
                    fa_stream stream, fa_diag *diag);

#endif
