#include "kernels/conv/cpu/conv_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace aicf {
namespace {

constexpr int64_t kShortSegment = 8;  // shorter segments cost more than copying the row

void copy_floats(const float* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) std::memcpy(to + i, from + i, 4 * sizeof(float));
  for (; i < count; ++i) to[i] = from[i];
}

}  // namespace

ConvRows::Scratch ConvRows::scratch_of(const ConvPlan& plan, std::byte* at) {
  Scratch scratch;
  const auto take = [&](auto*& part, int64_t count) {
    using Element = std::remove_reference_t<decltype(*part)>;
    part = reinterpret_cast<Element*>(at);
    at += round_up(count * static_cast<int64_t>(sizeof(Element)), 64);
  };
  take(scratch.corners, plan.row_tile);
  take(scratch.zeros, kGemmDepth);
  take(scratch.copies, kGemmRows * kGemmDepth);
  take(scratch.rows, kGemmDepth * kGemmRows);
  for (int part = 0; part < 2; ++part) {
    take(scratch.lengths[part], kGemmDepth);
    take(scratch.segments[part], kGemmDepth);
  }
  scratch.end = at;
  return scratch;
}

int64_t ConvRows::scratch_bytes(const ConvPlan& plan) {
  std::byte base{};
  return scratch_of(plan, &base).end - &base;
}

ConvRows::ConvRows(const ConvPlan& plan, const ConvTile& tile, const float* x, std::byte* scratch)
    : plan_(plan), x_(x), scratch_(scratch_of(plan, scratch)) {
  const WindowAxis& across = plan.windows.axis[2];
  const int64_t channels = plan.group_channels;
  const bool dense = plan.x_channel == 1 || channels == 1;
  lines_ = dense && across.kernel * channels >= kShortSegment &&
           (across.kernel == 1 || across.dilation * across.in_stride == channels);
  positions_ = dense && channels >= kShortSegment;
  std::fill_n(scratch_.zeros, kGemmDepth, 0.0f);
  find_corners(tile);
}

void ConvRows::find_corners(const ConvTile& tile) {
  const WindowAxis* axis = plan_.windows.axis;
  if (plan_.x_is_matrix) {  // `at` is asked for windows on the border only
    for (int64_t i = 0; i < tile.pixels; ++i) {
      Corner& corner = scratch_.corners[i];
      corner.offset = (tile.pixel + i) * axis[2].in_stride;
      corner.inside = corner.across = true;
    }
    return;
  }
  int64_t x = tile.pixel % axis[2].out, y = tile.pixel / axis[2].out % axis[1].out,
          z = tile.pixel / axis[2].out / axis[1].out;
  const auto inside = [&](int a, int64_t at) {
    return at >= 0 && at + (axis[a].kernel - 1) * axis[a].dilation < axis[a].in;
  };
  for (int64_t i = 0; i < tile.pixels;) {  // a line of the output
    const int64_t at0 = axis[0].position(z, 0), at1 = axis[1].position(y, 0);
    const int64_t offset = at0 * axis[0].in_stride + at1 * axis[1].in_stride;
    const bool line_inside = inside(0, at0) && inside(1, at1);
    for (; x < axis[2].out && i < tile.pixels; ++x, ++i) {
      const int64_t at2 = axis[2].position(x, 0);
      const bool across = inside(2, at2);
      scratch_.corners[i] = {
          {at0, at1, at2}, offset + at2 * axis[2].in_stride, line_inside && across, across};
      border_ = border_ || !across;
    }
    x = 0;
    if (++y < axis[1].out) continue;
    y = 0;
    ++z;
  }
}

void ConvRows::set_distances(Tap& tap) const {
  tap.offset = 0;
  for (int a = 0; a < kSpatialAxes; ++a) {
    tap.at[a] = tap.index[a] * plan_.windows.axis[a].dilation;
    tap.offset += tap.at[a] * plan_.windows.axis[a].in_stride;
  }
}

ConvRows::Tap ConvRows::tap_at(int64_t position) const {
  Tap tap;
  for (int a = kSpatialAxes - 1; a >= 0; --a) {
    tap.index[a] = position % plan_.windows.axis[a].kernel;
    position /= plan_.windows.axis[a].kernel;
  }
  set_distances(tap);
  return tap;
}

void ConvRows::advance(Tap& tap, int64_t positions) const {
  tap.index[2] += positions;
  for (int a = kSpatialAxes - 1; a > 0 && tap.index[a] == plan_.windows.axis[a].kernel; --a) {
    tap.index[a] = 0;
    ++tap.index[a - 1];
  }
  set_distances(tap);
}

// Channel 0 of x under a tap, or null in the padding.
const float* ConvRows::under(const Corner& corner, const Tap& tap) const {
  bool inside = corner.inside;
  if (!inside) {
    inside = true;
    for (int a = 0; a < kSpatialAxes; ++a)
      inside = inside && plan_.windows.axis[a].inside(corner.at[a] + tap.at[a]);
  }
  return inside ? x_ + (corner.offset + tap.offset) : nullptr;
}

