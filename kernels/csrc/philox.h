// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) for the counters
// (token, position, branch, 0) of one row, whose first word r stands for u = (r + 1/2) / 2^32.
#pragma once

#include <cstdint>

#include "vec.h"

namespace penstock {

namespace philox {

constexpr int kRounds = 10;
constexpr uint32_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
constexpr uint32_t kWeyl[2] = {0x9E3779B9, 0xBB67AE85};

// Words of sixteen counters in the low halves of 64-bit lanes, which is what a product of 32 bits takes and gives; the
// high halves hold anything. Tokens of even and odd numbers are in registers of their own.
#if defined(__AVX512F__)

struct Words {
  static constexpr int kParts = 2;
  __m512i part[kParts];
};
INLINE __m512i multiply(__m512i a, uint32_t b) { return _mm512_mul_epu32(a, _mm512_set1_epi64(b)); }
INLINE __m512i high(__m512i a) { return _mm512_srli_epi64(a, 32); }
INLINE __m512i mix(__m512i a, uint32_t b) { return _mm512_xor_si512(a, _mm512_set1_epi64(b)); }
INLINE __m512i mix(__m512i a, __m512i b, uint32_t c) {
  return _mm512_ternarylogic_epi64(a, b, _mm512_set1_epi64(c), 0x96);
}

INLINE Words tokens_from(uint32_t token) {
  const __m512i even = _mm512_add_epi64(_mm512_set1_epi64(token), _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14));
  return {even, _mm512_add_epi64(even, _mm512_set1_epi64(1))};
}

// 1 - u, rounded down to 24 bits.
INLINE Vec complement(const Words& words) {
  const __m512i r = _mm512_mask_blend_epi32(0xAAAA, words.part[0], _mm512_slli_epi64(words.part[1], 32));
  const __m512i upper = _mm512_srli_epi32(_mm512_xor_si512(r, _mm512_set1_epi32(-1)), 8);
  return {_mm512_mul_ps(_mm512_cvtepi32_ps(upper), _mm512_set1_ps(0x1p-24f))};
}

#else

struct Words {
  static constexpr int kParts = 4;
  __m256i part[kParts];
};
INLINE __m256i multiply(__m256i a, uint32_t b) { return _mm256_mul_epu32(a, _mm256_set1_epi64x(b)); }
INLINE __m256i high(__m256i a) { return _mm256_srli_epi64(a, 32); }
INLINE __m256i mix(__m256i a, uint32_t b) { return _mm256_xor_si256(a, _mm256_set1_epi64x(b)); }
INLINE __m256i mix(__m256i a, __m256i b, uint32_t c) { return mix(_mm256_xor_si256(a, b), c); }

INLINE Words tokens_from(uint32_t token) {
  const __m256i low = _mm256_add_epi64(_mm256_set1_epi64x(token), _mm256_setr_epi64x(0, 2, 4, 6));
  const __m256i above = _mm256_add_epi64(low, _mm256_set1_epi64x(8)), one = _mm256_set1_epi64x(1);
  return {low, _mm256_add_epi64(low, one), above, _mm256_add_epi64(above, one)};
}

INLINE __m256 complement(__m256i even, __m256i odd) {
  const __m256i r = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  const __m256i upper = _mm256_srli_epi32(_mm256_xor_si256(r, _mm256_set1_epi32(-1)), 8);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(upper), _mm256_set1_ps(0x1p-24f));
}
INLINE Vec complement(const Words& words) {
  return {complement(words.part[0], words.part[1]), complement(words.part[2], words.part[3])};
}

#endif

}  // namespace philox

// The noise of one row.
class Philox {
 public:
  Philox(uint64_t seed, uint32_t position, uint32_t branch) : position_(position), branch_(branch) {
    uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    for (auto& keys : keys_) {
      keys[0] = key[0], keys[1] = key[1];
      key[0] += philox::kWeyl[0], key[1] += philox::kWeyl[1];
    }
    // The first round of position and branch is the same for all tokens, and so is what the second makes of it.
    const uint64_t of_branch = uint64_t{branch} * philox::kMultipliers[1];
    const uint32_t word = static_cast<uint32_t>(of_branch >> 32) ^ position ^ keys_[0][0];
    const uint64_t product = uint64_t{word} * philox::kMultipliers[0];
    second_[0] = static_cast<uint32_t>(of_branch) ^ keys_[1][0];
    second_[1] = static_cast<uint32_t>(product >> 32) ^ keys_[1][1];
    second_[2] = static_cast<uint32_t>(product);
  }

  // r of one token.
  uint32_t word(uint32_t token) const {
    uint32_t c[4] = {token, position_, branch_, 0};
    for (const auto& key : keys_) {
      const uint64_t p0 = uint64_t{c[0]} * philox::kMultipliers[0], p1 = uint64_t{c[2]} * philox::kMultipliers[1];
      c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], c[1] = static_cast<uint32_t>(p1);
      c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], c[3] = static_cast<uint32_t>(p0);
    }
    return c[0];
  }

  // 1 - u of sixteen tokens from `token` on, less at most 2^-24.
  INLINE Vec complement(uint32_t token) const {
    philox::Words words = philox::tokens_from(token);
    UNROLL for (int part = 0; part < philox::Words::kParts; part++) words.part[part] = first_word(words.part[part]);
    return philox::complement(words);
  }

 private:
  template <class Lanes>
  INLINE Lanes first_word(Lanes token) const {
    using namespace philox;
    Lanes p0 = multiply(token, kMultipliers[0]);
    Lanes p1 = multiply(mix(high(p0), keys_[0][1]), kMultipliers[1]);
    Lanes c0 = mix(high(p1), second_[0]), c1 = p1, c2 = mix(p0, second_[1]), c3 = mix(c2 ^ c2, second_[2]);
    UNROLL for (int round = 2; round < kRounds; round++) {
      p0 = multiply(c0, kMultipliers[0]), p1 = multiply(c2, kMultipliers[1]);
      c0 = mix(high(p1), c1, keys_[round][0]), c1 = p1;
      c2 = mix(high(p0), c3, keys_[round][1]), c3 = p0;
    }
    return c0;
  }

  uint32_t position_, branch_;
  uint32_t keys_[philox::kRounds][2];
  uint32_t second_[3];  // what the words of the second round are mixed with
};

}  // namespace penstock
