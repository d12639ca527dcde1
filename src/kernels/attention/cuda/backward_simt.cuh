// Gradients of attention on the general-purpose units, for every element type: f32 and f64 in their own precision, half types in
// f32. A first launch finds two numbers of every row (backward_call.cuh). A second has a block for each tile of keys, which
// gives their dk and dv, and for each tile of rows, which gives their dq. A block holds its own kOwn keys or rows in shared memory
// and walks over the rows or keys that see them, kOthers at a time; of a group of heads head by head.
//
// A block is kOwnWarps × kOtherWarps warps. A warp computes the products of its part of the own with its part of the others and
// makes weights and slopes (gradients of scores) of them, in its patch of shared memory. For dq it then adds slopes · keys to sums of its own. For
// dk and dv two warps with neighbouring others share theirs: the first adds slopes · rows of q of both, the second weights · rows of
// dout. What the warps have added is merged at the end. The next others arrive while these are worked on if kStages is 2.
//
// Order: products are chains of fma over the depth; a gradient is a chain over the others of a warp, or of two, block by block, and
// over the heads of a group; the warps' sums are added in their order; a row's sum of weights is one of each lane and warp
// over keys, combined pairwise by lanes and in order by warps; `along` is 8 lanes, combined pairwise. Traits, beside those of
// backward_call.cuh:
//   kOwn, kOthers, kOwnWarps, kOtherWarps, kStages   see above
//   kOwnLanes                                        lanes of a warp side by side in its own; WarpLanes
//   kOddRows                                         rows of tiles lie an odd number of 16 bytes apart
//   kMaskPerKey                                      all rows of a head have the same mask
#pragma once

#include "attention/cuda/backward_simt_tiles.cuh"

namespace aicf::attention {

// A tile of the keys (kOfKeys) or of the rows of a head, from item `first`.
template <class Traits, bool kOfKeys>
struct BackwardTile {
  using Shape = BackwardShape<Traits>;
  using A = typename Shape::A;
  using V = typename Vec<A>::Type;
  using T = typename Traits::Element;
  using Mask = typename Traits::Mask;
  using Lanes = typename Shape::Lanes;
  static constexpr int kVec = Shape::kVec, kR = Shape::kR, kN = Shape::kN, kC = Shape::kC;
  static constexpr A kMultiplier = A(Scores<Traits>::kPlain ? double(A(Traits::kScale)) * kLog2E : kLog2E);
  static constexpr bool kVectorOwn = kOfKeys ? Traits::kVectorK : Traits::kVectorQ,
                        kVectorOwnValues = kOfKeys ? Traits::kVectorV : Traits::kVectorDout,
                        kVectorOthers = kOfKeys ? Traits::kVectorQ : Traits::kVectorK,
                        kVectorOtherValues = kOfKeys ? Traits::kVectorDout : Traits::kVectorV;

  static constexpr bool kBends = Traits::kSoftcap > 0;

  // Rows of one head.
  struct Rows {
    const T* from;
    int64_t row, column;
  };

  const BackwardCall<Traits>& call;
  A* const shared;
  const RowNumbers<A> numbers;
  const int64_t b, head;  // of q, or of k and v
  const int32_t first;
  const int own;                           // items of the tile that exist
  const int own_warp, other_warp;          // of the warp
  const Lanes lanes;
  int32_t start, end;                      // others that the tile's own see or are seen by, from the first of a block of them
  A level[kR], along[kR];                  // of own rows

  __device__ __forceinline__ BackwardTile(const BackwardCall<Traits>& call, A* shared, const RowNumbers<A>& numbers,
                                          int64_t b, int64_t head, int32_t tile, int own_warp, int other_warp)
      : call(call),
        shared(shared),
        numbers(numbers),
        b(b),
        head(head),
        first(tile * Shape::kOwn),
        own(items(call) - first < Shape::kOwn ? items(call) - first : Shape::kOwn),
        own_warp(own_warp),
        other_warp(other_warp) {
    const int32_t least = kOfKeys ? first_query(call, first) : first_key(call, first);
    start = least / Shape::kOthers * Shape::kOthers;
    end = kOfKeys ? end_query(call, first + own - 1) : visible_keys(call, first + own - 1);
  }

