// Products of activation rows with packed weights: read 4 or 8 bits, widen, sum in one order.
//
// Each output is one chain of fused multiply-adds over the groups of its inputs, from the first to
// the last, whatever the number of rows: a row's bits do not depend on its company.
#include "dots.h"

namespace headrace {

enum Format { Q4_HALF, Q4_FLOAT, Q8_HALF, Q8_HALF_MIN, Q8_FLOAT_MIN, Q8_SIXTEEN, F32, BF16, F16 };

// Bytes that memory is asked for ahead: the CPU itself stops at each page's end (a fifth faster).
constexpr int AHEAD = 2560;

inline Vec load_scale(const half* p) { return load_half(p); }
inline Vec load_scale(const float* p) { return load(p); }

// One group of a packed block of columns: integers, 16 scales, and where MIN 16 minima. Value =
// scale * q + minimum.
template <int BITS, int INPUTS, class Scale, bool MIN>
struct Packed {
  static constexpr int QUANTS = BITS * INPUTS * COLUMNS / 8;
  static constexpr int BYTES = QUANTS + (MIN ? 2 : 1) * COLUMNS * (int)sizeof(Scale);
  static constexpr int PARTS = GROUP / INPUTS;  // of its groups in one group of activations

  // `row` is the first of a tile.
  template <int R>
  static void block(const Op& op, const Step& step, const uint8_t* w, int row, Vec* y) {
    const int groups = op.k / GROUP;
    const int32_t* x = step.quantised + (int64_t)row * (op.k / 4);
    const int32_t* halves = step.halves + (int64_t)row * groups * 2;
    const float* scales = step.scales + (int64_t)row * groups;
    const float* sums = step.sums + (int64_t)row * groups;
    const bool once = (op.rows ? step.logits : step.tokens) <= ROWS;  // each weight is read once
    for (int r = 0; r < R; r++) y[r] = zero();
    for (int g = 0; g < groups; g++, scales += ROWS, sums += ROWS)
      for (int part = 0; part < PARTS; part++, w += BYTES) {
        if (once)
          for (int i = 0; i < BYTES; i += 64) __builtin_prefetch(w + AHEAD + i);
        Vec dots[R];
        if constexpr (BITS == 4)
          dot4<R>(w, x, halves, dots);
        else
          dot8<R, INPUTS>(w, x, halves, dots);
        x += ROWS * INPUTS / 4, halves += ROWS * INPUTS / LANES;
        const Scale* d = (const Scale*)(w + QUANTS);
        const Vec scale = load_scale(d);
        for (int r = 0; r < R; r++) y[r] = fma(dots[r], scale * all(scales[r]), y[r]);
        if constexpr (MIN) {
          const Vec least = load_scale(d + COLUMNS);
          for (int r = 0; r < R; r++) y[r] = fma(least, all(sums[r]), y[r]);
        }
      }
  }
};

inline Vec widen(const float* p) { return load(p); }
struct Bfloat {
  bfloat bits;
};
inline Vec widen(const Bfloat* p) { return load_bfloat(&p->bits); }
struct Half {
  half bits;
};
inline Vec widen(const Half* p) { return load_half(&p->bits); }

// Weights that are not quantised, [k][16] a block of columns, on activations that are not either.
template <class T>
struct Dense {
  static constexpr int BYTES = GROUP * COLUMNS * (int)sizeof(T), PARTS = 1;

  template <int R>
  static void block(const Op& op, const Step& step, const uint8_t* w, int row, Vec* y) {
    const float* x = step.buffers[op.input] + (int64_t)row * op.k;
    for (int r = 0; r < R; r++) y[r] = zero();
    for (int i = 0; i < op.k; i++) {
      const Vec column = widen((const T*)w + (int64_t)i * COLUMNS);
      for (int r = 0; r < R; r++) y[r] = fma(column, all(x[(int64_t)r * op.k + i]), y[r]);
    }
  }
};

static void put(const Op& op, const Step& step, int row, int block, Vec y) {
  const int column = block * COLUMNS, count = op.n - column < COLUMNS ? op.n - column : COLUMNS;
  float* out = step.buffers[op.output] + (int64_t)row * op.stride + op.offset + column;
  if (count == COLUMNS) {
    if (op.bias) y = y + load(op.bias + column);
    if (op.accumulate) y = load(out) + y;
    return store(out, y);
  }
  float x[COLUMNS];
  store(x, y);
  for (int i = 0; i < count; i++) {
    const float value = op.bias ? x[i] + op.bias[column + i] : x[i];
    out[i] = op.accumulate ? out[i] + value : value;
  }
}

template <class F, int R>
static void tile(const Op& op, const Step& step, const uint8_t* w, int rows, int row, int block) {
  if (rows >= R) {
    Vec y[R];
    F::template block<R>(op, step, w, row, y);
    for (int r = 0; r < R; r++) put(op, step, row + r, block, y[r]);
  } else if constexpr (R > 1) {
    tile<F, R - 1>(op, step, w, rows, row, block);
  }
}

// Blocks of 16 columns a chunk: few enough that they stay in the first cache while all rows pass,
// and that two dozen threads find work in the smallest product.
static int blocks_a_chunk(const Op& op) {
  const int blocks = (op.n + COLUMNS - 1) / COLUMNS;
  return blocks < 32 ? 1 : blocks < 64 ? 2 : op.k > 1024 ? 2 : 4;
}

int product_chunks(const Op& op, const Step&) {
  const int columns = blocks_a_chunk(op) * COLUMNS;
  return (op.n + columns - 1) / columns;
}

template <class F>
static void run(const Op& op, const Step& step, int chunk) {
  const int blocks = (op.n + COLUMNS - 1) / COLUMNS, many = blocks_a_chunk(op);
  const int first = chunk * many, last = first + many < blocks ? first + many : blocks;
  const int rows = op.rows ? step.logits : step.tokens;
  const int64_t bytes = (int64_t)F::BYTES * F::PARTS * (op.k / GROUP);
  for (int row = 0; row < rows; row += ROWS)
    for (int block = first; block < last; block++)
      tile<F, ROWS>(op, step, op.weight + block * bytes, rows - row, row, block);
}

void product(const Op& op, const Step& step, int chunk) {
  switch (op.format) {
    case Q4_HALF: return run<Packed<4, 32, half, true>>(op, step, chunk);
    case Q4_FLOAT: return run<Packed<4, 32, float, true>>(op, step, chunk);
    case Q8_HALF: return run<Packed<8, 32, half, false>>(op, step, chunk);
    case Q8_HALF_MIN: return run<Packed<8, 32, half, true>>(op, step, chunk);
    case Q8_FLOAT_MIN: return run<Packed<8, 32, float, true>>(op, step, chunk);
    case Q8_SIXTEEN: return run<Packed<8, 16, float, false>>(op, step, chunk);
    case F32: return run<Dense<float>>(op, step, chunk);
    case BF16: return run<Dense<Bfloat>>(op, step, chunk);
    case F16: return run<Dense<Half>>(op, step, chunk);
  }
}

}  // namespace headrace
