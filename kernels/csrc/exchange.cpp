// Bytes between the processes of one machine, through memory that they share.
//
// The region holds a bell for each rank and, for each ordered pair of ranks, a pipe: a ring of bytes with one writer and
// one reader. Whoever moves bytes rings the bell of the rank at the other end, and a rank that finds nothing to move
// spins for a moment and then sleeps on its own bell.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>

#include "abi.h"

namespace penstock {
namespace {

constexpr uint32_t kCapacity = 1 << 18;  // bytes of a pipe; divides 2^32, so that the counts may wrap around
constexpr int kSpins = 1000;             // some tens of microseconds

struct alignas(64) Bell {
  std::atomic<uint32_t> rung{0};
  std::atomic<uint32_t> is_asleep{0};
};

struct Pipe {
  alignas(64) std::atomic<uint32_t> written{0};
  alignas(64) std::atomic<uint32_t> read{0};
  alignas(64) char data[kCapacity];
};

// What is left to be done with one peer. The caller lays these out as int64 [world_size, 4].
struct Transfer {
  char* send;
  int64_t send_left;
  char* receive;
  int64_t receive_left;
};
static_assert(sizeof(Transfer) == 4 * sizeof(int64_t));

class Region {
 public:
  Region(void* base, int64_t rank, int64_t size)
      : bells_(static_cast<Bell*>(base)), pipes_(reinterpret_cast<Pipe*>(bells_ + size)), rank_(rank), size_(size) {}

  static int64_t bytes(int64_t size) { return size * static_cast<int64_t>(sizeof(Bell) + size * sizeof(Pipe)); }

  // Moves what can be moved without waiting; false if nothing could.
  bool advance(Transfer* transfers) {
    bool moved = false;
    for (int64_t peer = 0; peer < size_; peer++) {
      Transfer& transfer = transfers[peer];
      const bool has_sent = transfer.send_left && write(pipe(rank_, peer), transfer);
      const bool has_received = transfer.receive_left && read(pipe(peer, rank_), transfer);
      if (has_sent || has_received) ring(bells_[peer]);
      moved |= has_sent || has_received;
    }
    return moved;
  }

  bool is_done(const Transfer* transfers) const {
    return std::all_of(transfers, transfers + size_, [](const Transfer& t) { return !t.send_left && !t.receive_left; });
  }

  // Returns when the bell was rung since it was `heard`, or after so many microseconds.
  void wait(uint32_t heard, int64_t microseconds) {
    Bell& bell = bells_[rank_];
    for (int spin = 0; spin < kSpins; spin++) {
      if (bell.rung.load(std::memory_order_acquire) != heard) return;
      penstock::pause();
    }
    bell.is_asleep.store(1);
    const timespec limit{microseconds / 1000000, microseconds % 1000000 * 1000};
    if (bell.rung.load() == heard) syscall(SYS_futex, &bell.rung, FUTEX_WAIT, heard, &limit, nullptr, 0);
    bell.is_asleep.store(0);
  }

  uint32_t heard() const { return bells_[rank_].rung.load(std::memory_order_acquire); }

 private:
  Pipe& pipe(int64_t from, int64_t to) { return pipes_[from * size_ + to]; }

  static bool write(Pipe& pipe, Transfer& transfer) {
    const uint32_t at = pipe.written.load(std::memory_order_relaxed);
    const uint32_t room = kCapacity - (at - pipe.read.load(std::memory_order_acquire));
    const auto count = static_cast<uint32_t>(std::min<int64_t>(transfer.send_left, room));
    const uint32_t begin = at % kCapacity, before_wrap = std::min(count, kCapacity - begin);
    std::memcpy(pipe.data + begin, transfer.send, before_wrap);
    std::memcpy(pipe.data, transfer.send + before_wrap, count - before_wrap);
    transfer.send += count, transfer.send_left -= count;
    pipe.written.store(at + count, std::memory_order_release);
    return count != 0;
  }

  static bool read(Pipe& pipe, Transfer& transfer) {
    const uint32_t at = pipe.read.load(std::memory_order_relaxed);
    const uint32_t there = pipe.written.load(std::memory_order_acquire) - at;
    const auto count = static_cast<uint32_t>(std::min<int64_t>(transfer.receive_left, there));
    const uint32_t begin = at % kCapacity, before_wrap = std::min(count, kCapacity - begin);
    std::memcpy(transfer.receive, pipe.data + begin, before_wrap);
    std::memcpy(transfer.receive + before_wrap, pipe.data, count - before_wrap);
    transfer.receive += count, transfer.receive_left -= count;
    pipe.read.store(at + count, std::memory_order_release);
    return count != 0;
  }

  static void ring(Bell& bell) {
    bell.rung.fetch_add(1);
    if (bell.is_asleep.load()) syscall(SYS_futex, &bell.rung, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }

  Bell* bells_;
  Pipe* pipes_;
  int64_t rank_, size_;
};

}  // namespace
}  // namespace penstock

extern "C" void penstock_exchange_bytes(int64_t world_size, int64_t* bytes) {
  *bytes = penstock::Region::bytes(world_size);
}

extern "C" void penstock_exchange(void* base, int64_t rank, int64_t world_size, int64_t* transfers, int64_t patience,
                                  int64_t* is_done) {
  penstock::Region region(base, rank, world_size);
  auto* const all = reinterpret_cast<penstock::Transfer*>(transfers);
  for (bool has_waited = false; !(*is_done = region.is_done(all));) {
    const uint32_t heard = region.heard();
    if (region.advance(all)) {
      has_waited = false;
    } else if (has_waited) {
      return;
    } else {
      region.wait(heard, patience);
      has_waited = region.heard() == heard;
    }
  }
}