  static __device__ __forceinline__ int32_t items(const BackwardCall<Traits>& call) {
    return kOfKeys ? call.keys : call.queries;
  }
  __device__ __forceinline__ Rows rows_of(const T* tensor, const View& view, int64_t h, int32_t row) const {
    return {tensor + b * view.batch + h * view.head + row * view.row, view.row, view.column};
  }
  __device__ __forceinline__ A* stage_at(int stage) const {
    return shared + Shape::kOwnElements + stage * Shape::kStageElements;
  }
  __device__ __forceinline__ A* patch_of(int warp) const {
    return shared + Shape::kPatches + 2 * (own_warp * Shape::kOtherWarps + warp) * Shape::kPatch;
  }
  __device__ __forceinline__ int64_t number_of(int64_t h) const { return (b * call.heads + h) * numbers.padded; }
  // The warp's first own.
  __device__ __forceinline__ int32_t own_from() const { return first + own_warp * Shape::kWarpOwn; }
  // Where the lane's g-th vector of others is among the warp's.
  __device__ __forceinline__ int place_of(int g) const { return (lanes.kx + g * Shape::kOtherLanes) * kVec; }
  // The first of a warp's others among those from `from` on.
  static __device__ __forceinline__ int32_t others_from(int32_t from, int warp) { return from + warp * Shape::kWarpOthers; }

  __device__ __forceinline__ void copy_own() const {
    const Rows x = kOfKeys ? rows_of(call.k, call.k_view, head, first) : rows_of(call.q, call.q_view, head, first);
    const Rows values =
        kOfKeys ? rows_of(call.v, call.v_view, head, first) : rows_of(call.dout, call.dout_view, head, first);
    const auto as_it_is = [](int at) { return at; };
    copy_tile<Traits::kDepth, Shape::kOwn, Shape::kThreads, kVectorOwn>(shared, Shape::kDepthStride, x.from, x.row,
                                                                        x.column, own, as_it_is);
    copy_tile<Traits::kValueDepth, Shape::kOwn, Shape::kThreads, kVectorOwnValues>(
        shared + Shape::kOwn * Shape::kDepthStride, Shape::kValueStride, values.from, values.row, values.column, own,
        as_it_is);
  }

  // The others from `from` on, for own rows or keys of head `h` of q.
  __device__ __forceinline__ void copy_others(int64_t h, int32_t from, A* to) const {
    const int64_t kv_head = h / call.group;
    const Rows y = kOfKeys ? rows_of(call.q, call.q_view, h, from) : rows_of(call.k, call.k_view, kv_head, from);
    copy_tile<Traits::kDepth, Shape::kOthers, Shape::kThreads, kVectorOthers>(
        to, Shape::kDepthStride, y.from, y.row, y.column, (kOfKeys ? call.queries : call.keys) - from, Lanes::place_of_key);
  }
  __device__ __forceinline__ void copy_other_values(int64_t h, int32_t from, A* to) const {
    const int64_t kv_head = h / call.group;
    const Rows y = kOfKeys ? rows_of(call.dout, call.dout_view, h, from) : rows_of(call.v, call.v_view, kv_head, from);
    copy_tile<Traits::kValueDepth, Shape::kOthers, Shape::kThreads, kVectorOtherValues>(
        to + Shape::kOthers * Shape::kDepthStride, Shape::kValueStride, y.from, y.row, y.column,
        (kOfKeys ? call.queries : call.keys) - from, Lanes::place_of_key);
  }
  // Of rows that do not exist: numbers of rows whose weights are 0, or zeros.
  __device__ __forceinline__ void copy_numbers(int64_t h, int32_t from, A* to) const {
    constexpr int kUnits = Shape::kOthers / kVec;
    for (int unit = int(threadIdx.x); unit < 2 * kUnits; unit += Shape::kThreads) {
      const A* source = unit < kUnits ? numbers.level : numbers.along;
      const int32_t row = from + unit % kUnits * kVec;
      copy_vector(to + Shape::kNumbers + unit * kVec, source + number_of(h) + row, row < numbers.padded);
    }
  }
  __device__ __forceinline__ void copy_stage(int64_t h, int32_t from, A* to) const {
    copy_others(h, from, to);
    copy_other_values(h, from, to);
    if constexpr (kOfKeys) copy_numbers(h, from, to);
  }

