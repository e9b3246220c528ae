// Sixteen lanes of four bytes each, and their exact dot products with four signed bytes. All paths give the same sums.
#pragma once

#include <cstdint>
#include <cstring>

#include "vec.h"

namespace penstock {

#if HAS_WIDE_VEC

struct Bytes {
  __m512i v;
};
INLINE Bytes load_codes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE Bytes low_halves(Bytes a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
INLINE Bytes high_halves(Bytes a) { return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))}; }
// Adds `value` to the bytes that 64 bits name.
INLINE Bytes add_where(Bytes a, const uint8_t* bits, int8_t value) {
  uint64_t mask;
  std::memcpy(&mask, bits, sizeof mask);
  return {_mm512_mask_add_epi8(a.v, mask, a.v, _mm512_set1_epi8(value))};
}
INLINE Bytes choose(Bytes table, Bytes index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }  // in each 16 bytes
INLINE Ints set_ints(int32_t x) { return {_mm512_set1_epi32(x)}; }
INLINE Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
INLINE Ints times(Ints a, int32_t b) { return {_mm512_mullo_epi32(a.v, _mm512_set1_epi32(b))}; }
INLINE Ints widen(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
INLINE Ints widen(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
// The code of input K of a step, from the lanes that hold it.
template <int BITS, int K>
INLINE Ints code_of(Bytes a) {
  constexpr int kShift = BITS == 4 ? 8 * (K % 4) + K / 4 * 4 : 8 * (K % 4);
  return {_mm512_and_si512(_mm512_srli_epi32(a.v, kShift), _mm512_set1_epi32((1 << BITS) - 1))};
}
// The entries of a table of 16 that indices below 16 choose.
struct Table {
  __m512 v;
  explicit Table(const float* table) : v(_mm512_loadu_ps(table)) {}
  INLINE Vec operator[](Ints index) const { return {_mm512_permutexvar_ps(index.v, v)}; }
};

// Four inputs, in each lane. The loads are written out: GCC would put all of a step's first, and sums in memory for them.
struct Four {
  __m512i v;
};
INLINE Four load_four(const int8_t* x) {
  Four out;
  asm volatile("vpbroadcastd %1, %0" : "=v"(out.v) : "m"(*reinterpret_cast<const int32_t*>(x)));
  return out;
}
// sum + w * x over the four bytes of each lane. With IS_SMALL w is below 64, so that no sum of two products leaves 16 bits.
template <bool HAS_VNNI, bool IS_SMALL>
INLINE void add_dot(Ints& sum, Bytes w, Four x) {
  if constexpr (HAS_VNNI) {
    asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(w.v), "v"(x.v));
  } else if constexpr (IS_SMALL) {
    const __m512i pairs = _mm512_maddubs_epi16(w.v, x.v);
    sum.v = _mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  } else {  // in maddubs a sum of two products would saturate
    const __m512i even = _mm512_and_si512(w.v, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(w.v, 8);
    const __m512i x_even = _mm512_srai_epi16(_mm512_slli_epi16(x.v, 8), 8), x_odd = _mm512_srai_epi16(x.v, 8);
    sum.v = _mm512_add_epi32(sum.v, _mm512_madd_epi16(even, x_even));
    sum.v = _mm512_add_epi32(sum.v, _mm512_madd_epi16(odd, x_odd));
  }
}

// 64-bit lanes of one register, whose low halves are numbers and whose high halves hold anything: a product of two low
// halves takes a lane. Sixteen counters have their even and odd numbers in registers of their own.
struct Longs {
  __m512i v;
};
struct Counters {
  static constexpr int kParts = 2;
  Longs part[kParts];
};
INLINE Longs set_longs(uint32_t b) { return {_mm512_set1_epi64(b)}; }
INLINE Longs multiply(Longs a, uint32_t b) { return {_mm512_mul_epu32(a.v, _mm512_set1_epi64(b))}; }
INLINE Longs high(Longs a) { return {_mm512_srli_epi64(a.v, 32)}; }
INLINE Longs mix(Longs a, uint32_t b) { return {_mm512_xor_si512(a.v, _mm512_set1_epi64(b))}; }
INLINE Longs mix(Longs a, Longs b, uint32_t c) {
  return {_mm512_ternarylogic_epi64(a.v, b.v, _mm512_set1_epi64(c), 0x96)};
}
INLINE Counters count_from(uint32_t first) {
  const __m512i even = _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14));
  return {{{even}, {_mm512_add_epi64(even, _mm512_set1_epi64(1))}}};
}
// 1 - (r + 1/2) / 2^32 of sixteen numbers r, rounded down to 24 bits.
INLINE Vec one_minus_unit(const Counters& r) {
  const __m512i all = _mm512_mask_blend_epi32(0xAAAA, r.part[0].v, _mm512_slli_epi64(r.part[1].v, 32));
  const __m512i upper = _mm512_srli_epi32(_mm512_xor_si512(all, _mm512_set1_epi32(-1)), 8);
  return {_mm512_mul_ps(_mm512_cvtepi32_ps(upper), _mm512_set1_ps(0x1p-24f))};
}

#else

