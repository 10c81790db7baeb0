// SPDX-License-Identifier: Apache-2.0
//
// Products of a multiple of 8 columns that is none of 16, as fa_wgmma.cuh has the others: only what gemm_sm90a.cu uses.
#ifndef GEMM_WGMMA_CUH
#define GEMM_WGMMA_CUH

#include "fa_wgmma_across.cuh"

#define FA_REGS_4 "%0,%1,%2,%3"
#define FA_REGS_12 FA_REGS_8 ", " "%8,%9,%10,%11"
#define FA_REGS_20 FA_REGS_16 ", " "%16,%17,%18,%19"
#define FA_REGS_28 FA_REGS_24 ", " "%24,%25,%26,%27"
#define FA_REGS_36 FA_REGS_32 ", " "%32,%33,%34,%35"
#define FA_REGS_44 FA_REGS_40 ", " "%40,%41,%42,%43"
#define FA_REGS_52 FA_REGS_48 ", " "%48,%49,%50,%51"
#define FA_REGS_60 FA_REGS_56 ", " "%56,%57,%58,%59"
#define FA_REGS_68 FA_REGS_64 ", " "%64,%65,%66,%67"
#define FA_REGS_76 FA_REGS_72 ", " "%72,%73,%74,%75"
#define FA_REGS_84 FA_REGS_80 ", " "%80,%81,%82,%83"
#define FA_REGS_92 FA_REGS_88 ", " "%88,%89,%90,%91"
#define FA_REGS_100 FA_REGS_96 ", " "%96,%97,%98,%99"
#define FA_REGS_108 FA_REGS_104 ", " "%104,%105,%106,%107"
#define FA_REGS_116 FA_REGS_112 ", " "%112,%113,%114,%115"
#define FA_REGS_124 FA_REGS_120 ", " "%120,%121,%122,%123"

#define FA_ACCS_4 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
#define FA_ACCS_12 FA_ACCS_8, "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11])
#define FA_ACCS_20 FA_ACCS_16, "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19])
#define FA_ACCS_28 FA_ACCS_24, "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27])
#define FA_ACCS_36 FA_ACCS_32, "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35])
#define FA_ACCS_44 FA_ACCS_40, "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43])
#define FA_ACCS_52 FA_ACCS_48, "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51])
#define FA_ACCS_60 FA_ACCS_56, "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59])
#define FA_ACCS_68 FA_ACCS_64, "+f"(c[64]), "+f"(c[65]), "+f"(c[66]), "+f"(c[67])
#define FA_ACCS_76 FA_ACCS_72, "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75])
#define FA_ACCS_84 FA_ACCS_80, "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83])
#define FA_ACCS_92 FA_ACCS_88, "+f"(c[88]), "+f"(c[89]), "+f"(c[90]), "+f"(c[91])
#define FA_ACCS_100 FA_ACCS_96, "+f"(c[96]), "+f"(c[97]), "+f"(c[98]), "+f"(c[99])
#define FA_ACCS_108 FA_ACCS_104, "+f"(c[104]), "+f"(c[105]), "+f"(c[106]), "+f"(c[107])
#define FA_ACCS_116 FA_ACCS_112, "+f"(c[112]), "+f"(c[113]), "+f"(c[114]), "+f"(c[115])
#define FA_ACCS_124 FA_ACCS_120, "+f"(c[120]), "+f"(c[121]), "+f"(c[122]), "+f"(c[123])

#define FA_WGMMA_ODD(N, R, R1, R2, R3, R4)                                                               \
    template <> struct Wgmma<N> {                                                                        \
        FA_DEVICE void pin(float (&c)[R]) { asm volatile("" : FA_ACCS_##R :: "memory"); }                \
        template <bool kFirst> FA_DEVICE void multiply_4(float (&c)[R], u64 a, u64 b) {                  \
            if constexpr (kFirst)                                                                        \
                asm volatile(FA_FENCE FA_4_SHARED(N, R, R1, R2, R3, R4, "0")                             \
                             : FA_ACCS_##R : "l"(a), "l"(a + 2), "l"(a + 4), "l"(a + 6), "l"(b) : "memory"); \
            else                                                                                         \
                asm volatile(FA_4_SHARED(N, R, R1, R2, R3, R4, "1")                                      \
                             : FA_ACCS_##R : "l"(a), "l"(a + 2), "l"(a + 4), "l"(a + 6), "l"(b));        \
        }                                                                                                \
    };

FA_WGMMA_ODD(8, 4, 5, 6, 7, 8)
FA_WGMMA_ODD(24, 12, 13, 14, 15, 16)
FA_WGMMA_ODD(40, 20, 21, 22, 23, 24)
FA_WGMMA_ODD(56, 28, 29, 30, 31, 32)
FA_WGMMA_ODD(72, 36, 37, 38, 39, 40)
FA_WGMMA_ODD(88, 44, 45, 46, 47, 48)
FA_WGMMA_ODD(104, 52, 53, 54, 55, 56)
FA_WGMMA_ODD(120, 60, 61, 62, 63, 64)
FA_WGMMA_ODD(136, 68, 69, 70, 71, 72)
FA_WGMMA_ODD(152, 76, 77, 78, 79, 80)
FA_WGMMA_ODD(168, 84, 85, 86, 87, 88)
FA_WGMMA_ODD(184, 92, 93, 94, 95, 96)
FA_WGMMA_ODD(200, 100, 101, 102, 103, 104)
FA_WGMMA_ODD(216, 108, 109, 110, 111, 112)
FA_WGMMA_ODD(232, 116, 117, 118, 119, 120)
FA_WGMMA_ODD(248, 124, 125, 126, 127, 128)

#endif
