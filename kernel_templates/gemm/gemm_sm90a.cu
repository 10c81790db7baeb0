// SPDX-License-Identifier: Apache-2.0
//
// C = A B^T for Hopper (sm_90a): TMA and wgmma, one producing warpgroup and one to three consuming ones, fp16 or bf16, fp32 sums.
//
// Workload: as many blocks as there are SMs, or tiles if they are fewer; each takes every gridDim.x-th tile of C. C is computed turned: rows
// of B are the rows of a product, which come by 64, and rows of A its columns, which come by 8, so that few rows of A are little work. Where
// TURNED is 0 it is the other way round: columns of C come by 8, which may fill the GPU better. A consumer owns some of a product's rows
// and all of its columns. While the consumers store a tile, the producer fetches the next one. Where SPLITS is 0, two consumers have whole tiles in
// turn, and one multiplies while the other stores.
// The tiles that would not fill the GPU are cut into SPLITS parts of K, and done first: the block that ends the last part of a tile
// adds all of them up. Nobody waits for another block but in its cluster: CLUSTER_N blocks have neighbouring tiles and the same slices at
// the same time; each in its turn fetches the rows of A, for all of them; and CLUSTER_M blocks below one another the rows of B. CLUSTER_K
// times as many have a part of K each of such tiles, and add up and store a share of the products' columns.
// Invariants:
//  - shared memory is a ring of STAGES slots of {64 columns of B, 64 columns of A} (A first where C is not turned), then two pieces of C
//    (kPiece rows x 64 columns, or 16 rows for each warp) for each consumer, then the barriers. All are slabs of 64 columns with
//    swizzled rows of 128 bytes.
//  - the host makes the three tensor maps; the workspace has the sums of each part of a tile that is cut.
//  - the warp that fetches sets the barriers up, and does not wait for the block before its first copies.
#include "fa_global.cuh"
#include "fa_tma_device.cuh"
#include "gemm_place.cuh"
#include "gemm_wgmma.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr bool kTurned = TURNED != 0;
// A tile's products have kM columns and kN rows; kDown blocks with other columns share their rows, kAcross with other rows their columns.
constexpr int kM = kTurned ? BLOCK_M : BLOCK_N, kN = kTurned ? BLOCK_N : BLOCK_M, kDown = kTurned ? CLUSTER_M : CLUSTER_N, kAcross = kTurned ? CLUSTER_N : CLUSTER_M;
constexpr int kAlong = CLUSTER_K, kSharing = kDown * kAcross, kCluster = kSharing * kAlong;
constexpr bool kInTurn = SPLITS == 0;
// kGroups: consumers; kTeam: those that share a tile.
constexpr int kStages = STAGES, kGroups = kInTurn ? 2 : kN == 64 ? 1 : kN == 192 ? 3 : 2, kTeam = kInTurn ? 1 : kGroups, kThreads = (kGroups + 1) * 128;
// kParts: products of 64 rows that a consumer has. kShare: columns of products that a block of a cluster along K stores; the last one that stores may have fewer.
constexpr int kParts = kN / (64 * kTeam), kShare = (kM / 8 + kAlong - 1) / kAlong * 8;
static_assert(kN % (64 * kTeam) == 0 && kM % 8 == 0 && kM <= 256, "a consumer owns whole products");
static_assert(kAlong == 1 || SPLITS == 1, "a tile is cut in one way");
static_assert(kAlong == 1 || kM * kN * 4 <= kStages * (kM + kN) * 128, "sums pass through the ring");
// Where a cluster begins: `row` in the operand whose rows are columns of products, `column` in the other one.
struct Place : PlaceOf<BLOCK_M * CLUSTER_M, BLOCK_N * CLUSTER_N> {
    __device__ __forceinline__ Place(const fa_gemm_params &p, u32 index) : PlaceOf(p, index) {
        if (!kTurned) {
            const int x = row;
            row = column, column = x;
        }
    }
};
constexpr int kBox = kM % 16 == 0 && kShare % 16 == 0 ? 16 : 8;   // rows of C that are stored at once
// What a block has of it. A tile that would end outside C begins earlier, by steps that can be left out when C is stored: what does not exist is slow to fetch.
struct Tile {
    int row, column, rows, columns;   // rows, columns: how many of the first ones are another tile's

