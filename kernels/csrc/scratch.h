// Memory that a thread keeps from one call to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace penstock {

class Scratch {
 public:
  // At least `count` values of T at a 64-byte boundary, with any contents, until the next call.
  template <class T>
  T* get(int64_t count) {
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    if (bytes > size_) {
      memory_.reset();
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
      size_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_ = 0;
};

}  // namespace penstock
