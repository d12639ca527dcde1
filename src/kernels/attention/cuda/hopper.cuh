// The copy engine, its barriers and wgmma on Hopper (sm_90a), as attention's kernels use them, and the order in which a
// block takes its tiles.
#pragma once

#include "attention/cuda/fragments.cuh"

namespace aicf::attention {

// ---- copy engine and its barriers ----

__device__ __forceinline__ uint32_t address_of(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// What one thread has set up, for all and for the copy engine.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits until the phase of the given parity is over.
__device__ __forceinline__ void wait_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int column,
                                         int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5, %6}], "
      "[%2];" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void sync_named(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_named(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- wgmma ----

// Descriptor of a tile in shared memory (PTX ISA, "matrix descriptor"): rows of 128 bytes, 128-byte swizzle,
// 8 rows are 1,024 bytes; `leading` is the distance in bytes between 64-column halves of an operand whose
// rows are the reduction.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(leading >> 4) << 16 | uint64_t(1024 >> 4) << 32 |
         uint64_t(1) << 62;
}
__device__ __forceinline__ void fence_wgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_wgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Accumulators may not be touched while a wgmma is in flight: the compiler must not move their uses across
// this.
template <int kCount>
__device__ __forceinline__ void hold(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define AICF_ACCUMULATORS_64                                                                                \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),           \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
      "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),            \
      "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),            \
      "+f"(d[30]), "+f"(d[31])
#define AICF_WGMMA_64(type)                                                                                 \
  /* d[64 × 64] = or += a b^T, both in shared memory with the reduction along rows. */                      \
  __device__ __forceinline__ void wgmma_shared(float(&d)[32], uint64_t a, uint64_t b, bool adds, type) {    \
    asm volatile(                                                                                           \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                        \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type                                       \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                          \
        "%32, %33, p, 1, 1, 0, 0;\n}"                                                                       \
        : AICF_ACCUMULATORS_64                                                                              \
        : "l"(a), "l"(b), "r"(int(adds)));                                                                  \
  }                                                                                                         \
  /* d[64 × 64] += a b, a in registers, b in shared memory with one row per step of the reduction. */       \
  __device__ __forceinline__ void wgmma_registers(float(&d)[32], const uint32_t(&a)[4], uint64_t b, type) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type                              \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "  \
                 "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                       \
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                                   \
                 : AICF_ACCUMULATORS_64                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                     \
  }
AICF_WGMMA_64(f16)
AICF_WGMMA_64(bf16)
#undef AICF_WGMMA_64
#undef AICF_ACCUMULATORS_64

#define AICF_ACCUMULATORS_128                                                                               \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),           \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
      "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),            \
      "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),            \
      "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),            \
      "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),            \
      "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),            \
      "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),            \
      "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define AICF_WGMMA_128(type)                                                                                \
  /* d[64 × 128] = or += a b^T, both in shared memory with the reduction along rows. */                     \
  __device__ __forceinline__ void wgmma_shared(float(&d)[64], uint64_t a, uint64_t b, bool adds, type) {    \
    asm volatile(                                                                                           \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                        \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." #type "." #type                                      \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "   \
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "   \
        "%59, %60, %61, %62, %63}, "                                                                        \
        "%64, %65, p, 1, 1, 0, 0;\n}"                                                                       \
        : AICF_ACCUMULATORS_128                                                                             \
        : "l"(a), "l"(b), "r"(int(adds)));                                                                  \
  }                                                                                                         \
  /* d[64 × 128] += a b, a in registers, b in shared memory with one row per step of the reduction. */      \
  __device__ __forceinline__ void wgmma_registers(float(&d)[64], const uint32_t(&a)[4], uint64_t b, type) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." #type "." #type                             \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "  \
                 "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "    \
                 "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "    \
                 "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                                 \
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                                                   \
                 : AICF_ACCUMULATORS_128                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                     \
  }
AICF_WGMMA_128(f16)
AICF_WGMMA_128(bf16)
#undef AICF_WGMMA_128
#undef AICF_ACCUMULATORS_128

// d[64 × 48], [64 × 80] or [64 × 96] += a b, a in registers, b in shared memory with one row per step of the reduction.
#define AICF_WGMMA_48(type) \
  __device__ __forceinline__ void wgmma_registers(float(&d)[24], const uint32_t(&a)[4], uint64_t b, type) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n48k16.f32." #type "." #type \
                 " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
                 "%18, %19, %20, %21, %22, %23}, " \
                 "{%24, %25, %26, %27}, %28, 1, 1, 1, 1;" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),  \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),  \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
  }
