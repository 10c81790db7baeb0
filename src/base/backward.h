/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations whose gradients are an operation of their own: "backward" in operation.json, as attention forward has it.
 *
 *     "backward": {"operation": "attn_bwd", "needs": ["lse"], "ignores": ["layout"], "refuses": ["varlen"], "work": […]}
 *
 * needs: yes-or-no fields of the forward pass that training asks for, and that its gradients do not have; ignores: fields that say nothing of the
 * gradients; refuses: fields that mean another thing there; work: as "model_work", of a model that is trained.
 */
#ifndef FA_BASE_BACKWARD_H
#define FA_BASE_BACKWARD_H

#include "operation.h"

#include <cJSON.h>

/* "backward" of the operation; NULL: its gradients are no operation. */
const cJSON *fa_operation_backward(const fa_operation *operation);
/* Sets what training needs of a forward pass, and makes the problem of its gradients of the fields that have one name in both.
 * FA_ENOTFOUND: the operation has none. FA_ENOTSUP: the gradients have no such field as one that is not its default. */
int fa_problem_train(fa_problem *forward, fa_problem *ret_backward, fa_diag *diag);

#endif
