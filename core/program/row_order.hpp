// The result of row copies. Compiled by g++ and by NVRTC.
#pragma once
#include "base/pattern.hpp"

/// Rows of one length, `pitch` apart, `in_plane` of them a plane; planes are `plane_pitch` apart.
struct linkscope_row_layout {
  unsigned long long pitch, in_plane, plane_pitch;
};

/// A copy of `count` rows of `row` bytes to slices of `slice_bytes`, from slices elsewhere that hold the pattern
/// `seed`. Memory between and behind the rows is `untouched`. All are multiples of 8 bytes.
struct linkscope_row_copy {
  unsigned long long slice_bytes, row, count;
  linkscope_row_layout to, from;
  unsigned long long from_offset, from_stride, from_slices, seed, untouched;
};

/// The word at byte `at` of the slices.
LINKSCOPE_BOTH unsigned long long linkscope_row_word(const linkscope_row_copy& copy, unsigned long long at) {
  const unsigned long long slice = at / copy.slice_bytes, within = at % copy.slice_bytes;
  const unsigned long long plane = within / copy.to.plane_pitch,
                           in_plane = within % copy.to.plane_pitch / copy.to.pitch;
  const unsigned long long row = plane * copy.to.in_plane + in_plane,
                           column = within % copy.to.plane_pitch % copy.to.pitch;
  if (in_plane >= copy.to.in_plane || row >= copy.count || column >= copy.row) return copy.untouched;
  const unsigned long long from = copy.from_offset + slice % copy.from_slices * copy.from_stride +
                                  row / copy.from.in_plane * copy.from.plane_pitch +
                                  row % copy.from.in_plane * copy.from.pitch + column;
  return linkscope_pattern_word(copy.seed, from / 8);
}
