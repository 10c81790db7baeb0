/* SPDX-License-Identifier: Apache-2.0
 *
 * From what was asked to the key under which it is looked up.
 */
#include "target.h"

#include "driver.h"
#include "manifest.h"
#include "problem.h"

#include "catalogue.h"
#include "error.h"

#include <stdio.h>
#include <string.h>

/* A name that a device of this machine answers to means that device. */
static int find_present(fa_tuner *tuner, const fa_gpu *type, fa_gpu *ret_gpu)
{
    if (fa_tuner_driver(tuner, NULL) != 0)
        return FA_ENOTFOUND;
    int count = fa_driver_device_count(tuner->driver);
    for (int i = 0; i < count; i++) {
        fa_gpu device, known;
        if (fa_driver_device(tuner->driver, i, &device, NULL) == 0 &&
            fa_catalogue_match(&device, &known) == 0 && strcmp(known.name, type->name) == 0) {
            *ret_gpu = device;
            return 0;
        }
    }
    return FA_ENOTFOUND;
}

static int resolve_gpu(fa_tuner *tuner, const char *name, int32_t ordinal, fa_gpu *ret_gpu,
                       fa_diag *diag)
{
    if (name != NULL) {
        fa_gpu type;
        int rc = fa_catalogue_find(name, &type, diag);
        if (rc == 0 && find_present(tuner, &type, ret_gpu) != 0)
            *ret_gpu = type;
        return rc;
    }
    int rc = fa_tuner_driver(tuner, diag);
    if (rc == 0)
        rc = fa_driver_device(tuner->driver, ordinal, ret_gpu, diag);
    return rc;
}

int fa_target_resolve(fa_tuner *tuner, const fa_problem *problem, const char *gpu_name,
                      int32_t ordinal, bool exact, fa_target *ret_target, fa_diag *diag)
{
    fa_target target = {0};
    int rc = fa_problem_check(problem, diag);
    if (rc == 0)
        rc = resolve_gpu(tuner, gpu_name, ordinal, &target.gpu, diag);
    if (rc != 0)
        return rc;
    target.asked = fa_problem_exact(problem);
    target.problem = exact ? target.asked : fa_problem_bucket(problem);
    target.scope.problem = target.problem;
    fa_gpu_silicon(&target.gpu, target.scope.silicon);
    snprintf(target.scope.templates, sizeof target.scope.templates, "%s",
             fa_templates_hash(tuner->templates, fa_operation_of(problem)));
    snprintf(target.scope.policy, sizeof target.scope.policy, "%s", FA_MEASURE_POLICY);
    *ret_target = target;
    return 0;
}
