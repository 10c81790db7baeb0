// SPDX-License-Identifier: Apache-2.0
//
// Warpgroup matrix vocabulary of sm_90a: wgmma with its shared-memory descriptors, in raw PTX.
//
// Purpose: D (64 x kN, fp32, registers) += A (64 x 16) * B (16 x kN), kN a multiple of 16 up to 256. B lies in
// shared memory; A in shared memory or in registers. A warpgroup is 4 consecutive warps, the first one's number
// divisible by 4; all 128 threads call every function here together.
// Invariants: lane l of warp w holds, with g = l/4 and t = l%4, accumulators c[4*j + 2*h + e] = D(16*w + g + 8*h,
// 8*j + 2*t + e). Packed in pairs they are the A operand of the next product, register for register.
// Tiles are slabs of kSlab columns (64 or 32) whose rows are kSlab * 2 bytes, swizzled by as much, so that one slab
// starts at a multiple of 8 rows of bytes. A product runs asynchronously from wgmma_commit() to a wgmma_wait():
// until then neither its registers nor its shared memory may be touched. (PTX ISA, "Asynchronous warpgroup level
// matrix instructions".)
#ifndef FA_WGMMA_CUH
#define FA_WGMMA_CUH

#include "fa_numeric.cuh"

FA_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FA_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most kPending of this warpgroup's newest groups are under way.
template <int kPending> FA_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(kPending) : "memory");
}

// Descriptor of a tile whose K runs along its rows (Q, K; slab_bytes is not looked at), or across them (V), slabs
// `slab_bytes` apart.
template <int kSlab> FA_DEVICE u64 wgmma_descriptor(u32 address, u32 slab_bytes) {
    constexpr u64 kSwizzle = kSlab == 64 ? 1 : 2;           // 128 or 64 bytes
    constexpr u64 kEightRows = 8 * kSlab * 2 / 16;
    return (kSwizzle << 62) | (kEightRows << 32) | ((u64)(slab_bytes / 16) << 16) | ((address & 0x3ffffu) >> 4);
}

// multiply: c += A * B with A in shared memory and K along the rows of both, or with A in registers and K across the
// rows of B; `accumulate` false: c = A * B. multiply_4: four of them one after another through slabs of 64 columns, either
// the first of a product (kFirst: wgmma_fence is part of it, and pin is not needed; of A in shared memory c = A * B) or
// more of it. pin: nothing that touches c moves across it. mask: columns of rows g from `low` on, and of rows g + 8 from
// `high` on, counted from 2 * t, become -inf. Four products and all selects of a mask are one statement each, because
// every statement that names c takes the compiler long: four products by themselves or a hundred selects are a fifth of
// the time of a kernel.
template <int kN> struct Wgmma;

#define FA_REGS_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define FA_REGS_16 FA_REGS_8 ", " "%8,%9,%10,%11,%12,%13,%14,%15"
#define FA_REGS_24 FA_REGS_16 ", " "%16,%17,%18,%19,%20,%21,%22,%23"
#define FA_REGS_32 FA_REGS_24 ", " "%24,%25,%26,%27,%28,%29,%30,%31"
#define FA_REGS_40 FA_REGS_32 ", " "%32,%33,%34,%35,%36,%37,%38,%39"
#define FA_REGS_48 FA_REGS_40 ", " "%40,%41,%42,%43,%44,%45,%46,%47"
#define FA_REGS_56 FA_REGS_48 ", " "%48,%49,%50,%51,%52,%53,%54,%55"
#define FA_REGS_64 FA_REGS_56 ", " "%56,%57,%58,%59,%60,%61,%62,%63"
#define FA_REGS_72 FA_REGS_64 ", " "%64,%65,%66,%67,%68,%69,%70,%71"
#define FA_REGS_80 FA_REGS_72 ", " "%72,%73,%74,%75,%76,%77,%78,%79"
#define FA_REGS_88 FA_REGS_80 ", " "%80,%81,%82,%83,%84,%85,%86,%87"
#define FA_REGS_96 FA_REGS_88 ", " "%88,%89,%90,%91,%92,%93,%94,%95"
#define FA_REGS_104 FA_REGS_96 ", " "%96,%97,%98,%99,%100,%101,%102,%103"
#define FA_REGS_112 FA_REGS_104 ", " "%104,%105,%106,%107,%108,%109,%110,%111"
#define FA_REGS_120 FA_REGS_112 ", " "%112,%113,%114,%115,%116,%117,%118,%119"
#define FA_REGS_128 FA_REGS_120 ", " "%120,%121,%122,%123,%124,%125,%126,%127"