    __device__ __forceinline__ Tile(const fa_gemm_params &p, u32 index, int down, int across) {
        const Place place(p, index);
        const int end_row = kTurned ? p.m : p.n, end_column = kTurned ? p.n : p.m;
        row = place.row + down * kM, column = place.column + across * kN;
        rows = end_row < kM ? 0 : steps<kTurned ? kBox : 8>(row - end_row + kM);
        columns = end_column < kN ? 0 : steps<kTurned ? 64 : 1>(column - end_column + kN);
        row -= rows, column -= columns;
    }
    template <int kStep> static __device__ __forceinline__ int steps(int outside) { return outside > 0 ? outside / kStep * kStep : 0; }
};
static_assert(FA_THREADS == kThreads, "the manifest differs");
// Do registers hold the sums of a third or fourth part beside those that are added? Else its own are read again, too.
constexpr bool kStay = SPLITS > 2 && kParts * kM / 2 <= (kGroups == 3 ? 44 : 64);
constexpr u32 kWarp = 32, kGroup = 128, kRowBytes = 128, kConsumers = kTeam * 4;   // warps that multiply a tile
constexpr u32 kPiece = kGroups == 3 ? 16 : 32, kPieceBytes = kPiece * kRowBytes;   // rows of C
constexpr u32 kBBytes = kN * kRowBytes, kSlotBytes = kBBytes + kM * kRowBytes;
constexpr u32 kPiecesAt = kStages * kSlotBytes, kBarriersAt = kPiecesAt + kGroups * 2 * kPieceBytes, kAnswersAt = kBarriersAt + 16 * kStages;
extern __shared__ __align__(1024) unsigned char shared_memory[];

FA_DEVICE u32 full(u32 base, u32 slot) { return base + kBarriersAt + 8 * slot; }
FA_DEVICE u32 empty(u32 base, u32 slot) { return base + kBarriersAt + 8 * (kStages + slot); }

// Whether of a tile's parts all others are summed; the counter is zero again then.
FA_DEVICE bool all_others_came(u32 *counter) {
    u32 came;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(came) : "l"(counter) : "memory");
    if (came != SPLITS - 1) return false;
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(counter), "r"(0) : "memory");
    return true;
}

FA_DEVICE u32 cluster_rank() {
    u32 rank = 0;
    if (kCluster > 1) asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    return rank;
}
// Where this block stands in its cluster: CLUSTER_K times the blocks that share rows.
struct Ranks {
    const u32 rank = cluster_rank();
    __device__ __forceinline__ u32 along() const { return kAlong > 1 ? rank / kSharing : 0; }
    __device__ __forceinline__ u32 first() const { return along() * kSharing; }   // the first block with its part of K
    __device__ __forceinline__ u32 sharing() const { return kSharing > 1 ? rank % kSharing : 0; }
    __device__ __forceinline__ u32 down() const { return kDown > 1 ? sharing() % kDown : 0; }
    __device__ __forceinline__ u32 across() const { return kAcross > 1 ? sharing() / kDown : 0; }
};
// A box of a map for all blocks that share rows, to the same place in each, and to its barrier.
FA_DEVICE void tma_load_to_all(u32 blocks, u32 to, const fa_tensor_map *map, u32 barrier, int column, int row, u64 hint) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
                 " [%0], [%1, {%3, %4, %5, %5}], [%2], %6, %7;"
                 :: "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(0), "h"((u16)blocks), "l"(hint) : "memory");
}
// All threads of the cluster have come; the first form says nothing of memory but of barriers that were initialised, and needs no fence.
FA_DEVICE void cluster_meet() { asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
FA_DEVICE void cluster_sync() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }

