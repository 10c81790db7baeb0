/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FA_TUNER_MANIFEST_LAUNCH_H
#define FA_TUNER_MANIFEST_LAUNCH_H

#include "manifest_reader.h"

/* Either one launch, whose keys are the manifest's, or a list of them. */
int fa_manifest_read_launches(struct fa_manifest_reader *r);

#endif