AICF_WGMMA_48(f16)
AICF_WGMMA_48(bf16)
#undef AICF_WGMMA_48
#define AICF_WGMMA_80(type) \
  __device__ __forceinline__ void wgmma_registers(float(&d)[40], const uint32_t(&a)[4], uint64_t b, type) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32." #type "." #type \
                 " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, " \
                 "%34, %35, %36, %37, %38, %39}, " \
                 "{%40, %41, %42, %43}, %44, 1, 1, 1, 1;" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),  \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),  \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
      "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
  }
AICF_WGMMA_80(f16)
AICF_WGMMA_80(bf16)
#undef AICF_WGMMA_80
#define AICF_WGMMA_96(type) \
  __device__ __forceinline__ void wgmma_registers(float(&d)[48], const uint32_t(&a)[4], uint64_t b, type) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32." #type "." #type \
                 " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, " \
                 "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, " \
                 "{%48, %49, %50, %51}, %52, 1, 1, 1, 1;" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),  \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),  \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
      "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),  \
      "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
  }
AICF_WGMMA_96(f16)
AICF_WGMMA_96(bf16)
#undef AICF_WGMMA_96

// Of blocks of 128 keys [from, end) those that all rows of a warpgroup see whole, which need no comparison. `row`: the first
// of its 64; `visible`: how far that one sees.
template <class Traits>
struct OpenBlocks {
  int32_t from, end;
  __device__ __forceinline__ OpenBlocks(const Call<Traits>& call, int32_t row, int32_t visible)
      : from((first_key(call, row + 63) + 127) / 128), end((visible > 0 ? visible : 0) / 128) {}
  __device__ __forceinline__ bool holds(int32_t block) const {
    return (Traits::kWindow == 0 || block >= from) && block < end;
  }
};

// ---- turns ----

// Where in a ring of kStages the next block is, and the parity of its barriers' phase.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// A warpgroup may issue its products when the one before passes the turn, with its own issued or its scores there (named
// barriers from 1 on): while one computes weights, the others multiply. Each takes as many turns as the others; the last
// one's first pass begins.
template <int kGroups>
__device__ __forceinline__ void wait_turn(int group) {
  sync_named(1 + group, 256);
}
template <int kGroups>
__device__ __forceinline__ void pass_turn(int group) {
  arrive_named(group + 1 < kGroups ? 2 + group : 1, 256);
}

// Divides a block: one thread of its first warpgroup runs `load(shared)`, each of the kGroups others
// `multiply(shared, number)` with the registers that loading does not need. Before, the barriers of `shared`, which begins
// at a multiple of 1,024 bytes, are set up, and the launch's inputs are there.
template <int kGroups, class Shared, class Maps, class Load, class Multiply>
__device__ __forceinline__ void run_warpgroups(const Maps& maps, const Load& load, const Multiply& multiply) {
  extern __shared__ __align__(1024) char memory[];
  const Shared shared{(address_of(memory) + 1023) & ~1023u};
  // From one lane, so that the compiler sees that a warp does not diverge: it would serialise wgmma.
  const int warpgroup = __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    maps.prefetch();
    shared.set_up();
  }
  __syncthreads();
  wait_for_inputs();
  launch_dependents();
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kGroups == 2 ? 24 : 32));
    if (threadIdx.x == 0) load(shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kGroups == 2 ? 240 : 160));
    if (warpgroup == kGroups) pass_turn<kGroups>(kGroups - 1);
    multiply(shared, warpgroup - 1);
  }
}

// The tiles that a block of a persistent launch works on, one after the other; all its warps walk alike. `tiles` of each
// head; with the causal mask a tile's work grows or shrinks with its number, so that an item is a pair from both ends, the
// longer one first, and all items take as long.
template <bool kCausal, bool kLongLast>
struct Walk {
  uint32_t tiles, per_head, items, item;
  bool second = false;
  __device__ __forceinline__ Walk(uint32_t tiles, uint32_t heads)
      : tiles(tiles), per_head(kCausal ? (tiles + 1) / 2 : tiles), items(per_head * heads), item(blockIdx.x) {}
  __device__ __forceinline__ bool done() const { return item >= items; }
  __device__ __forceinline__ int32_t head() const { return int32_t(item / per_head); }
  __device__ __forceinline__ int32_t tile() const {
    const uint32_t first = item % per_head;
    return int32_t((kCausal && kLongLast) != second ? tiles - 1 - first : first);
  }
  __device__ __forceinline__ void next() {
    if (kCausal && !second && item % per_head * 2 + 1 != tiles) {
      second = true;
    } else {
      second = false;
      item += gridDim.x;
    }
  }
};

}  // namespace aicf::attention
