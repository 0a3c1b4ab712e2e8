// Runs a step: the program's operators one after the other, their chunks on whichever thread is free.
//
// An operator is over when its chunks are done, not when every thread has come by: a thread whose
// core somebody else uses holds nobody up, and one thread alone makes full progress.
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "dots.h"

namespace headrace {

enum Kind { NORM, PRODUCT, ROTATE, ATTENTION, QUANTISE, GATE };

constexpr int TOKENS_A_CHUNK = 4;
constexpr int SPINS = 2000;  // tens of microseconds: about the longest operator of a decoding step

static int chunks(const Op& op, const Step& step) {
  if (op.kind == PRODUCT) return product_chunks(op, step);
  if (op.kind == ATTENTION) return attention_chunks(op, step);
  const int rows = op.rows ? step.logits : step.tokens;
  return (rows + TOKENS_A_CHUNK - 1) / TOKENS_A_CHUNK;
}

static void run_chunk(const Op& op, const Step& step, int chunk, int thread) {
  if (op.kind == PRODUCT) return product(op, step, chunk);
  if (op.kind == ATTENTION)
    return attention(op, step, chunk, step.scores + thread * step.score_room);
  const int rows = op.rows ? step.logits : step.tokens, first = chunk * TOKENS_A_CHUNK;
  for (int row = first; row < first + TOKENS_A_CHUNK && row < rows; row++) {
    switch (op.kind) {
      case NORM: norm(op, step, row); break;
      case ROTATE: rotate_and_store(op, step, row); break;
      case QUANTISE: quantise(op, step, row); break;
      case GATE: gate(op, step, row); break;
    }
  }
}

static inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

struct alignas(64) Progress {  // a cache line each
  std::atomic<int> next{0}, done{0};
  int total = 0;
};

// Owns all that a late thread may still look at; ops and buffers only belong to whoever has a chunk.
struct Job {
  const Op* ops;
  Step step;
  int limit;  // threads
  std::atomic<int> seats{1};  // the caller has seat 0, or it could be shut out and return too early
  std::vector<Progress> progress;

  Job(const Op* ops, int count, const Step& step, int limit)
      : ops(ops), step(step), limit(limit), progress(count) {
    for (int i = 0; i < count; i++) progress[i].total = chunks(ops[i], this->step);
  }

  void work(int seat) {
    if (seat >= limit) return;
    for (size_t i = 0; i < progress.size(); i++) {
      Progress& p = progress[i];
      for (int chunk; (chunk = p.next.fetch_add(1, std::memory_order_relaxed)) < p.total;) {
        run_chunk(ops[i], step, chunk, seat);
        p.done.fetch_add(1, std::memory_order_release);
      }
      for (int spins = 0; p.done.load(std::memory_order_acquire) < p.total; spins++)
        spins < SPINS ? pause() : (void)sched_yield();
    }
  }
};

// Threads that sleep between steps: an idle engine costs nothing.
class Pool {
 public:
  void run(std::shared_ptr<Job> job) {
    const std::lock_guard<std::mutex> one_step(running_);
    {
      const std::lock_guard<std::mutex> guard(lock_);
      while (threads_ < job->limit - 1) {
        std::thread(&Pool::loop, this).detach();
        threads_++;
      }
      current_ = job;
      number_++;
    }
    wake_.notify_all();
    job->work(0);
  }

 private:
  void loop() {
    for (uint64_t seen = 0;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock<std::mutex> guard(lock_);
        wake_.wait(guard, [&] { return number_ != seen; });
        seen = number_;
        job = current_;
      }
      job->work(job->seats.fetch_add(1));
    }
  }

  std::mutex running_, lock_;
  std::condition_variable wake_;
  std::shared_ptr<Job> current_;
  uint64_t number_ = 0;
  int threads_ = 0;
};

// Never destroyed: its threads live as long as the process. A fork starts without threads, so anew.
static Pool& pool() {
  static std::mutex lock;
  static Pool* made = nullptr;
  static pid_t owner = 0;
  const std::lock_guard<std::mutex> guard(lock);
  if (owner != getpid()) {
    made = new Pool;
    owner = getpid();
  }
  return *made;
}

}  // namespace headrace

using namespace headrace;

extern "C" {

// Runs `count` operators on a step. 0, or 1 where there was no memory or no thread to be had.
int headrace_run(const Op* ops, int count, const Step* step, int threads) {
  try {
    pool().run(std::make_shared<Job>(ops, count, *step, threads));
  } catch (const std::exception&) {
    return 1;
  }
  return 0;
}

const char* headrace_dots() { return HEADRACE_DOTS; }

// Bytes of an Op and of a Step, and rows in a tile of quantised activations.
int headrace_sizes(int which) {
  return which == 0 ? (int)sizeof(Op) : which == 1 ? (int)sizeof(Step) : ROWS;
}
}