  // Whether one, or each, of rows [row, last_row] sees one, or each, of keys [key, last_key].
  __device__ __forceinline__ bool some_see(int32_t row, int32_t last_row, int32_t key, int32_t last_key) const {
    if (last_row >= call.queries) last_row = call.queries - 1;
    return row < call.queries && key < visible_keys(call, last_row) && last_key >= first_key(call, row);
  }
  __device__ __forceinline__ bool all_see(int32_t row, int32_t last_row, int32_t key, int32_t last_key) const {
    return last_row < call.queries && last_key < visible_keys(call, row) && key >= first_key(call, last_row);
  }
  // Of the warp's own and a warp's others from `at` on.
  __device__ __forceinline__ bool some_of(int32_t at) const {
    const int32_t from = own_from(), last = from + Shape::kWarpOwn - 1, last_at = at + Shape::kWarpOthers - 1;
    return kOfKeys ? some_see(at, last_at, from, last) : some_see(from, last, at, last_at);
  }
  __device__ __forceinline__ bool all_of(int32_t at) const {
    const int32_t from = own_from(), last = from + Shape::kWarpOwn - 1, last_at = at + Shape::kWarpOthers - 1;
    return kOfKeys ? all_see(at, last_at, from, last) : all_see(from, last, at, last_at);
  }

  // What the mask says; nothing is read beyond rows and keys.
  __device__ __forceinline__ const Mask* mask_of(int64_t h) const {
    return Traits::kHasMask ? call.mask + b * call.mask_view.batch + h * call.mask_view.head : nullptr;
  }
  __device__ __forceinline__ A mask_at(const Mask* mask, int32_t row, int32_t key) const {
    Mask element{};
    if (key < call.keys)
      element = mask[(row < call.queries ? row : call.queries - 1) * call.mask_view.row + key * call.mask_view.column];
    return Scores<Traits>::template mask_value<A>(element);
  }
  // Of an own item and kVec others from `at` on.
  __device__ __forceinline__ void load_mask(const Mask* mask, int32_t item, int32_t at, A (&values)[kVec]) const {
    if constexpr (!kOfKeys && Traits::kMaskUnit % kVec == 0) {
      MaskVector<Mask, kVec> elements{};
      if (at < call.keys)
        elements = *reinterpret_cast<const MaskVector<Mask, kVec>*>(
            mask + (item < call.queries ? item : call.queries - 1) * call.mask_view.row + at);
#pragma unroll
      for (int e = 0; e < kVec; ++e) values[e] = Scores<Traits>::template mask_value<A>(elements.element[e]);
    } else {
#pragma unroll
      for (int e = 0; e < kVec; ++e) values[e] = kOfKeys ? mask_at(mask, at + e, item) : mask_at(mask, item, at + e);
    }
  }
  // Of a mask per key: of the own keys, or of the others from `at` on.
  static constexpr int kMasks = !(Traits::kHasMask && Traits::kMaskPerKey) ? 1 : kOfKeys ? kR : kN;
  __device__ __forceinline__ void load_key_mask(const Mask* mask, int32_t at, A (&of_keys)[kMasks]) const {
    if constexpr (Traits::kHasMask && Traits::kMaskPerKey) {
#pragma unroll
      for (int n = 0; n < kMasks; ++n)
        of_keys[n] = mask_at(mask, 0, kOfKeys ? own_from() + lanes.ry + n * Shape::kOwnLanes
                                              : at + lanes.kx * kVec + n / kVec * Shape::kAcross + n % kVec);
    }
  }

  // A score of the lane's, -infinity if sizes, causality or the window hide it, which they do not if kAll.
  template <bool kAll>
  __device__ __forceinline__ A score(A product, A mask, int32_t item, int32_t other, A& bend) const {
    const A score = score_and_bend<Traits>(product, mask, bend);
    if constexpr (kAll) return score;
    const int32_t row = kOfKeys ? other : item, key = kOfKeys ? item : other;
    const bool hidden = row >= call.queries || key >= visible_keys(call, row) ||
                        (Traits::kWindow != 0 && key < first_key(call, row));
    return hidden ? A(minus_infinity()) : score;
  }

