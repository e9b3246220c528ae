// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) for the counters
// (token, position, branch, 0) of one row, whose first word r stands for u = (r + 1/2) / 2^32.
#pragma once

#include <cstdint>

#include "bytes.h"

namespace penstock {

namespace philox {

constexpr int kRounds = 10;
constexpr uint32_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
constexpr uint32_t kWeyl[2] = {0x9E3779B9, 0xBB67AE85};

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
    Counters words = count_from(token);
    UNROLL for (int part = 0; part < Counters::kParts; part++) words.part[part] = first_word(words.part[part]);
    return one_minus_unit(words);
  }

 private:
  INLINE Longs first_word(Longs token) const {
    using namespace philox;
    Longs p0 = multiply(token, kMultipliers[0]);
    Longs p1 = multiply(mix(high(p0), keys_[0][1]), kMultipliers[1]);
    Longs c0 = mix(high(p1), second_[0]), c1 = p1, c2 = mix(p0, second_[1]), c3 = set_longs(second_[2]);
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
