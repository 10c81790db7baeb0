/* SPDX-License-Identifier: Apache-2.0
 *
 * A template that takes tensor maps: it takes the place of attn_fwd_sm80.cu beside that family's
 * manifest. It uses them for nothing; the fake driver computes attention, and checks each map.
 */
#ifndef FA_TESTS_MAPS_FIXTURE_H
#define FA_TESTS_MAPS_FIXTURE_H

#include <stdio.h>

/* columns and q_heads as in fa_attn_boxes. Static storage. */
static inline const char *maps_template(int columns, int q_heads)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "#include \"attn_params.h\"\n#include \"attn_tensor_maps.h\"\n"
             "extern \"C\" __constant__ fa_attn_boxes fa_attn_boxes_wanted =\n"
             "    {%d, BLOCK_M, %d, BLOCK_N, BLOCK_N / 2, BLOCK_M / 2};\n"
             "extern \"C\" __global__ void __launch_bounds__(FA_THREADS)\n"
             "attn_fwd(const __grid_constant__ fa_attn_params p,\n"
             "         const __grid_constant__ fa_attn_tensor_maps maps)\n"
             "{\n"
             "    if (p.lse != nullptr)\n"
             "        p.lse[threadIdx.x] = maps.q.opaque[0] + maps.o.opaque[15];\n"
             "}\n",
             columns, q_heads);
    return text;
}

#endif