  // Products of q and k with the warp's others from `at` on become weights in the warp's patch: for dv, and as the slopes that
  // a gradient of a weight of 1 would give.
  template <bool kAll>
  __device__ __forceinline__ void weigh(const Mask* mask, int32_t at, const A (&of_keys)[kMasks], const A* row_numbers,
                                        const A (&s)[kR][kN]) const {
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
      const int place = place_of(g);
      A levels[kVec];
      if constexpr (kOfKeys) *reinterpret_cast<V*>(levels) = *reinterpret_cast<const V*>(row_numbers + place);
#pragma unroll
      for (int i = 0; i < kR; ++i) {
        const int line = lanes.ry + i * Shape::kOwnLanes;
        const int32_t item = own_from() + line;
        A values[kVec], weights[kVec], slopes[kVec];
        if constexpr (Traits::kHasMask && !Traits::kMaskPerKey) load_mask(mask, item, at + place, values);
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const int j = g * kVec + e;
          const A value = !Traits::kHasMask ? A(0) : Traits::kMaskPerKey ? of_keys[kOfKeys ? i % kMasks : j % kMasks] : values[e];
          A bend;
          const A exponent = score<kAll>(s[i][j], value, item, at + place + e, bend);
          weights[e] = exp_two(fused(exponent, kMultiplier, -(kOfKeys ? levels[e] : level[i])));
          slopes[e] = weights[e] * bend;
        }
        A* const to = patch_of(other_warp) + line * Shape::kPStride + place;
        if constexpr (kOfKeys) *reinterpret_cast<V*>(to + Shape::kPatch) = *reinterpret_cast<const V*>(weights);
        if constexpr (kBends || !kOfKeys) *reinterpret_cast<V*>(to) = *reinterpret_cast<const V*>(slopes);
      }
    }
  }

  // Then products of dout and v make them slopes.
  __device__ __forceinline__ void bend_slopes(const A* row_numbers, const A (&dp)[kR][kN]) const {
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
      const int place = place_of(g);
      A alongs[kVec];
      if constexpr (kOfKeys)
        *reinterpret_cast<V*>(alongs) = *reinterpret_cast<const V*>(row_numbers + Shape::kOthers + place);
#pragma unroll
      for (int i = 0; i < kR; ++i) {
        A* const to = patch_of(other_warp) + (lanes.ry + i * Shape::kOwnLanes) * Shape::kPStride + place;
        A slopes[kVec];
        *reinterpret_cast<V*>(slopes) = *reinterpret_cast<const V*>(kBends || !kOfKeys ? to : to + Shape::kPatch);
#pragma unroll
        for (int e = 0; e < kVec; ++e) slopes[e] *= dp[i][g * kVec + e] - (kOfKeys ? alongs[e] : along[i]);
        *reinterpret_cast<V*>(to) = *reinterpret_cast<const V*>(slopes);
      }
    }
  }

  // Of the own, and of the warp's others in a stage.
  __device__ __forceinline__ const A* own_rows() const {
    return shared + (own_warp * Shape::kWarpOwn + lanes.ry) * Shape::kDepthStride;
  }
  __device__ __forceinline__ const A* other_rows(const A* stage) const {
    return stage + (other_warp * Shape::kWarpOthers + lanes.kx) * Shape::kDepthStride;
  }

  __device__ __forceinline__ void find_weights(int64_t h, int32_t from, const A* stage) const {
    const int32_t at = others_from(from, other_warp);
    if (!some_of(at)) return;
    const Mask* mask = mask_of(h);
    A of_keys[kMasks], products[kR][kN];
    load_key_mask(mask, at, of_keys);
    const A* row_numbers = stage + Shape::kNumbers + other_warp * Shape::kWarpOthers;
    multiply_rows<Shape, Traits::kDepth, Shape::kDepthStride>(own_rows(), other_rows(stage), products);
    if (all_of(at))
      weigh<true>(mask, at, of_keys, row_numbers, products);
    else
      weigh<false>(mask, at, of_keys, row_numbers, products);
    multiply_rows<Shape, Traits::kValueDepth, Shape::kValueStride>(
        shared + Shape::kOwn * Shape::kDepthStride + (own_warp * Shape::kWarpOwn + lanes.ry) * Shape::kValueStride,
        stage + Shape::kOthers * Shape::kDepthStride +
            (other_warp * Shape::kWarpOthers + lanes.kx) * Shape::kValueStride,
        products);
    bend_slopes(row_numbers, products);
  }

  // What the slopes, or the weights, of a warp's others give.
  __device__ __forceinline__ void add_others(int32_t from, int warp, bool values, const A* stage,
                                             A (&o)[kR][kC][kVec]) const {
    const int32_t at = others_from(from, warp);
    if (!some_of(at)) return;
    const int stride = values ? Shape::kValueStride : Shape::kDepthStride;
    const A* tile = (values ? stage + Shape::kOthers * Shape::kDepthStride : stage) + warp * Shape::kWarpOthers * stride;
    add_rows<Shape>(patch_of(warp) + (values ? Shape::kPatch : 0), tile, stride,
                    end - at < Shape::kWarpOthers ? end - at : Shape::kWarpOthers,
                    values ? Traits::kValueDepth : Traits::kDepth, lanes, o);
  }

  __device__ __forceinline__ void add_all(int32_t from, const A* stage, A (&o)[kR][kC][kVec]) const {
    if constexpr (kOfKeys) {
      const int pair = other_warp / 2 * 2;
      // Barrier 0 is that of the block.
      asm volatile("bar.sync %0, 64;" ::"r"(1 + (own_warp * Shape::kOtherWarps + pair) / 2) : "memory");
#pragma unroll 1
      for (int warp = pair; warp < pair + 2; ++warp) add_others(from, warp, other_warp % 2 != 0, stage, o);
    } else {
      __syncwarp();
      add_others(from, other_warp, false, stage, o);
    }
  }

  // Parts of warps part, part + step, … of the own; then one gradient.
  template <bool kVector, int kColumns>
  __device__ __forceinline__ void add_parts(T* tensor, const View& view, int part, int step, A factor) const {
    constexpr int kVectors = padded<A>(kColumns) / kVec;
    T* const lines = tensor + b * view.batch + head * view.head + first * view.row;
    for (int unit = int(threadIdx.x); unit < own * kVectors; unit += Shape::kThreads) {
      const int at = unit / kVectors, column = unit % kVectors * kVec;
      alignas(16) A sums[kVec] = {};
      for (int w = part; w < Shape::kOtherWarps; w += step) {
        alignas(16) A values[kVec];
        *reinterpret_cast<V*>(values) =
            *reinterpret_cast<const V*>(shared + (w * Shape::kOwn + at) * Shape::kWide + column);
#pragma unroll
        for (int e = 0; e < kVec; ++e) sums[e] += values[e];
      }
      store_vector<kVector>(lines + at * view.row, view.column, column, kColumns, factor, sums);
    }
  }

  __device__ __forceinline__ void store(const A (&o)[kR][kC][kVec]) const {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int c = 0; c < kC; ++c) {
        const int column = (lanes.kx + c * Shape::kOtherLanes) * kVec;
        const int at = own_warp * Shape::kWarpOwn + lanes.ry + i * Shape::kOwnLanes;
        if (column < Shape::kWide)
          *reinterpret_cast<V*>(shared + (other_warp * Shape::kOwn + at) * Shape::kWide + column) =
              *reinterpret_cast<const V*>(o[i][c]);
      }
    __syncthreads();
    if constexpr (kOfKeys) {
      add_parts<Traits::kVectorDk, Traits::kDepth>(call.dk, call.dk_view, 0, 2, A(Traits::kScale));
      add_parts<Traits::kVectorDv, Traits::kValueDepth>(call.dv, call.dv_view, 1, 2, A(1));
    } else {
      add_parts<Traits::kVectorDq, Traits::kDepth>(call.dq, call.dq_view, 0, 1, A(Traits::kScale));
    }
  }

  // The numbers of the lane's own rows.
  __device__ __forceinline__ void load_numbers() {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const int32_t row = own_from() + lanes.ry + i * Shape::kOwnLanes;
      level[i] = row < call.queries ? numbers.level[number_of(head) + row] : infinity<A>();
      along[i] = row < call.queries ? numbers.along[number_of(head) + row] : A(0);
    }
  }

  __device__ __forceinline__ void run() {
    alignas(16) A o[kR][kC][kVec];
#pragma unroll
    for (int i = 0; i < kR; ++i)
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int e = 0; e < kVec; ++e) o[i][c][e] = 0;
    int64_t h = kOfKeys ? head * call.group : head;
    const int64_t last_head = start < end ? (kOfKeys ? h + call.group : h + 1) : h;
    int32_t from = start;
    int stage = 0;
    if (h < last_head) {
      copy_own();
      copy_stage(h, from, stage_at(0));
      if constexpr (!kOfKeys) load_numbers();
    }
    while (h < last_head) {
      const bool turns = from + Shape::kOthers >= end;
      const int64_t next_head = turns ? h + 1 : h;
      const int32_t next_from = turns ? start : from + Shape::kOthers;
      const bool more = next_head < last_head;
      wait_for_copies();
      __syncthreads();
      if (Shape::kStages > 1 && more) copy_stage(next_head, next_from, stage_at(1 - stage));
      find_weights(h, from, stage_at(stage));
      add_all(from, stage_at(stage), o);
      if (Shape::kStages == 1 && more) {
        __syncthreads();
        copy_stage(next_head, next_from, stage_at(0));
      }
      h = next_head;
      from = next_from;
      if (Shape::kStages > 1) stage = 1 - stage;
    }
    store(o);
  }

  // Of own rows and the warp's keys from `at` on: maxima of scores and sums of 2^(kMultiplier (score - maximum)) by lanes.
  template <bool kAll>
  __device__ __forceinline__ void measure(const Mask* mask, int32_t at, const A (&of_keys)[kMasks], A (&s)[kR][kN],
                                          A (&maximum)[kR], A (&sum)[kR]) const {
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const int32_t item = own_from() + lanes.ry + i * Shape::kOwnLanes;
      A top = maximum[i];
#pragma unroll
      for (int g = 0; g < Shape::kGroups; ++g) {
        const int32_t place = at + place_of(g);
        A values[kVec];
        if constexpr (Traits::kHasMask && !Traits::kMaskPerKey) load_mask(mask, item, place, values);
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const int j = g * kVec + e;
          A bend;
          s[i][j] = score<kAll>(s[i][j], !Traits::kHasMask ? A(0) : Traits::kMaskPerKey ? of_keys[j % kMasks] : values[e], item,
                                place + e, bend);
          top = larger(top, s[i][j]);
        }
      }
      const A reference = top == A(minus_infinity()) ? A(0) : top;
      sum[i] *= exp_two(kMultiplier * (maximum[i] - reference));
      maximum[i] = top;
