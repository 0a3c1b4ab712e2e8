// What an operator is told: the program's line, the step's sizes, and where the buffers are.
// Mirrored field by field in kernels/native/program.py.
#pragma once
#include "vector.h"

namespace headrace {

constexpr int GROUP = 32;    // activations that share a scale; GGUF's group, too
constexpr int COLUMNS = 16;  // outputs that are computed side by side: one vector
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define HEADRACE_VNNI
constexpr int ROWS = 8;  // activation rows that are computed at once, a tile: sums that fit registers
#else
constexpr int ROWS = 4;
#endif

struct Op {
  int32_t kind;
  int32_t input, output;  // buffer numbers
  int32_t n, k;           // outputs and inputs of a product; k: width of a row elsewhere
  int32_t offset, stride; // where a product's outputs begin in a row of `output`, and its row's width
  int32_t format;         // of the weights: a number of `Format`
  int32_t accumulate;     // 1: add to the output instead of replacing it
  int32_t layer;
  int32_t rows;           // 0: every token, 1: only those that need logits
  int32_t rotate;         // 1: this layer has rotary positions
  const uint8_t* weight;  // packed; norms: fp32
  const float* bias;      // may be null
  const float* q_norm;    // may be null
  const float* k_norm;
  float eps;
  int32_t spare;
};

struct Step {
  int32_t tokens, rows, logits;
  int32_t heads, kv_heads, head_dim;
  int32_t block_size, blocks, table_width, spare;
  const int32_t* positions;  // [tokens]
  const int32_t* slots;      // [tokens]
  const int32_t* bounds;     // [rows + 1]
  const int32_t* lengths;    // [rows]
  const int32_t* tables;     // [rows, table_width]
  const int32_t* logit_rows; // [logits]
  const float* cosines;      // [context, head_dim / 2]
  const float* sines;
  half* cache;               // [layers, 2, blocks, kv_heads, block_size * head_dim]
  float* buffers[8];         // fp32, [tokens, width of the buffer]
  // the last quantised rows, in tiles of ROWS that lie side by side, the last one part empty
  int32_t* quantised;        // [tiles, k / 4, ROWS]: four 8-bit integers of a row
  float* scales;             // [tiles, k / 32, ROWS]
  float* sums;               // [tiles, k / 32, ROWS]: scale times the sum of the group's integers
  int32_t* halves;           // [tiles, k / 16, ROWS]: sums of integers by half group
  float* scores;             // [threads, score_room]
  int64_t score_room;
};

// A chunk is the least piece of work: which thread takes it never changes its result.
int product_chunks(const Op& op, const Step& step);
void product(const Op& op, const Step& step, int chunk);
int attention_chunks(const Op& op, const Step& step);
void attention(const Op& op, const Step& step, int chunk, float* scores);
void norm(const Op& op, const Step& step, int row);
void quantise(const Op& op, const Step& step, int row);
void gate(const Op& op, const Step& step, int row);
void rotate_and_store(const Op& op, const Step& step, int token);
void quantise_row(const float* x, int k, const Step& step, int row);

}  // namespace headrace