#define FA_ACCS_8 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
#define FA_ACCS_16 FA_ACCS_8, \
    "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
#define FA_ACCS_24 FA_ACCS_16, \
    "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23])
#define FA_ACCS_32 FA_ACCS_24, \
    "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define FA_ACCS_40 FA_ACCS_32, \
    "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39])
#define FA_ACCS_48 FA_ACCS_40, \
    "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47])
#define FA_ACCS_56 FA_ACCS_48, \
    "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55])
#define FA_ACCS_64 FA_ACCS_56, \
    "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
#define FA_ACCS_72 FA_ACCS_64, \
    "+f"(c[64]), "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71])
#define FA_ACCS_80 FA_ACCS_72, \
    "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]), "+f"(c[79])
#define FA_ACCS_88 FA_ACCS_80, \
    "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83]), "+f"(c[84]), "+f"(c[85]), "+f"(c[86]), "+f"(c[87])
#define FA_ACCS_96 FA_ACCS_88, \
    "+f"(c[88]), "+f"(c[89]), "+f"(c[90]), "+f"(c[91]), "+f"(c[92]), "+f"(c[93]), "+f"(c[94]), "+f"(c[95])
#define FA_ACCS_104 FA_ACCS_96, \
    "+f"(c[96]), "+f"(c[97]), "+f"(c[98]), "+f"(c[99]), "+f"(c[100]), "+f"(c[101]), "+f"(c[102]), "+f"(c[103])
#define FA_ACCS_112 FA_ACCS_104, \
    "+f"(c[104]), "+f"(c[105]), "+f"(c[106]), "+f"(c[107]), "+f"(c[108]), "+f"(c[109]), "+f"(c[110]), "+f"(c[111])
#define FA_ACCS_120 FA_ACCS_112, \
    "+f"(c[112]), "+f"(c[113]), "+f"(c[114]), "+f"(c[115]), "+f"(c[116]), "+f"(c[117]), "+f"(c[118]), "+f"(c[119])
#define FA_ACCS_128 FA_ACCS_120, \
    "+f"(c[120]), "+f"(c[121]), "+f"(c[122]), "+f"(c[123]), "+f"(c[124]), "+f"(c[125]), "+f"(c[126]), "+f"(c[127])

// "%register" becomes -inf where "limit" <= column.
#define FA_BEYOND(LIMIT, COLUMN, REGISTER) \
    "setp.le.s32 p, %" LIMIT ", " COLUMN "; @p mov.b32 %" REGISTER ", 0xff800000;\n"
#define FA_MASK_8(A, B) FA_BEYOND(A, "0", "0") FA_BEYOND(A, "1", "1") FA_BEYOND(B, "0", "2") FA_BEYOND(B, "1", "3") \
    FA_BEYOND(A, "8", "4") FA_BEYOND(A, "9", "5") FA_BEYOND(B, "8", "6") FA_BEYOND(B, "9", "7")
#define FA_MASK_16(A, B) FA_MASK_8(A, B) \
    FA_BEYOND(A, "16", "8") FA_BEYOND(A, "17", "9") FA_BEYOND(B, "16", "10") FA_BEYOND(B, "17", "11") \
    FA_BEYOND(A, "24", "12") FA_BEYOND(A, "25", "13") FA_BEYOND(B, "24", "14") FA_BEYOND(B, "25", "15")