struct Bytes {
  __m256i lo, hi;
};
INLINE Bytes load_codes(const uint8_t* p) {
  const __m256i* const halves = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
INLINE Bytes low_halves(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
INLINE Bytes high_halves(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(a.lo, 4), mask), _mm256_and_si256(_mm256_srli_epi16(a.hi, 4), mask)};
}
INLINE __m256i add_where(__m256i a, const uint8_t* bits, int8_t value) {
  int32_t mask;
  std::memcpy(&mask, bits, sizeof mask);
  const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i found = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(mask), byte), bit);
  return _mm256_add_epi8(a, _mm256_and_si256(_mm256_cmpeq_epi8(found, bit), _mm256_set1_epi8(value)));
}
INLINE Bytes add_where(Bytes a, const uint8_t* bits, int8_t value) {
  return {add_where(a.lo, bits, value), add_where(a.hi, bits + 4, value)};
}
INLINE Bytes choose(Bytes table, Bytes index) {
  return {_mm256_shuffle_epi8(table.lo, index.lo), _mm256_shuffle_epi8(table.hi, index.hi)};
}
INLINE Ints set_ints(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
INLINE Ints operator-(Ints a, Ints b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
INLINE Ints times(Ints a, int32_t b) {
  const __m256i factor = _mm256_set1_epi32(b);
  return {_mm256_mullo_epi32(a.lo, factor), _mm256_mullo_epi32(a.hi, factor)};
}
INLINE Ints widen(const uint8_t* p) {
  const __m128i* const halves = reinterpret_cast<const __m128i*>(p);
  const __m128i bytes = _mm_loadu_si128(halves);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
INLINE Ints widen(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
template <int BITS, int K>
INLINE Ints code_of(Bytes a) {
  constexpr int kShift = BITS == 4 ? 8 * (K % 4) + K / 4 * 4 : 8 * (K % 4);
  const __m256i mask = _mm256_set1_epi32((1 << BITS) - 1);
  return {_mm256_and_si256(_mm256_srli_epi32(a.lo, kShift), mask), _mm256_and_si256(_mm256_srli_epi32(a.hi, kShift), mask)};
}
struct Table {
  __m256 low, high;
  explicit Table(const float* table) : low(_mm256_loadu_ps(table)), high(_mm256_loadu_ps(table + 8)) {}
  INLINE __m256 choose(__m256i index) const {
    const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index), _mm256_permutevar8x32_ps(high, index), is_high);
  }
  INLINE Vec operator[](Ints index) const { return {choose(index.lo), choose(index.hi)}; }
};

struct Four {
  __m256i v;
};
INLINE Four load_four(const int8_t* x) {
  Four out;
  asm("vpbroadcastd %1, %0" : "=x"(out.v) : "m"(*reinterpret_cast<const int32_t*>(x)));
  return out;
}
template <bool HAS_VNNI, bool IS_SMALL>
INLINE void add_dot(__m256i& sum, __m256i w, __m256i x) {
  if constexpr (HAS_VNNI) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
  } else if constexpr (IS_SMALL) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
  } else {
    const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(w, 8);
    const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), x_odd = _mm256_srai_epi16(x, 8);
    sum = _mm256_add_epi32(_mm256_add_epi32(sum, _mm256_madd_epi16(even, x_even)), _mm256_madd_epi16(odd, x_odd));
  }
}
template <bool HAS_VNNI, bool IS_SMALL>
INLINE void add_dot(Ints& sum, Bytes w, Four x) {
  add_dot<HAS_VNNI, IS_SMALL>(sum.lo, w.lo, x.v);
  add_dot<HAS_VNNI, IS_SMALL>(sum.hi, w.hi, x.v);
}

struct Longs {
  __m256i v;
};
struct Counters {
  static constexpr int kParts = 4;
  Longs part[kParts];
};
INLINE Longs set_longs(uint32_t b) { return {_mm256_set1_epi64x(b)}; }
INLINE Longs multiply(Longs a, uint32_t b) { return {_mm256_mul_epu32(a.v, _mm256_set1_epi64x(b))}; }
INLINE Longs high(Longs a) { return {_mm256_srli_epi64(a.v, 32)}; }
INLINE Longs mix(Longs a, uint32_t b) { return {_mm256_xor_si256(a.v, _mm256_set1_epi64x(b))}; }
INLINE Longs mix(Longs a, Longs b, uint32_t c) { return mix(Longs{_mm256_xor_si256(a.v, b.v)}, c); }
INLINE Counters count_from(uint32_t first) {
  const __m256i low = _mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 2, 4, 6));
  const __m256i above = _mm256_add_epi64(low, _mm256_set1_epi64x(8)), one = _mm256_set1_epi64x(1);
  return {{{low}, {_mm256_add_epi64(low, one)}, {above}, {_mm256_add_epi64(above, one)}}};
}
INLINE __m256 one_minus_unit(Longs even, Longs odd) {
  const __m256i all = _mm256_blend_epi32(even.v, _mm256_slli_epi64(odd.v, 32), 0xAA);
  const __m256i upper = _mm256_srli_epi32(_mm256_xor_si256(all, _mm256_set1_epi32(-1)), 8);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(upper), _mm256_set1_ps(0x1p-24f));
}
INLINE Vec one_minus_unit(const Counters& r) {
  return {one_minus_unit(r.part[0], r.part[1]), one_minus_unit(r.part[2], r.part[3])};
}

#endif

// Whether the processor has the instruction that add_dot<true, …> is.
inline bool has_byte_dot_products() {
  __builtin_cpu_init();
#if HAS_WIDE_VEC
  return __builtin_cpu_supports("avx512vnni");
#else
  return __builtin_cpu_supports("avxvnni");
#endif
}

INLINE Vec load_bytes(const uint8_t* p) { return to_floats(widen(p)); }
INLINE Vec load_bytes(const int8_t* p) { return to_floats(widen(p)); }

}  // namespace penstock