// What a cluster has to do, in order: slices [first, last) of 64 columns of K of a tile. First parts of the tiles that are cut, the same
// part of all of them before the next one, so that blocks that run together share rows of A and of B; then whole tiles.
struct Work {
    const u32 slices, cut, tiles;
    u32 unit, next, tile, split, first, last;   // unit, next: that come next, a part and a whole tile

    __device__ __forceinline__ Work(const fa_gemm_params &p)
        : slices(((u32)p.k + 63) / 64), cut(SPLITS > 1 && slices >= SPLITS ? Place::tiles(p) % clusters() : 0), tiles(Place::tiles(p)),
          unit(blockIdx.x / kCluster), next(cut + blockIdx.x / kCluster) {}
    static __device__ __forceinline__ u32 clusters() { return gridDim.x / kCluster; }
    __device__ __forceinline__ bool advance() {
        if (SPLITS > 1 && unit < cut * SPLITS) {
            tile = unit % cut, split = unit / cut;
            first = split * slices / SPLITS;
            last = (split + 1) * slices / SPLITS;
            unit += clusters();
            return true;
        }
        tile = next, first = 0, last = slices;
        if (kAlong > 1) {   // what lies behind the last slice is zeros
            const u32 part = (slices + kAlong - 1) / kAlong;
            first = cluster_rank() / kSharing * part, last = first + part;
        }
        next += clusters();
        return tile < tiles;
    }
};

// One thread fetches what the consumers multiply.
FA_DEVICE void produce(const fa_gemm_params &p, const fa_tensor_map *a, const fa_tensor_map *b, u32 base) {
    const Ranks rank;
    const int down = (int)rank.down(), across = (int)rank.across();
    // Rows that one tile alone reads do not drive out of L2 what others wrote there, which would have to be written to memory.
    const bool again_a = p.n > BLOCK_N * CLUSTER_N, again_b = p.m > BLOCK_M * CLUSTER_M;
    const u64 row_hint = (kTurned ? again_a : again_b) ? kEvictLast : kEvictFirst, column_hint = (kTurned ? again_b : again_a) ? kEvictLast : kEvictFirst;
    constexpr u32 kEvery = ((1u << kSharing) - 1) / ((1u << kDown) - 1);   // blocks with the same rows
    Ring<kStages> ring;
#pragma unroll 1
    for (Work work(p); work.advance();) {
        const Tile tile(p, work.tile, down, across);
#pragma unroll 1
        for (int column = (int)work.first * 64; column < (int)work.last * 64; column += 64) {
            const u32 to = base + ring.slot * kSlotBytes, barrier = full(base, ring.slot);
            barrier_wait(empty(base, ring.slot), ring.parity ^ 1);
            barrier_expect(barrier, kSlotBytes);
            const u32 slice = (u32)column / 64;
            if constexpr (kDown == 1) tma_load(to, b, barrier, column, tile.column, 0, 0, column_hint);
            else if (slice % kDown == (u32)down) tma_load_to_all(((1 << kDown) - 1) << (rank.first() + across * kDown), to, b, barrier, column, tile.column, column_hint);
            if constexpr (kAcross == 1) tma_load(to + kBBytes, a, barrier, column, tile.row, 0, 0, row_hint);
            else if (slice % kAcross == (u32)across) tma_load_to_all(kEvery << (rank.first() + down), to + kBBytes, a, barrier, column, tile.row, row_hint);
            ring.advance();
        }
    }
    if constexpr (kSharing > 1)   // until the other blocks have given back all slots: they arrive at nothing of a block that has ended
#pragma unroll 1
        for (u32 i = 0; i < kStages; ++i, ring.advance()) barrier_wait(empty(base, ring.slot), ring.parity ^ 1);
}

