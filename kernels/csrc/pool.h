// One pool of threads for all ops of a process.
#pragma once

#include <cstdint>

#include "vec.h"

namespace penstock {

// While this lives, denormals are zero on this thread, in arithmetic and when read.
class FlushDenormals {
 public:
  FlushDenormals() { set_arithmetic_modes(without_denormals(saved_)); }
  ~FlushDenormals() { set_arithmetic_modes(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  const unsigned saved_ = arithmetic_modes();
};

using Work = void (*)(void* context, int64_t index);

int num_threads();

// Calls work(context, i) once for each i in [0, n), in no order, on the calling thread and the pool's others. Small i are
// taken first. Denormals are zero in each of them, in arithmetic and when read. A call from a second thread while the
// pool is busy runs on that thread alone.
void run(int64_t n, Work work, void* context);

template <class F>
void parallel(int64_t n, F&& f) {
  run(n, [](void* context, int64_t index) { (*static_cast<F*>(context))(index); }, &f);
}

}  // namespace penstock
