// Runs a step: one parallel region, the program's operators one after the other, a barrier behind
// each. Threads take chunks as they get free, so a core that somebody else uses holds nobody up.
#include <atomic>
#include <cstdlib>
#if defined(_OPENMP)
#include <omp.h>
#endif
#include "dots.h"

namespace headrace {

enum Kind { NORM, PRODUCT, ROTATE, ATTENTION, QUANTISE, GATE };

constexpr int TOKENS_A_CHUNK = 4;

int chunks(const Op& op, const Step& step) {
  if (op.kind == PRODUCT) return product_chunks(op, step);
  if (op.kind == ATTENTION) return attention_chunks(op, step);
  const int rows = op.rows ? step.logits : step.tokens;
  return (rows + TOKENS_A_CHUNK - 1) / TOKENS_A_CHUNK;
}

void run_chunk(const Op& op, const Step& step, int chunk, int thread) {
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

}  // namespace headrace

using namespace headrace;

extern "C" {

// Runs `count` operators on a step. 0, or 1 where there was no memory for the counters.
int headrace_run(const Op* ops, int count, const Step* step, int threads) {
  auto* next = (std::atomic<int>*)calloc(count, sizeof(std::atomic<int>));
  if (!next) return 1;
#pragma omp parallel num_threads(threads)
  {
#if defined(_OPENMP)
    const int thread = omp_get_thread_num();
#else
    const int thread = 0;
#endif
    for (int i = 0; i < count; i++) {
      const int total = chunks(ops[i], *step);
      for (int chunk; (chunk = next[i].fetch_add(1, std::memory_order_relaxed)) < total;)
        run_chunk(ops[i], *step, chunk, thread);
#pragma omp barrier
    }
  }
  free(next);
  return 0;
}

const char* headrace_dots() { return HEADRACE_DOTS; }

int headrace_sizes(int which) { return which ? (int)sizeof(Step) : (int)sizeof(Op); }
}
