// Sixteen float32 lanes: one AVX-512 register or two of AVX2, with the same results from either.
//
// Everything that is summed over lanes is summed by the tree of sum(), so no order is left to the compiler. Multiply-adds
// are fused where fma() is written and nowhere else (-ffp-contract=off).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define UNROLL _Pragma("GCC unroll 16")  // GCC keeps arrays of registers in memory if a loop over them is a loop
#define INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define HAS_WIDE_VEC 1  // sixteen lanes are one register of 32
#else
#define HAS_WIDE_VEC 0  // sixteen lanes are two registers of 16
#endif
#if defined(__AVX512BF16__)
#define HAS_DOT_PAIRS 1  // the processor multiplies pairs of bfloat16
#else
#define HAS_DOT_PAIRS 0
#endif

namespace penstock {

using f32 = float;
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

constexpr int kLanes = 16;

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
inline float to_float(f16 x) { return _cvtsh_ss(x.bits); }
inline f16 to_f16(float x) { return {_cvtss_sh(x, 0)}; }  // to the nearest, a half to the even one

INLINE void prefetch_near(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
INLINE void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
template <class T>
INLINE void prefetch_in_order(const T& x) {  // where it is written, among loads and arithmetic
  asm volatile("prefetcht0 %0" : : "m"(x));
}

inline void pause() { _mm_pause(); }  // in a loop that waits for another thread

// How this thread computes, and the same with denormals that are zero, in arithmetic and when read.
inline unsigned arithmetic_modes() { return _mm_getcsr(); }
inline void set_arithmetic_modes(unsigned modes) { _mm_setcsr(modes); }
inline unsigned without_denormals(unsigned modes) { return modes | 0x8040; }

#if HAS_WIDE_VEC

struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 m;
};

INLINE Vec zero() { return {_mm512_setzero_ps()}; }
INLINE Vec set(float x) { return {_mm512_set1_ps(x)}; }
INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a * b + c
INLINE Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }  // b if either is NaN
INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }  // b if either is NaN
INLINE Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
INLINE Vec scale2(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }  // a * 2^n for whole n from -252 to 127

INLINE Mask first(int n) { return {static_cast<__mmask16>(n >= 16 ? 0xFFFF : (1u << (n < 0 ? 0 : n)) - 1)}; }
INLINE Mask lanes(uint32_t bits) { return {static_cast<__mmask16>(bits)}; }  // lane i is bit i
INLINE Mask less(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
INLINE Mask less_equal(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
INLINE Mask equal(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
INLINE Mask is_nan(Vec a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
INLINE Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.m & b.m)}; }
INLINE Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.m | b.m)}; }
INLINE uint32_t bits(Mask m) { return m.m; }  // bit i is lane i
INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm512_mask_blend_ps(m.m, b.v, a.v)}; }  // m ? a : b

INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE Vec load(const bf16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
INLINE Vec load(const f16* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }

INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
INLINE void store_whole(int32_t* p, Vec a) { _mm512_storeu_si512(p, _mm512_cvttps_epi32(a.v)); }  // towards 0
INLINE void store(int8_t* p, Vec a) {  // to the nearest, a half to the even one
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
INLINE void store(f16* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void store(bf16* p, Vec a) {
#if HAS_DOT_PAIRS
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(a.v));
#else
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
#endif
}

// The pairs (low, high) of sixteen 32-bit words, widened: what a packed bfloat16 weight holds of two k.
INLINE void load_pairs(const bf16* p, Vec& low, Vec& high) {
  const __m512i words = _mm512_loadu_si512(p);
  low.v = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  high.v = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

INLINE void load_pairs(const int8_t* p, Vec& low, Vec& high) {
  const __m512i words = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  low.v = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 24), 24));
  high.v = _mm512_cvtepi32_ps(_mm512_srai_epi32(words, 8));
}

