#include <cstring>

#include "abi.h"
#include "rows.h"

namespace penstock {
namespace {

template <class T>
struct Heads {
  const T* data;
  int64_t row_stride;
  int64_t count;
  T* out;
};

struct Angles {
  const float *cos, *sin;
  int64_t half;  // of the rotated dimensions
  bool is_interleaved;
};

INLINE void turn(const Angles& angles, int64_t i, int64_t n, Vec& first, Vec& second) {
  const Vec cos = load(angles.cos + i, n), sin = load(angles.sin + i, n);
  const Vec turned = first * cos - second * sin;
  second = second * cos + first * sin;
  first = turned;
}

template <class T>
void rotate(const T* x, const Angles& angles, T* out) {
  const int64_t half = angles.half;
  for_vectors(half, [&](int64_t i, int64_t n) {
    Vec first = load(x + i, n), second = load(x + half + i, n);
    turn(angles, i, n, first, second);
    store(out + i, first, n);
    store(out + half + i, second, n);
  });
}

template <class T>
void rotate_pairs(const T* x, const Angles& angles, T* out) {
  for_vectors(angles.half, [&](int64_t i, int64_t n) {
    T firsts[kLanes], seconds[kLanes];
    for (int64_t j = 0; j < n; j++) firsts[j] = x[2 * (i + j)], seconds[j] = x[2 * (i + j) + 1];
    Vec first = load(firsts, n), second = load(seconds, n);
    turn(angles, i, n, first, second);
    store(firsts, first, n);
    store(seconds, second, n);
    for (int64_t j = 0; j < n; j++) out[2 * (i + j)] = firsts[j], out[2 * (i + j) + 1] = seconds[j];
  });
}

template <class T>
void rotate_token(const Heads<T>& heads, int64_t token, const Angles& angles, int64_t head_dim) {
  const T* x = heads.data + token * heads.row_stride;
  T* out = heads.out + token * heads.count * head_dim;
  const int64_t rotated = 2 * angles.half, rest = head_dim - rotated;
  for (int64_t head = 0; head < heads.count; head++, x += head_dim, out += head_dim) {
    angles.is_interleaved ? rotate_pairs(x, angles, out) : rotate(x, angles, out);
    if (rest) std::memcpy(out + rotated, x + rotated, static_cast<size_t>(rest) * sizeof(T));
  }
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_rope(int64_t dtype, const void* q, int64_t q_stride, int64_t heads, const void* k,
                              int64_t k_stride, int64_t kv_heads, const float* cos, const float* sin,
                              const int64_t* positions, void* q_out, void* k_out, int64_t tokens, int64_t head_dim,
                              int64_t half, int64_t is_interleaved) {
  using namespace penstock;
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    const Heads<T> queries{static_cast<const T*>(q), q_stride, heads, static_cast<T*>(q_out)};
    const Heads<T> keys{static_cast<const T*>(k), k_stride, kv_heads, static_cast<T*>(k_out)};
    parallel_rows(tokens, (heads + kv_heads) * head_dim, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; token++) {
        const Angles angles{cos + positions[token] * half, sin + positions[token] * half, half,
                            is_interleaved != 0};
        rotate_token(queries, token, angles, head_dim);
        rotate_token(keys, token, angles, head_dim);
      }
    });
  });
}