struct Consumer {
    const fa_gemm_params &p;
    const u32 base, group, member;   // member: of those that share a tile
    const Ranks rank;
    const u32 warp, lane;
    const u64 b_rows, a_rows;   // descriptors of slot 0
    Ring<kStages> ring;         // what is multiplied next
    float c[kParts][kM / 2];
    u32 piece;                  // of this consumer, that is filled next

    __device__ __forceinline__ Consumer(const fa_gemm_params &p, u32 base, u32 group)
        : p(p), base(base), group(group), member(kInTurn ? 0 : group), warp(threadIdx.x % kGroup / kWarp), lane(threadIdx.x % kWarp),
          b_rows(wgmma_descriptor<64>(base + member * kParts * 64 * kRowBytes, 0)), a_rows(wgmma_descriptor<64>(base + kBBytes, 0)),
          piece(0) {}

    // The products of a slot, left under way.
    template <bool kFirst> __device__ __forceinline__ void issue() {
        barrier_wait(full(base, ring.slot), ring.parity);
        const u64 a = a_rows + ring.slot * (kSlotBytes / 16), b = b_rows + ring.slot * (kSlotBytes / 16);
        if constexpr (!kFirst) wgmma_fence();
#pragma unroll
        for (int part = 0; part < kParts; ++part)
            Wgmma<kM>::template multiply_4<kFirst>(c[part], b + part * (64 * kRowBytes / 16), a);
        wgmma_commit();
    }
    __device__ __forceinline__ void release(u32 slot) const {
        if constexpr (kSharing == 1) {
            if (lane == 0) barrier_arrive(empty(base, slot));
        } else if (lane < kSharing) {   // to all: who heard only from those that it fetches for would count a block that is a round ahead twice
            asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                         "mbarrier.arrive.shared::cluster.b64 _, [there]; }" :: "r"(empty(base, slot)), "r"(rank.first() + lane) : "memory");
        }
    }
    // A slot is given back when the products of the next one are under way.
    __device__ __forceinline__ void multiply(u32 slices, bool last) {
        issue<true>();
        u32 before = ring.slot;
        ring.advance();
#pragma unroll 1
        for (u32 slice = 1; slice < slices; slice++) {
            issue<false>();
            wgmma_wait<1>();
            release(before);
            before = ring.slot;
            ring.advance();
        }
        if (kInTurn && !last) named_arrive(order(group ^ 1), 2 * kGroup);
        wgmma_wait<0>();
#pragma unroll
        for (int part = 0; part < kParts; ++part) Wgmma<kM>::pin(c[part]);
        release(before);
    }
    // The barrier at which a consumer waits until the other one has come to the last slot before its own: a parity tells a slot's round only to who is less than two rounds ahead.
    static __device__ __forceinline__ u32 order(u32 group) { return 1 + kGroups + group; }
    // The slots of a tile that is the other consumer's.
    __device__ __forceinline__ void pass(u32 slices) {
        const u32 to = ring.slot + slices, rounds = to / kStages;
        ring.slot = to - rounds * kStages;
        ring.parity ^= rounds % 2;
    }
    // This thread's sums of a part of a tile, in the workspace: every kGroup-th vector of four.
    template <class Do> __device__ __forceinline__ void each_vector(float *parts, u32 tile, u32 split, Do &&take) {
        float *at = parts + (((u64)tile * SPLITS + split) * kGroups + group) * (kN / kGroups * kM) + threadIdx.x % kGroup * 4;
#pragma unroll
        for (int part = 0; part < kParts; ++part)
#pragma unroll
            for (int i = 0; i < kM / 2; i += 4) take(at + (part * kM / 2 + i) * kGroup, c[part] + i);
    }
    // The answer of the group's first thread, when all have come, to all.
    template <class Ask> __device__ __forceinline__ bool answer(Ask &&ask) const {
        const u32 room = base + kAnswersAt + 4 * group;
        named_sync(1 + group, kGroup);
        if (threadIdx.x % kGroup == 0) store_shared(room, (u32)ask());
        named_sync(1 + group, kGroup);
        return load_shared<u32>(room) != 0;
    }
    // This thread's sums behind those of the kBefore parts before it, which are added in their order.
    template <int kBefore> __device__ __forceinline__ void add_behind(float *parts, u32 tile) {
        each_vector(parts, tile, 0, [](const float *from, float *x) {
            float sum[4], y[4];
            load_floats(sum, from);
#pragma unroll
            for (int i = 1; i < kBefore; ++i) {
                load_floats(y, from + i * (kN * kM));
                sum[0] += y[0], sum[1] += y[1], sum[2] += y[2], sum[3] += y[3];
            }
            x[0] += sum[0], x[1] += sum[1], x[2] += sum[2], x[3] += sum[3];
        });
    }
    // Whether this group has the sums of all of K now; else they are in the workspace, and another block adds them up: the last one
    // to come, in the order of K.
    __device__ __forceinline__ bool join(const Work &work, float *parts, u32 *counters) {
        const u32 tile = work.tile * kSharing + rank.sharing();   // of all blocks
        u32 *const counter = counters + tile * kGroups + group;
        if (work.split > 0 || !answer([=] { return all_others_came(counter); })) {
            each_vector(parts, tile, work.split, [](float *to, const float *x) { store_floats(to, {x[0], x[1], x[2], x[3]}); });
            if (!answer([=] { return arrives_last(counter, SPLITS); })) return false;
        }
        if constexpr (kStay) {
            if (work.split == 2) add_behind<2>(parts, tile);
            if (SPLITS > 3 && work.split == 3) add_behind<3>(parts, tile);
        } else if (SPLITS > 2 && work.split > 1) {
            each_vector(parts, tile, 0, [](const float *from, float *x) {
                float y[4];
                load_floats(y, from);
                x[0] = y[0], x[1] = y[1], x[2] = y[2], x[3] = y[3];
            });
        }
        // The second part's own sums stay where they are: they are the first ones to be added to the first part's.
#pragma unroll 1
        for (u32 split = work.split == 1 ? 0 : kStay && work.split > 1 ? work.split + 1 : 1; split < SPLITS; split += split == 0 ? 2 : 1)
            each_vector(parts, tile, split, [](const float *from, float *x) {
                float y[4];
                load_floats(y, from);
                x[0] += y[0], x[1] += y[1], x[2] += y[2], x[3] += y[3];
            });
        return true;
    }
    // Of a cluster along K: the sums of all its blocks, in their order, of this block's share of columns, if it has
    // one. They pass through the rings, which nobody needs any more.
    __device__ __forceinline__ bool gather() {
        constexpr u32 kVector = kGroups * kGroup * 16, kVectors = kM / 8, kMine = kShare / 8;   // bytes of a vector of all threads; vectors of a part
        const u32 room = base + (threadIdx.x - kGroup) * 16;
        named_sync(1, kGroups * kGroup);
#pragma unroll
        for (int part = 0; part < kParts; ++part)
#pragma unroll
            for (int i = 0; i < (int)kVectors; ++i) {
                const float *x = c[part] + 4 * i;
                store_shared(room + (part * kVectors + i) * kVector, x[0], x[1], x[2], x[3]);
            }
        cluster_sync();
        const u32 mine = rank.along() * kMine;
        if (mine >= kVectors) return false;
#pragma unroll
        for (u32 along = 0; along < kAlong; ++along) {
            u32 there;
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(room + mine * kVector), "r"(along * kSharing + rank.sharing()));
#pragma unroll
            for (int part = 0; part < kParts; ++part)
#pragma unroll
                for (u32 i = 0; i < kMine; ++i) {
                    if (kM % kShare != 0 && mine + i >= kVectors) break;
                    float y[4], *x = c[part] + 4 * i;
                    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(y[0]), "=f"(y[1]), "=f"(y[2]), "=f"(y[3])
                                 : "r"(there + (part * kVectors + i) * kVector) : "memory");
#pragma unroll
                    for (int e = 0; e < 4; ++e) x[e] = along == 0 ? y[e] : x[e] + y[e];
                }
        }
        return true;
    }
    // Rounded, a warp's 16 rows and up to 64 columns at a time.
    __device__ __forceinline__ void store_rows(const Tile &tile) const {
        constexpr u32 kWidth = kGroups == 3 ? 32 : 64, kChunks = kWidth / 8;   // what fits a warp's share of the pieces
        const auto swizzle = [](u32 r) { return kChunks == 8 ? r % 8 : r / 2 % 4; };
        const u32 room = base + kPiecesAt + (group * 4 + warp) * (16 * kWidth * 2), to = room + lane % 16 * (kWidth * 2);
        const u32 share = rank.along() * kShare, end = kM - share < kShare ? kM - share : kShare;
        const u32 own = member * kParts * 64 + warp * 16, row = (u32)tile.column + own, column = (u32)tile.row + share;
#pragma unroll
        for (u32 part = 0; part < kParts; ++part)
#pragma unroll
            for (u32 first = 0; first < kShare; first += kWidth) {
                warp_sync();
#pragma unroll
                for (u32 i = first; i < first + kWidth && i < kShare; i += 16) {
                    const float *x = &c[part][i / 2], *y = i + 8 < kShare ? x + 4 : x;
                    stmatrix_x4(to + (((i - first) / 8 + lane / 16) ^ swizzle(lane % 16)) * 16, pack2<kBf16>(x[0], x[1]), pack2<kBf16>(x[2], x[3]),
                                pack2<kBf16>(y[0], y[1]), pack2<kBf16>(y[2], y[3]));
                }
                warp_sync();
#pragma unroll
                for (u32 i = 0; i < kChunks / 2; ++i) {
                    const u32 r = (i * kWarp + lane) / kChunks, chunk = lane % kChunks, at = first + chunk * 8;
                    float x[4];   // eight elements
                    load_shared(x, room + r * (kWidth * 2) + (chunk ^ swizzle(r)) * 16);
                    if (row + part * 64 + r < (u32)p.m && own + part * 64 + r >= (u32)tile.columns && at < end && column + at < (u32)p.n && share + at >= (u32)tile.rows)
                        store_floats((float *)((u16 *)p.c + (i64)(row + part * 64 + r) * p.c_row + column + at), x);
                }
            }
    }
    // Rounded and turned back, kPiece rows and 64 columns at a time, through this consumer's two pieces. What lies outside C is dropped.
    __device__ __forceinline__ void store(const Tile &tile, const fa_tensor_map *map) {
        if constexpr (!kTurned) return store_rows(tile);
        const int share = (int)rank.along() * kShare, row = tile.row + share;
        const int own = (int)member * kParts * 64, column = tile.column + own;
        const u32 to = (lane / 16 * 8 + lane % 8) * kRowBytes + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
        const bool sends = threadIdx.x % kGroup == 0;
#pragma unroll
        for (int part = 0; part < kParts; ++part)
#pragma unroll
            for (int first = 0; first < kShare; first += kPiece) {
                const u32 room = base + kPiecesAt + (group * 2 + piece) * kPieceBytes;
                if (sends) tma_store_wait_read<1>();
                named_sync(1 + group, kGroup);
#pragma unroll
                for (int i = first; i < first + (int)kPiece && i < kShare; i += 16) {
                    const float *x = &c[part][i / 2], *y = i + 8 < kShare ? x + 4 : x;   // the last 8 rows twice, but stored once
                    stmatrix_x4_trans(room + (i - first) * kRowBytes + to, pack2<kBf16>(x[0], x[1]), pack2<kBf16>(x[2], x[3]),
                                      pack2<kBf16>(y[0], y[1]), pack2<kBf16>(y[2], y[3]));
                }
                async_proxy_fence();
                named_sync(1 + group, kGroup);
                if (sends) {
#pragma unroll
                    for (int i = first; i < first + (int)kPiece && i < kShare; i += kBox)
                        if ((kM % kShare == 0 || share + i < kM) && share + i >= tile.rows && own + part * 64 >= tile.columns)
                            tma_store(map, room + (i - first) * kRowBytes, column + part * 64, row + i, 0, 0, kEvictFirst);
                    tma_store_commit();
                }
                piece ^= 1;
            }
    }
};

} // namespace

