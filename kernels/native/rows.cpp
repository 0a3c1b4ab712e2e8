// Operators on one row at a time: norm, gate, quantisation, rotation. Nothing crosses rows.
#include "step.h"

namespace headrace {

// fp32 -> 8-bit integers by groups of 32: x is about scale * q, q in -127..127, ties to even.
// A group that is not finite gets the scale NaN, so that its row's results are NaN and no other's.
void quantise_row(const float* x, int k, const Step& step, int row) {
  const int64_t groups = k / GROUP, tile = row / ROWS, lane = row % ROWS;
  int32_t* quads = step.quantised + tile * ROWS * (k / 4) + lane;
  for (int64_t g = 0; g < groups; g++) {
    const Vec a = load(x + g * GROUP), b = load(x + g * GROUP + LANES);
    const float most = largest(max(max(a, zero() - a), max(b, zero() - b)));
    const float trouble = sum((a - a) + (b - b));  // 0, or NaN for an infinity or a NaN
    const float scale = most / 127.f + trouble;
    const float inverse = most > 0.f && trouble == 0.f ? 127.f / most : 0.f;
    int32_t wide[GROUP];
    round_to(wide, a * all(inverse));
    round_to(wide + LANES, b * all(inverse));
    int32_t first = 0, second = 0;
    for (int i = 0; i < LANES; i++) first += wide[i], second += wide[LANES + i];
    int8_t q[GROUP];
    for (int i = 0; i < GROUP; i++) q[i] = (int8_t)wide[i];
    for (int i = 0; i < GROUP; i += 4, quads += ROWS) memcpy(quads, q + i, 4);
    const int64_t at = (tile * groups + g) * ROWS;
    step.halves[2 * at + lane] = first;
    step.halves[2 * at + ROWS + lane] = second;
    step.scales[at + lane] = scale;
    step.sums[at + lane] = scale * (float)(first + second);
  }
}

static void normalise(const float* x, const float* weight, float* y, int k, float eps) {
  Vec squares = zero();
  for (int i = 0; i < k; i += LANES) {
    const Vec a = load(x + i);
    squares = fma(a, a, squares);
  }
  const Vec factor = all(1.f / std::sqrt(sum(squares) / (float)k + eps));
  for (int i = 0; i < k; i += LANES) store(y + i, load(x + i) * factor * load(weight + i));
}

// RMS norm (Zhang and Sennrich 2019) of a token, or of the token that wants the row's logits.
void norm(const Op& op, const Step& step, int row) {
  const int source = op.rows ? step.logit_rows[row] : row;
  float* y = step.buffers[op.output] + (int64_t)row * op.k;
  normalise(step.buffers[op.input] + (int64_t)source * op.k, (const float*)op.weight, y, op.k,
            op.eps);
  quantise_row(y, op.k, step, row);
}

void quantise(const Op& op, const Step& step, int row) {
  quantise_row(step.buffers[op.input] + (int64_t)row * op.k, op.k, step, row);
}

// silu(gate) * up; the input row is gate, then up, k wide each
void gate(const Op& op, const Step& step, int row) {
  const float* x = step.buffers[op.input] + (int64_t)row * 2 * op.k;
  float* y = step.buffers[op.output] + (int64_t)row * op.k;
  for (int i = 0; i < op.k; i += LANES) {
    const Vec a = load(x + i);
    store(y + i, a / (all(1.f) + exp(zero() - a)) * load(x + op.k + i));
  }
  quantise_row(y, op.k, step, row);
}

// Rotary positions by halves (Su et al. 2021), in place.
static void rotate(float* x, const float* cosines, const float* sines, int half_dim) {
  for (int i = 0; i < half_dim; i++) {
    const float low = x[i], high = x[i + half_dim];
    x[i] = low * cosines[i] - high * sines[i];
    x[i + half_dim] = high * cosines[i] + low * sines[i];
  }
}

static const float MOST = 65504.f;  // of a half; beyond it a key would become infinite

// The token's row is heads of q, k, v. q stays there, rotated; k and v go to the token's slot:
// values as [place, dim], keys as [dim, place], so that attention takes 16 keys at once.
void rotate_and_store(const Op& op, const Step& step, int token) {
  const int dim = step.head_dim, size = step.block_size;
  const int64_t width = (int64_t)(step.heads + 2 * step.kv_heads) * dim;
  float* row = step.buffers[op.input] + token * width;
  const int64_t at = (int64_t)step.positions[token] * (dim / 2);
  for (int h = 0; h < step.heads + step.kv_heads; h++) {
    float* x = row + (int64_t)h * dim;
    const float* weight = h < step.heads ? op.q_norm : op.k_norm;
    if (weight) normalise(x, weight, x, dim, op.eps);
    if (op.rotate) rotate(x, step.cosines + at, step.sines + at, dim / 2);
  }
  const int block = step.slots[token] / size, place = step.slots[token] % size;
  const int64_t block_room = (int64_t)step.kv_heads * size * dim;
  half* keys = step.cache + ((int64_t)op.layer * 2 * step.blocks + block) * block_room;
  half* values = keys + step.blocks * block_room;
  const float* k = row + (int64_t)step.heads * dim;
  const float* v = k + (int64_t)step.kv_heads * dim;
  for (int h = 0; h < step.kv_heads; h++)
    for (int d = 0; d < dim; d += LANES) {
      const Vec high = all(MOST), low = all(-MOST);
      half column[LANES];
      // written so that a NaN stays one: min and max give their second argument for a NaN
      store_half(column, min(high, max(low, load(k + h * dim + d))));
      for (int i = 0; i < LANES; i++) keys[((int64_t)h * dim + d + i) * size + place] = column[i];
      store_half(values + ((int64_t)h * size + place) * dim + d,
                 min(high, max(low, load(v + h * dim + d))));
    }
}

}  // namespace headrace