// Sixteen pairs of 16-bit integers, and sums of their products.
struct Words {
  __m512i v;
};
struct Ints {
  __m512i v;
};
INLINE Words load_words(const int8_t* p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
INLINE Words set_words(int32_t pair) { return {_mm512_set1_epi32(pair)}; }
INLINE Ints add_products(Ints sum, Words a, Words b) { return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(a.v, b.v))}; }
INLINE Vec to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
INLINE void store(int16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a.v)));
}

INLINE float sum(Vec a) {  // ((0+8)+(4+12))+… by halves: lane i meets i+8, then i+4, i+2, i+1
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
INLINE float largest(Vec a) { return _mm512_reduce_max_ps(a.v); }

#if HAS_DOT_PAIRS
// Sixteen pairs of bfloat16, and sums of their products.
struct Pairs {
  __m512i v;
};
INLINE Pairs load_pairs(const bf16* p) { return {_mm512_loadu_si512(p)}; }
INLINE void store(bf16* p, Pairs a) { _mm512_storeu_si512(p, a.v); }
INLINE Pairs set_pairs(int32_t pair) { return {_mm512_set1_epi32(pair)}; }
INLINE Pairs round_pairs(Vec first, Vec second) { return {(__m512i)_mm512_cvtne2ps_pbh(second.v, first.v)}; }
INLINE Vec dot_pairs(Vec sum, Pairs x, Pairs y) { return {_mm512_dpbf16_ps(sum.v, (__m512bh)x.v, (__m512bh)y.v)}; }
#endif

#else

struct Vec {
  __m256 lo, hi;
};
struct Mask {
  __m256 lo, hi;
};

INLINE Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE Vec set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
INLINE Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
INLINE Vec round(Vec a) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, mode), _mm256_round_ps(a.hi, mode)};
}
INLINE __m256 scale2(__m256 a, __m256 n) {
  // In two halves, so that neither power leaves the range of the exponent.
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
  const __m256i bias = _mm256_set1_epi32(127);
  a = _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
INLINE Vec scale2(Vec a, Vec n) { return {scale2(a.lo, n.lo), scale2(a.hi, n.hi)}; }

INLINE Mask first(int n) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), count = _mm256_set1_epi32(n);
  const __m256i above = _mm256_add_epi32(lanes, _mm256_set1_epi32(8));
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, lanes)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, above))};
}
INLINE __m256 eight_lanes(uint32_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i found = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(found, lane));
}
INLINE Mask lanes(uint32_t bits) { return {eight_lanes(bits), eight_lanes(bits >> 8)}; }
INLINE Mask less(Vec a, Vec b) { return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)}; }
INLINE Mask less_equal(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LE_OQ)};
}
INLINE Mask equal(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
INLINE Mask is_nan(Vec a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
INLINE Mask operator&(Mask a, Mask b) { return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)}; }
INLINE Mask operator|(Mask a, Mask b) { return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)}; }
INLINE uint32_t bits(Mask m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo)) | static_cast<uint32_t>(_mm256_movemask_ps(m.hi)) << 8;
}
INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)}; }

INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE __m256 widen(const bf16* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
INLINE __m256 widen(const f16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
INLINE Vec load(const bf16* p) { return {widen(p), widen(p + 8)}; }
INLINE Vec load(const f16* p) { return {widen(p), widen(p + 8)}; }

INLINE void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
INLINE void store_whole(int32_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_cvttps_epi32(a.lo));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), _mm256_cvttps_epi32(a.hi));
}
INLINE void store(int8_t* p, Vec a) {
  const __m256i mixed = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
  const __m256i words = _mm256_permute4x64_epi64(mixed, 0xD8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
INLINE void store(f16* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
INLINE __m256i rounded_bits(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
  const __m256 out = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
  return _mm256_srli_epi32(_mm256_castps_si256(out), 16);
}
INLINE void store(bf16* p, Vec a) {
  const __m256i mixed = _mm256_packus_epi32(rounded_bits(a.lo), rounded_bits(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(mixed, 0xD8));
}
INLINE void load_pairs(const bf16* p, Vec& low, Vec& high) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
  low = {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
  high = {_mm256_castsi256_ps(_mm256_and_si256(a, mask)), _mm256_castsi256_ps(_mm256_and_si256(b, mask))};
}

// The high half of load_pairs() alone, without a register for a mask.
INLINE Vec load_high(const bf16* p) {
  const auto high = [](const bf16* words) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(both, 16), 16));
  };
  return {high(p), high(p + 16)};
}

INLINE void load_pairs(const int8_t* p, Vec& low, Vec& high) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i a = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(bytes));
  const __m256i b = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(bytes, 1));
  low.lo = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(a, 24), 24));
  low.hi = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(b, 24), 24));
  high = {_mm256_cvtepi32_ps(_mm256_srai_epi32(a, 8)), _mm256_cvtepi32_ps(_mm256_srai_epi32(b, 8))};
}

struct Words {
  __m256i lo, hi;
};
struct Ints {
  __m256i lo, hi;
};
INLINE Words load_words(const int8_t* p) {
  const __m128i* const halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(halves)), _mm256_cvtepi8_epi16(_mm_loadu_si128(halves + 1))};
}
INLINE Words set_words(int32_t pair) { return {_mm256_set1_epi32(pair), _mm256_set1_epi32(pair)}; }
INLINE Ints add_products(Ints sum, Words a, Words b) {
  return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(a.lo, b.lo)), _mm256_add_epi32(sum.hi, _mm256_madd_epi16(a.hi, b.hi))};
}
INLINE Vec to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
INLINE void store(int16_t* p, Vec a) {
  const __m256i mixed = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(mixed, 0xD8));
}

INLINE float sum(Vec a) {
  const __m256 half = _mm256_add_ps(a.lo, a.hi);
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
INLINE float largest(Vec a) {
  const __m256 half = _mm256_max_ps(a.lo, a.hi);
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

#endif

// The first n ≤ 16 values; the lanes behind them are 0 when loaded and are not written when stored.
template <class T>
INLINE Vec load(const T* p, int64_t n) {
  if (n >= kLanes) return load(p);
  alignas(64) T padded[kLanes] = {};
  std::memcpy(padded, p, static_cast<size_t>(n) * sizeof(T));
  return load(padded);
}
template <class T>
INLINE void store(T* p, Vec a, int64_t n) {
  if (n >= kLanes) return store(p, a);
  alignas(64) T padded[kLanes];
  store(padded, a);
  std::memcpy(p, padded, static_cast<size_t>(n) * sizeof(T));
}

// 2^(n + f) for whole n from -252 to 127 and f in [-1/2, 1/2], exactly 2^n for f = 0.
INLINE Vec exp2_of_parts(Vec n, Vec f) {
  Vec y = set(0x1.5bba14p-10f);  // minimax, relative error 1.1e-7
  y = fma(y, f, set(0x1.3cea88p-7f));
  y = fma(y, f, set(0x1.c6b752p-5f));
  y = fma(y, f, set(0x1.ebf9bcp-3f));
  y = fma(y, f, set(0x1.62e42ap-1f));
  y = fma(y, f, set(1.f));
  return scale2(y, n);
}

// 2^x for x from -200 to 127, exactly 1 at 0 and exactly 0 for any x up to -200. NaN stays NaN.
INLINE Vec exp2(Vec x) {
  x = max(set(-200.f), x);
  const Vec n = round(x);
  return exp2_of_parts(n, x - n);
}

// 2^(x * (high + low)) for a small low and products from -252 to 127, as exact as exp2(): a product is not rounded
// before its whole part is off.
INLINE Vec exp2(Vec x, Vec high, Vec low) {
  const Vec n = round(x * high);
  return exp2_of_parts(n, fma(x, low, fma(x, high, zero() - n)));
}

}  // namespace penstock