#define FA_MASK_24(A, B) FA_MASK_16(A, B) \
    FA_BEYOND(A, "32", "16") FA_BEYOND(A, "33", "17") FA_BEYOND(B, "32", "18") FA_BEYOND(B, "33", "19") \
    FA_BEYOND(A, "40", "20") FA_BEYOND(A, "41", "21") FA_BEYOND(B, "40", "22") FA_BEYOND(B, "41", "23")
#define FA_MASK_32(A, B) FA_MASK_24(A, B) \
    FA_BEYOND(A, "48", "24") FA_BEYOND(A, "49", "25") FA_BEYOND(B, "48", "26") FA_BEYOND(B, "49", "27") \
    FA_BEYOND(A, "56", "28") FA_BEYOND(A, "57", "29") FA_BEYOND(B, "56", "30") FA_BEYOND(B, "57", "31")
#define FA_MASK_40(A, B) FA_MASK_32(A, B) \
    FA_BEYOND(A, "64", "32") FA_BEYOND(A, "65", "33") FA_BEYOND(B, "64", "34") FA_BEYOND(B, "65", "35") \
    FA_BEYOND(A, "72", "36") FA_BEYOND(A, "73", "37") FA_BEYOND(B, "72", "38") FA_BEYOND(B, "73", "39")
#define FA_MASK_48(A, B) FA_MASK_40(A, B) \
    FA_BEYOND(A, "80", "40") FA_BEYOND(A, "81", "41") FA_BEYOND(B, "80", "42") FA_BEYOND(B, "81", "43") \
    FA_BEYOND(A, "88", "44") FA_BEYOND(A, "89", "45") FA_BEYOND(B, "88", "46") FA_BEYOND(B, "89", "47")
#define FA_MASK_56(A, B) FA_MASK_48(A, B) \
    FA_BEYOND(A, "96", "48") FA_BEYOND(A, "97", "49") FA_BEYOND(B, "96", "50") FA_BEYOND(B, "97", "51") \
    FA_BEYOND(A, "104", "52") FA_BEYOND(A, "105", "53") FA_BEYOND(B, "104", "54") FA_BEYOND(B, "105", "55")
#define FA_MASK_64(A, B) FA_MASK_56(A, B) \
    FA_BEYOND(A, "112", "56") FA_BEYOND(A, "113", "57") FA_BEYOND(B, "112", "58") FA_BEYOND(B, "113", "59") \
    FA_BEYOND(A, "120", "60") FA_BEYOND(A, "121", "61") FA_BEYOND(B, "120", "62") FA_BEYOND(B, "121", "63")
#define FA_MASK_72(A, B) FA_MASK_64(A, B) \
    FA_BEYOND(A, "128", "64") FA_BEYOND(A, "129", "65") FA_BEYOND(B, "128", "66") FA_BEYOND(B, "129", "67") \
    FA_BEYOND(A, "136", "68") FA_BEYOND(A, "137", "69") FA_BEYOND(B, "136", "70") FA_BEYOND(B, "137", "71")
#define FA_MASK_80(A, B) FA_MASK_72(A, B) \
    FA_BEYOND(A, "144", "72") FA_BEYOND(A, "145", "73") FA_BEYOND(B, "144", "74") FA_BEYOND(B, "145", "75") \
    FA_BEYOND(A, "152", "76") FA_BEYOND(A, "153", "77") FA_BEYOND(B, "152", "78") FA_BEYOND(B, "153", "79")
#define FA_MASK_88(A, B) FA_MASK_80(A, B) \
    FA_BEYOND(A, "160", "80") FA_BEYOND(A, "161", "81") FA_BEYOND(B, "160", "82") FA_BEYOND(B, "161", "83") \
    FA_BEYOND(A, "168", "84") FA_BEYOND(A, "169", "85") FA_BEYOND(B, "168", "86") FA_BEYOND(B, "169", "87")
#define FA_MASK_96(A, B) FA_MASK_88(A, B) \
    FA_BEYOND(A, "176", "88") FA_BEYOND(A, "177", "89") FA_BEYOND(B, "176", "90") FA_BEYOND(B, "177", "91") \
    FA_BEYOND(A, "184", "92") FA_BEYOND(A, "185", "93") FA_BEYOND(B, "184", "94") FA_BEYOND(B, "185", "95")