#pragma unroll
      for (int j = 0; j < kN; ++j) sum[i] += exp_two(kMultiplier * (s[i][j] - reference));
    }
  }

  // A row's maximum and sum of several lanes or warps.
  static __device__ __forceinline__ A scaled(A sum, A maximum, A top) {
    return sum * exp_two(kMultiplier * (maximum - (top == A(minus_infinity()) ? A(0) : top)));
  }

  __device__ __forceinline__ void find_levels() const {
    A maximum[kR], sum[kR];
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      maximum[i] = A(minus_infinity());
      sum[i] = 0;
    }
    const Mask* mask = mask_of(head);
    A* const stage = stage_at(0);
    if (start < end) copy_own();
    for (int32_t from = start; from < end; from += Shape::kOthers) {
      __syncthreads();
      copy_others(head, from, stage);
      wait_for_copies();
      __syncthreads();
      const int32_t at = others_from(from, other_warp);
      if (!some_of(at)) continue;
      A of_keys[kMasks], s[kR][kN];
      load_key_mask(mask, at, of_keys);
      multiply_rows<Shape, Traits::kDepth, Shape::kDepthStride>(own_rows(), other_rows(stage), s);
      if (all_of(at))
        measure<true>(mask, at, of_keys, s, maximum, sum);
      else
        measure<false>(mask, at, of_keys, s, maximum, sum);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const A top = Lanes::combined(maximum[i], [](A x, A y) { return larger(x, y); });
      const A total = Lanes::combined(scaled(sum[i], maximum[i], top), [](A x, A y) { return x + y; });
      A* const to =
          shared + (other_warp * Shape::kOwn + own_warp * Shape::kWarpOwn + lanes.ry + i * Shape::kOwnLanes) * 2;
      if (lanes.kx == 0) {
        to[0] = top;
        to[1] = total;
      }
    }
    __syncthreads();
    for (int at = int(threadIdx.x); at < own; at += Shape::kThreads) {
      A top = A(minus_infinity()), total = 0;
      for (int w = 0; w < Shape::kOtherWarps; ++w) top = larger(top, shared[(w * Shape::kOwn + at) * 2]);
      for (int w = 0; w < Shape::kOtherWarps; ++w) {
        const A* of = shared + (w * Shape::kOwn + at) * 2;
        total += scaled(of[1], of[0], top);
      }
      numbers.level[number_of(head) + first + at] = total == 0 ? infinity<A>() : kMultiplier * top + log_two(total);
    }
  }
};