ConvRows::Segments ConvRows::split(int64_t positions, int part) const {
  Segments segments = {scratch_.segments[part], scratch_.lengths[part], 0};
  const int64_t steps = plan_.group_channels * positions;
  Tap tap = tap_at(k_ / steps * positions);
  int64_t skipped = k_ % steps;
  for (int64_t done = 0; done < depth_; skipped = 0) {
    const int64_t length = std::min(steps - skipped, depth_ - done);
    segments.list[segments.count] = {tap, skipped, tap.offset + skipped};
    segments.lengths[segments.count++] = length;
    done += length;
    if (done < depth_) advance(tap, positions);
  }
  return segments;
}

void ConvRows::set_steps(int64_t k, int64_t depth) {
  k_ = k;
  depth_ = depth;
  if (lines_) line_segments_ = split(plan_.windows.axis[2].kernel, 0);
  if (positions_ && (border_ || !lines_)) position_segments_ = split(1, 1);
}

void ConvRows::find(int64_t first, GemmBlock<float>& block) const {
  const Corner* corners = scratch_.corners + first;
  const bool across =
      !border_ || std::all_of(corners, corners + block.m, [](const Corner& c) { return c.across; });
  const bool by_position = positions_ && !(lines_ && across);
  Segments segments = by_position ? position_segments_ : line_segments_;
  if (!lines_ && !positions_) {
    scratch_.lengths[0][0] = depth_;
    segments = {nullptr, scratch_.lengths[0], depth_ == 0 ? 0 : 1};
  }
  for (int64_t i = 0; i < block.m; ++i) {
    if (by_position || (lines_ && corners[i].across))
      point_row(corners[i], segments, i);
    else
      point_to_copy(corners[i], segments, i);
  }
  block.rows = scratch_.rows;
  block.lengths = segments.lengths;
  block.segments = segments.count;
}

void ConvRows::point_row(const Corner& corner, const Segments& segments, int64_t row) const {
  if (corner.inside) {
    const float* at = x_ + corner.offset;
    for (int64_t s = 0; s < segments.count; ++s)
      scratch_.rows[s * kGemmRows + row] = at + segments.list[s].offset;
    return;
  }
  for (int64_t s = 0; s < segments.count; ++s) {
    const Segment& segment = segments.list[s];
    const float* at = under(corner, segment.tap);
    scratch_.rows[s * kGemmRows + row] = at == nullptr ? scratch_.zeros : at + segment.skipped;
  }
}

void ConvRows::point_to_copy(const Corner& corner, const Segments& segments, int64_t row) const {
  float* at = scratch_.copies + row * kGemmDepth;
  copy_row(corner, at);
  for (int64_t s = 0; s < segments.count; at += segments.lengths[s++])
    scratch_.rows[s * kGemmRows + row] = at;
}

void ConvRows::copy_row(const Corner& corner, float* to) const {
  const int64_t channels = plan_.group_channels, line = channels * plan_.windows.axis[2].kernel;
  if (depth_ == 0) return;
  int64_t channel = k_ % channels;
  Tap tap = tap_at(k_ / channels);
  for (int64_t done = 0; done < depth_; channel = 0) {
    if (channel == 0 && tap.index[2] == 0 && depth_ - done >= line) {
      copy_line(corner, tap, to + done);
      done += line;
      if (done < depth_) advance(tap, plan_.windows.axis[2].kernel);
      continue;
    }
    const float* from = under(corner, tap);
    const int64_t count = std::min(channels - channel, depth_ - done);
    for (int64_t i = 0; i < count; ++i)
      to[done + i] = from == nullptr ? 0.0f : from[(channel + i) * plan_.x_channel];
    done += count;
    if (done < depth_) advance(tap, 1);
  }
}

// The kernel's positions along the last axis from `tap` on: [position][channel] from any strides, zeros in
// the padding.
void ConvRows::copy_line(const Corner& corner, const Tap& tap, float* to) const {
  const WindowAxis* axis = plan_.windows.axis;
  const int64_t channels = plan_.group_channels, step = axis[2].dilation * axis[2].in_stride;
  int64_t begin = 0, end = axis[2].kernel;
  if (!corner.inside) {
    std::fill_n(to, axis[2].kernel * channels, 0.0f);
    const auto outside = [&](int a, int64_t i) {
      return !axis[a].inside(corner.at[a] + tap.at[a] + i * axis[a].dilation);
    };
    if (outside(0, 0) || outside(1, 0)) return;
    while (begin < end && outside(2, begin)) ++begin;
    while (begin < end && outside(2, end - 1)) --end;
  }
  const float* from = x_ + (corner.offset + tap.offset + begin * step);
  to += begin * channels;
  if (lines_) return copy_floats(from, (end - begin) * channels, to);
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t i = 0; i < end - begin; ++i)
      to[i * channels + channel] = from[i * step + channel * plan_.x_channel];
  }
}

}  // namespace aicf
