// Attention over paged keys and values, without gathering them.
//
// A query's scores are sums over the head's dimensions in order; its softmax and its mix of values
// go over positions in order, from 0. So its bits depend on its own sequence alone: not on how the
// prompt was cut into chunks, on which blocks hold it, nor on which queries share a tile with it.
#include "step.h"

namespace headrace {

#if defined(__AVX512F__)
constexpr int TILE = 12;  // query rows at once: registers for that many sums, a key, a broadcast
#else
constexpr int TILE = 6;
#endif

static int tokens_a_tile(const Step& step) {
  const int group = step.heads / step.kv_heads;
  return group >= TILE ? 1 : TILE / group;
}

static int tiles(const Step& step, int row) {
  const int queries = step.bounds[row + 1] - step.bounds[row], tile = tokens_a_tile(step);
  return (queries + tile - 1) / tile;
}

int attention_chunks(const Op&, const Step& step) {
  int count = 0;
  for (int r = 0; r < step.rows; r++) count += tiles(step, r);
  return count * step.kv_heads;
}

struct Queries {
  const float* q[TILE];   // [dim], already scaled
  float* out[TILE];       // [dim]
  float* scores[TILE];    // [positions, rounded up to 16]
  int visible[TILE];      // positions that the query sees: 0 up to this
  float share[TILE];      // one over the sum of its weights
};

inline void prefetch(const half* p, int count) {
  for (int i = 0; i < count; i += 32) __builtin_prefetch(p + i);  // 64 bytes
}

// Blocks lie anywhere, so the next one's keys and this one's values are asked for ahead.
template <int R>
static void score(const Queries& t, const half* keys, const half* values, int64_t block_room,
                  const int32_t* table, int count, int size, int dim) {
  for (int at = 0; at < count; at += LANES) {
    if (at % size == 0) {
      if (at + size < count) prefetch(keys + table[at / size + 1] * block_room, size * dim);
      prefetch(values + table[at / size] * block_room, size * dim);
    }
    const half* k = keys + table[at / size] * block_room + at % size;
    Vec s[R];
    for (int r = 0; r < R; r++) s[r] = zero();
    for (int d = 0; d < dim; d++) {
      const Vec key = load_half(k + (int64_t)d * size);
      for (int r = 0; r < R; r++) s[r] = fma(key, all(t.q[r][d]), s[r]);
    }
    for (int r = 0; r < R; r++) store(t.scores[r] + at, s[r]);
  }
}

// Scores -> weights, in place; zero from `visible` up to `count`.
static float soften(float* s, int visible, int count) {
  const int whole = (count + LANES - 1) / LANES * LANES;
  for (int i = visible; i < whole; i++) s[i] = -INFINITY;
  Vec most = all(-INFINITY);
  for (int i = 0; i < visible; i += LANES) most = max(load(s + i), most);
  const Vec top = all(largest(most));
  Vec total = zero();
  for (int i = 0; i < visible; i += LANES) {
    store(s + i, exp(load(s + i) - top));
    for (int j = visible; j < i + LANES; j++) s[j] = 0.f;
    total = total + load(s + i);
  }
  for (int i = visible; i < whole; i++) s[i] = 0.f;
  return sum(total);
}

template <int R>
static void mix(const Queries& t, const half* values, int64_t block_room, const int32_t* table,
                int count, int size, int dim) {
  for (int d = 0; d < dim; d += LANES) {
    Vec o[R];
    for (int r = 0; r < R; r++) o[r] = zero();
    for (int at = 0; at < count; at += size) {
      const half* v = values + table[at / size] * block_room + d;
      const int here = count - at < size ? count - at : size;
      for (int i = 0; i < here; i++) {
        const Vec value = load_half(v + (int64_t)i * dim);
        for (int r = 0; r < R; r++) o[r] = fma(value, all(t.scores[r][at + i]), o[r]);
      }
    }
    for (int r = 0; r < R; r++) store(t.out[r] + d, o[r] * all(t.share[r]));
  }
}

template <int R>
static void attend(Queries& t, const half* keys, const half* values, int64_t block_room,
                   const int32_t* table, int count, int size, int dim) {
  score<R>(t, keys, values, block_room, table, count, size, dim);
  for (int r = 0; r < R; r++) t.share[r] = 1.f / soften(t.scores[r], t.visible[r], count);
  mix<R>(t, values, block_room, table, count, size, dim);
}

template <int R>
static void attend_up_to(int rows, Queries& t, const half* keys, const half* values,
                         int64_t block_room, const int32_t* table, int count, int size, int dim) {
  if (rows == R) return attend<R>(t, keys, values, block_room, table, count, size, dim);
  if constexpr (R > 1)
    attend_up_to<R - 1>(rows, t, keys, values, block_room, table, count, size, dim);
}

void attention(const Op& op, const Step& step, int chunk, float* scores) {
  const int kv = chunk % step.kv_heads, group = step.heads / step.kv_heads;
  int tile = chunk / step.kv_heads, row = 0;
  while (tile >= tiles(step, row)) tile -= tiles(step, row++);
  const int dim = step.head_dim, size = step.block_size, many = tokens_a_tile(step);
  const int first = step.bounds[row] + tile * many;
  const int last = first + many < step.bounds[row + 1] ? first + many : step.bounds[row + 1];
  const int count = step.positions[last - 1] + 1;
  const int64_t block_room = (int64_t)step.kv_heads * size * dim;
  const half* keys = step.cache + (int64_t)op.layer * 2 * step.blocks * block_room + kv * size * dim;
  const half* values = keys + step.blocks * block_room;
  const int32_t* table = step.tables + (int64_t)row * step.table_width;
  const int64_t width = (int64_t)(step.heads + 2 * step.kv_heads) * dim;
  const int64_t room = step.score_room / TILE;
  const float factor = 1.f / std::sqrt((float)dim);

  Queries t;
  int rows = 0;
  auto flush = [&]() {
    attend_up_to<TILE>(rows, t, keys, values, block_room, table, count, size, dim);
    rows = 0;
  };
  for (int token = first; token < last; token++)
    for (int g = 0; g < group; g++) {
      const int head = kv * group + g;
      float* q = step.buffers[op.input] + token * width + (int64_t)head * dim;
      for (int d = 0; d < dim; d++) q[d] *= factor;  // this chunk alone reads it
      t.q[rows] = q;
      t.out[rows] = step.buffers[op.output] + ((int64_t)token * step.heads + head) * dim;
      t.scores[rows] = scores + rows * room;
      t.visible[rows] = step.positions[token] + 1;
      if (++rows == TILE) flush();
    }
  if (rows) flush();
}

}  // namespace headrace