// sum(dout out) of a row, by 8 lanes side by side.
template <class Traits, class A>
__device__ __forceinline__ A find_along(const BackwardCall<Traits>& call, int64_t b, int64_t h, int32_t row) {
  using T = typename Traits::Element;
  constexpr int kUnit = Traits::kVectorDout && Traits::kVectorResult ? 16 / sizeof(T) : 1;
  const int lane = int(threadIdx.x) % 8;
  A sum = 0;
  if (row < call.queries) {
    const T* dout = call.dout + b * call.dout_view.batch + h * call.dout_view.head + row * call.dout_view.row;
    const T* out = call.result + b * call.out_view.batch + h * call.out_view.head + row * call.out_view.row;
#pragma unroll 4
    for (int c = lane * kUnit; c < Traits::kValueDepth; c += 8 * kUnit) {
      alignas(16) T x[kUnit], y[kUnit];
      if constexpr (kUnit > 1) {
        *reinterpret_cast<uint4*>(x) = *reinterpret_cast<const uint4*>(dout + c);
        *reinterpret_cast<uint4*>(y) = *reinterpret_cast<const uint4*>(out + c);
      } else {
        x[0] = dout[c * call.dout_view.column];
        y[0] = out[c * call.out_view.column];
      }
#pragma unroll
      for (int e = 0; e < kUnit; ++e) sum = fused(A(widen(x[e])), A(widen(y[e])), sum);
    }
  }
#pragma unroll
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

// The numbers of rows [from, to) of a head but for levels that find_levels finds, by `threads` threads.
template <class Traits, class A>
__device__ __forceinline__ void keep_numbers(const BackwardCall<Traits>& call, const RowNumbers<A>& numbers, int64_t b,
                                             int64_t h, int32_t from, int32_t to, int threads) {
  for (int32_t first = from; first < to; first += threads / 8) {
    const int32_t row = first + int32_t(threadIdx.x) / 8;
    const A along = find_along<Traits, A>(call, b, h, row);
    if (row >= to || threadIdx.x % 8 != 0) continue;
    const int64_t at = (b * call.heads + h) * numbers.padded + row;
    numbers.along[at] = along;
    if (row >= call.queries) {
      numbers.level[at] = infinity<A>();
    } else if constexpr (Traits::kHasSums) {
      const float sum = call.sums[(b * call.heads + h) * call.queries + row];
      numbers.level[at] = sum == minus_infinity() ? infinity<A>() : A(sum) * A(kLog2E);
    }
  }
}

// A block of the first launch has `rows` rows if the forward pass left its sums, else a tile.
template <class Traits>
__device__ __forceinline__ void attention_numbers_simt(const BackwardCall<Traits>& call, void* workspace, int32_t all_heads) {
  using Shape = BackwardShape<Traits>;
  using A = typename Shape::A;
  constexpr int kRows = Traits::kHasSums ? Traits::kNumberRows : Shape::kOwn;
  extern __shared__ __align__(16) char shared[];
  const uint32_t tiles = (uint32_t(call.queries) + kRows - 1) / kRows;
  const int32_t tile = int32_t(blockIdx.x % tiles);
  const int64_t b = blockIdx.x / tiles / uint32_t(call.heads), h = blockIdx.x / tiles % uint32_t(call.heads);
  wait_for_inputs();
  launch_dependents();
  const RowNumbers<A> numbers = row_numbers<A>(call, workspace, all_heads);
  if constexpr (!Traits::kHasSums) {
    const int warp = int(threadIdx.x) / 32;
    BackwardTile<Traits, false>(call, reinterpret_cast<A*>(shared), numbers, b, h, tile, warp / Shape::kOtherWarps,
                                warp % Shape::kOtherWarps)
        .find_levels();
  }
  const int32_t from = tile * kRows, to = tile + 1 == tiles ? int32_t(numbers.padded) : from + kRows;
  keep_numbers(call, numbers, b, h, from, to, Traits::kHasSums ? 256 : Shape::kThreads);
}

// The `number`-th of `tiles` tiles of each of `all` heads in the order in which they start, as place_of_block.
struct TileOfHead {
  int32_t tile, head;
};
template <class Traits>
__device__ __forceinline__ TileOfHead tile_of(uint32_t number, uint32_t tiles, uint32_t all) {
  if (!Traits::kCausal) return {int32_t(number % tiles), int32_t(number / tiles)};
  constexpr uint32_t kGroup = Traits::kHeadGroup;
  const uint32_t wave = kGroup * tiles, first = number / wave * kGroup, rest = number % wave;
  const uint32_t count = all - first < kGroup ? all - first : kGroup;
  return {int32_t(rest / count), int32_t(first + rest % count)};
}

// Tiles of keys come first, because they have more to do. With the causal mask early keys and late rows have the most.
template <class Traits>
__device__ __forceinline__ void attention_gradients_simt(const BackwardCall<Traits>& call, void* workspace,
                                                         int32_t kv_heads, int32_t all_heads) {
  using Shape = BackwardShape<Traits>;
  using A = typename Shape::A;
  extern __shared__ __align__(16) char shared[];
  A* const elements = reinterpret_cast<A*>(shared);
  // Blocks differ in which of their warps have the last of a tile, since a warp keeps to one scheduler.
  const uint32_t turn = (threadIdx.x / 32 + (blockIdx.x * 0x9e3779b1u >> 16)) % Shape::kWarps;
  const int own_warp = int(turn) / Shape::kOtherWarps, other_warp = int(turn) % Shape::kOtherWarps;
  const uint32_t key_tiles = (uint32_t(call.keys) + Shape::kOwn - 1) / Shape::kOwn,
                 row_tiles = (uint32_t(call.queries) + Shape::kOwn - 1) / Shape::kOwn;
  const uint32_t all_kv_heads = uint32_t(all_heads / call.group), of_keys = all_kv_heads * key_tiles;
  wait_for_inputs();
  launch_dependents();
  const RowNumbers<A> numbers = row_numbers<A>(call, workspace, all_heads);
  if (blockIdx.x < of_keys) {
    const TileOfHead at = tile_of<Traits>(blockIdx.x, key_tiles, all_kv_heads);
    BackwardTile<Traits, true>(call, elements, numbers, at.head / kv_heads, at.head % kv_heads, at.tile, own_warp,
                               other_warp)
        .run();
  } else {
    const TileOfHead at = tile_of<Traits>(blockIdx.x - of_keys, row_tiles, uint32_t(all_heads));
    const int32_t tile = Traits::kCausal ? int32_t(row_tiles) - 1 - at.tile : at.tile;
    BackwardTile<Traits, false>(call, elements, numbers, at.head / call.heads, at.head % call.heads, tile, own_warp,
                                other_warp)
        .run();
  }
}

}  // namespace aicf::attention