#define FA_MASK_104(A, B) FA_MASK_96(A, B) \
    FA_BEYOND(A, "192", "96") FA_BEYOND(A, "193", "97") FA_BEYOND(B, "192", "98") FA_BEYOND(B, "193", "99") \
    FA_BEYOND(A, "200", "100") FA_BEYOND(A, "201", "101") FA_BEYOND(B, "200", "102") FA_BEYOND(B, "201", "103")
#define FA_MASK_112(A, B) FA_MASK_104(A, B) \
    FA_BEYOND(A, "208", "104") FA_BEYOND(A, "209", "105") FA_BEYOND(B, "208", "106") FA_BEYOND(B, "209", "107") \
    FA_BEYOND(A, "216", "108") FA_BEYOND(A, "217", "109") FA_BEYOND(B, "216", "110") FA_BEYOND(B, "217", "111")
#define FA_MASK_120(A, B) FA_MASK_112(A, B) \
    FA_BEYOND(A, "224", "112") FA_BEYOND(A, "225", "113") FA_BEYOND(B, "224", "114") FA_BEYOND(B, "225", "115") \
    FA_BEYOND(A, "232", "116") FA_BEYOND(A, "233", "117") FA_BEYOND(B, "232", "118") FA_BEYOND(B, "233", "119")
#define FA_MASK_128(A, B) FA_MASK_120(A, B) \
    FA_BEYOND(A, "240", "120") FA_BEYOND(A, "241", "121") FA_BEYOND(B, "240", "122") FA_BEYOND(B, "241", "123") \
    FA_BEYOND(A, "248", "124") FA_BEYOND(A, "249", "125") FA_BEYOND(B, "248", "126") FA_BEYOND(B, "249", "127")

#if DTYPE_BF16
#define FA_WGMMA_TYPES ".f32.bf16.bf16 "
#else
#define FA_WGMMA_TYPES ".f32.f16.f16 "
#endif

// One instruction: A in shared memory or in registers, B, and the predicate that adds.
#define FA_SHARED(N, R, A, B, ADD) \
    "wgmma.mma_async.sync.aligned.m64n" #N "k16" FA_WGMMA_TYPES "{" FA_REGS_##R "}, " A ", " B ", " ADD ", 1, 1, 0, 0;\n"
#define FA_REGISTERS(N, R, A, B, ADD) \
    "wgmma.mma_async.sync.aligned.m64n" #N "k16" FA_WGMMA_TYPES "{" FA_REGS_##R "}, {" A "}, " B ", " ADD ", 1, 1, 1;\n"

