#include "pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "abi.h"

namespace penstock {
namespace {

// Some 20 microseconds: longer than the Python between two ops of a step, shorter than the pause between two steps, so
// threads stay awake within a step and leave the cores to others outside. Where there is more Python, it is to be more.
constexpr int64_t kSpins = 600;
std::atomic<int64_t> spins{kSpins};

void pin(pthread_t thread, int64_t cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<size_t>(cpu), &only);
  pthread_setaffinity_np(thread, sizeof only, &only);  // where it is refused, threads go where the system puts them
}

uint32_t wait_while(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int64_t left = spins.load(std::memory_order_relaxed); left > 0; left--) {
    if (const uint32_t now = value.load(std::memory_order_acquire); now != old) return now;
    penstock::pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

// A thread joins a round if it comes while there is work left. The caller waits for those that joined, never for one
// that sleeps or that the system runs something else on.
class Pool {
 public:
  Pool(int size, const int64_t* cpus) {
    for (int i = 1; i < size; i++) {
      threads_.emplace_back([this] { serve(); });
      if (cpus) pin(threads_.back().native_handle(), cpus[i]);
    }
  }
  ~Pool() {
    open(0, nullptr, nullptr);
    for (auto& thread : threads_) thread.join();
  }
  int size() const { return static_cast<int>(threads_.size()) + 1; }

  void run(int64_t n, Work work, void* context) {
    open(n, work, context);
    take();
    uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    while (state & kActive) state = wait_while(state_, state);
  }

 private:
  static constexpr uint32_t kActive = 0xFFF, kOpen = 0x1000, kRound = 0x2000;  // bits of state_: a count, a flag, a count

  void open(int64_t n, Work work, void* context) {
    n_ = n, work_ = work, context_ = context;
    next_.store(0, std::memory_order_relaxed);
    state_.store(((state_.load(std::memory_order_relaxed) & ~kActive) + kRound) | kOpen, std::memory_order_release);
    state_.notify_all();
  }
  void take() {
    for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) work_(context_, i);
  }
  void serve() {
    const FlushDenormals flush;
    uint32_t done = 0;  // the round that this thread has taken part in
    for (uint32_t state = state_.load(std::memory_order_acquire);;) {
      if (!(state & kOpen) || (state & ~(kRound - 1)) == done) {
        state = wait_while(state_, state);
      } else if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) {
        if (!work_) return;
        done = state & ~(kRound - 1);
        take();
        state = state_.fetch_sub(1, std::memory_order_acq_rel) - 1;
        if (!(state & (kOpen | kActive))) state_.notify_all();
      }
    }
  }

  std::vector<std::thread> threads_;
  alignas(64) std::atomic<uint32_t> state_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) int64_t n_ = 0;
  Work work_ = nullptr;
  void* context_ = nullptr;
};

std::mutex mutex;
std::unique_ptr<Pool> pool;

}  // namespace

int num_threads() { return pool ? pool->size() : 1; }

void run(int64_t n, Work work, void* context) {
  const FlushDenormals flush;
  std::unique_lock lock(mutex, std::try_to_lock);
  if (lock && pool && n > 1) {
    pool->run(n, work, context);
  } else {
    for (int64_t i = 0; i < n; i++) work(context, i);
  }
}

}  // namespace penstock

extern "C" void penstock_set_wait(int64_t factor) {
  penstock::spins.store(penstock::kSpins * factor, std::memory_order_relaxed);
}

extern "C" void penstock_set_threads(int64_t count, const int64_t* cpus) {
  const std::lock_guard lock(penstock::mutex);
  penstock::pool.reset();
  if (count > 1) penstock::pool = std::make_unique<penstock::Pool>(static_cast<int>(count), cpus);
  if (cpus) penstock::pin(pthread_self(), cpus[0]);
}