// What the host makes maps of, for tuner/ops/generic.c: the argument, CUtensorMapDataType, sides of the box, the box, bytes of its swizzle.
struct wanted_map { u32 tensor, type, sides, box[5], swizzle; };
constexpr u32 kType = kBf16 ? 9 : 6;
extern "C" __constant__ wanted_map fa_maps_wanted[4] = {{0, kType, 4, {64, BLOCK_M, 1, 1}, 128}, {1, kType, 4, {64, BLOCK_N, 1, 1}, 128}, {2, kType, 4, {64, kBox, 1, 1}, 128}};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
#if CLUSTER_M * CLUSTER_N * CLUSTER_K > 1
__cluster_dims__(CLUSTER_M * CLUSTER_N * CLUSTER_K, 1, 1)
#endif
gemm_sm90a(const __grid_constant__ fa_gemm_params p, const __grid_constant__ fa_tensor_map a, const __grid_constant__ fa_tensor_map b,
           const __grid_constant__ fa_tensor_map c, float *sums, u32 *counters) {
    const u32 base = shared_address(shared_memory);
    const u32 warp = (u32)uniform((int)(threadIdx.x / kWarp));
    if (threadIdx.x == 0) {
        if (base % 1024 != 0) asm volatile("trap;");   // descriptors and swizzles count on it
#pragma unroll
        for (u32 slot = 0; slot < kStages; ++slot) {
            barrier_init(full(base, slot), 1);
            barrier_init(empty(base, slot), kConsumers * kSharing);
        }
        barrier_init_fence();
    }
    if (threadIdx.x == kWarp) tma_prefetch_map(&b), tma_prefetch_map(&a), tma_prefetch_map(&c);
    warp_sync();   // what follows is known to be uniform
    if constexpr (kCluster > 1) cluster_meet();
    else if (warp == 0) named_arrive(0, kThreads);
    else named_sync(0, kThreads);
    if (warp < 4) {
        if constexpr (kGroups > 1) registers_decrease<kGroups == 3 ? 32 : 40>();
        if (warp == 0 && threadIdx.x == 0) produce(p, kTurned ? &a : &b, kTurned ? &b : &a, base);
        if (kAlong > 1 && Work(p).advance()) cluster_sync();   // of gather()
    } else {
        if constexpr (kGroups > 1) registers_increase<kGroups == 3 ? 160 : 232>();
        Consumer consumer(p, base, warp / 4 - 1);
        u32 turn = 0;
#pragma unroll 1
        for (Work work(p); work.advance();) {
            if (kInTurn && turn++ % 2 != consumer.group) {
                consumer.pass(work.last - work.first);
                continue;
            }
            Tile tile(p, work.tile, (int)consumer.rank.down(), (int)consumer.rank.across());
            tile.row = uniform(tile.row), tile.column = uniform(tile.column), tile.rows = uniform(tile.rows), tile.columns = uniform(tile.columns);   // known before it is waited for
            if (kInTurn && turn > 1) named_sync(consumer.order(consumer.group), 2 * kGroup);
            consumer.multiply(work.last - work.first, work.next >= work.tiles);
            if constexpr (kAlong > 1) {
                if (consumer.gather()) consumer.store(tile, &c);
            } else if (SPLITS < 2 || work.tile >= work.cut || consumer.join(work, sums, counters))
                consumer.store(tile, &c);
        }
        if (threadIdx.x % kGroup == 0) tma_store_wait_read<0>();   // shared memory is gone when the block is
    }
    if (kAlong > 1) cluster_sync();   // nobody reads of a block that has ended
}