// Four of them along a slab of 64 columns, 32 bytes apart, or down 64 rows of 128 bytes. ADD: whether the first one adds.
#define FA_FENCE "wgmma.fence.sync.aligned;\n"
#define FA_4(ADD) "{ .reg .pred p, all; .reg .u64 b; setp.ne.b32 p, " ADD ", 0; setp.ne.b32 all, 1, 0;\n"
#define FA_NEXT_B(B, BY) "add.u64 b, %" #B ", " #BY ";\n"
#define FA_4_SHARED(N, R, R1, R2, R3, R4, ADD) \
    FA_4(ADD) FA_SHARED(N, R, "%" #R, "%" #R4, "p") \
    FA_NEXT_B(R4, 2) FA_SHARED(N, R, "%" #R1, "b", "all") \
    FA_NEXT_B(R4, 4) FA_SHARED(N, R, "%" #R2, "b", "all") \
    FA_NEXT_B(R4, 6) FA_SHARED(N, R, "%" #R3, "b", "all") "}"
#define FA_4_REGISTERS(N, R, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15, R16, R17) \
    FA_4("%" #R17) FA_REGISTERS(N, R, "%" #R ",%" #R1 ",%" #R2 ",%" #R3, "%" #R16, "p") \
    FA_NEXT_B(R16, 128) FA_REGISTERS(N, R, "%" #R4 ",%" #R5 ",%" #R6 ",%" #R7, "b", "all") \
    FA_NEXT_B(R16, 256) FA_REGISTERS(N, R, "%" #R8 ",%" #R9 ",%" #R10 ",%" #R11, "b", "all") \
    FA_NEXT_B(R16, 384) FA_REGISTERS(N, R, "%" #R12 ",%" #R13 ",%" #R14 ",%" #R15, "b", "all") "}"
#define FA_16_REGISTERS(a) \
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(a[8]), "r"(a[9]), \
    "r"(a[10]), "r"(a[11]), "r"(a[12]), "r"(a[13]), "r"(a[14]), "r"(a[15])

// kN, its accumulators a thread, and the numbers of the operands that follow them.
#define FA_WGMMA(N, R, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15, R16, R17)                   \
    template <> struct Wgmma<N> {                                                                                    \
        FA_DEVICE void pin(float (&c)[R]) { asm volatile("" : FA_ACCS_##R :: "memory"); }                            \
        FA_DEVICE void mask(float (&c)[R], int low, int high) {                                                      \
            asm volatile("{ .reg .pred p;\n" FA_MASK_##R(#R, #R1) "}" : FA_ACCS_##R : "r"(low), "r"(high));          \
        }                                                                                                            \
        FA_DEVICE void multiply(float (&c)[R], u64 a, u64 b, bool accumulate) {                                      \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #R2 ", 0;\n"                                             \
                         FA_SHARED(N, R, "%" #R, "%" #R1, "p") "}"                                                   \
                         : FA_ACCS_##R : "l"(a), "l"(b), "r"((u32)accumulate));                                      \
        }                                                                                                            \
        FA_DEVICE void multiply(float (&c)[R], const u32 *a, u64 b, bool accumulate) {                               \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #R5 ", 0;\n"                                             \
                         FA_REGISTERS(N, R, "%" #R ",%" #R1 ",%" #R2 ",%" #R3, "%" #R4, "p") "}"                     \
                         : FA_ACCS_##R : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate));  \
        }                                                                                                            \
        template <bool kFirst> FA_DEVICE void multiply_4(float (&c)[R], u64 a, u64 b) {                              \
            if constexpr (kFirst)                                                                                    \
                asm volatile(FA_FENCE FA_4_SHARED(N, R, R1, R2, R3, R4, "0")                                         \
                             : FA_ACCS_##R : "l"(a), "l"(a + 2), "l"(a + 4), "l"(a + 6), "l"(b) : "memory");         \
            else                                                                                                     \
                asm volatile(FA_4_SHARED(N, R, R1, R2, R3, R4, "1")                                                  \
                             : FA_ACCS_##R : "l"(a), "l"(a + 2), "l"(a + 4), "l"(a + 6), "l"(b));                    \
        }                                                                                                            \
        template <bool kFirst> FA_DEVICE void multiply_4(float (&c)[R], const u32 *a, u64 b, bool accumulate) {      \
            if constexpr (kFirst)                                                                                    \
                asm volatile(FA_FENCE FA_4_REGISTERS(N, R, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13,   \
                                                     R14, R15, R16, R17)                                             \
                             : FA_ACCS_##R : FA_16_REGISTERS(a), "l"(b), "r"((u32)accumulate) : "memory");           \
            else                                                                                                     \
                asm volatile(FA_4_REGISTERS(N, R, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15,  \
                                            R16, R17)                                                                \
                             : FA_ACCS_##R : FA_16_REGISTERS(a), "l"(b), "r"((u32)accumulate));                      \
        }                                                                                                            \
    };

FA_WGMMA(16, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
FA_WGMMA(32, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)
FA_WGMMA(48, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41)
FA_WGMMA(64, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49)
FA_WGMMA(80, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57)
FA_WGMMA(96, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65)
FA_WGMMA(112, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73)
FA_WGMMA(128, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81)
FA_WGMMA(144, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89)
FA_WGMMA(160, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97)
FA_WGMMA(176, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105)
FA_WGMMA(192, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113)
FA_WGMMA(208, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121)
FA_WGMMA(224, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129)
FA_WGMMA(240, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137)
FA_WGMMA(256, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145)

#endif
