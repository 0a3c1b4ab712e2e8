// Integer dot products of 16 packed columns with rows of 8-bit activations.
//
// Integers do not round, so every machine gets the same sums, however wide its registers are. A
// group is 32 inputs by 16 columns; its bytes are cut into quads, four inputs of each column:
//   4 bits: byte 64 p + 4 c + i has column c, input 8 p + i low, input 8 p + 4 + i high
//   8 bits: byte 64 p + 4 c + i has column c, input 4 p + i
// Activations lie in tiles of ROWS rows: x[ROWS * quad + row] holds four of them.
// Loops over quads stay loops: unrolled, the compiler runs out of registers (measured: a third slower).
#pragma once
#include "step.h"

namespace headrace {

#if defined(HEADRACE_VNNI)
#define HEADRACE_DOTS "avx512-vnni"

template <int R>
inline void dot4(const uint8_t* w, const int32_t* x, const int32_t*, Vec* out) {
  const __m512i low = _mm512_set1_epi8(15);
  __m512i sum[R];
  for (int r = 0; r < R; r++) sum[r] = _mm512_setzero_si512();
#pragma GCC unroll 1
  for (int p = 0; p < 4; p++, w += 64, x += 2 * ROWS) {
    const __m512i both = _mm512_loadu_si512(w);
    const __m512i even = _mm512_and_si512(both, low);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    for (int r = 0; r < R; r++) {
      sum[r] = _mm512_dpbusd_epi32(sum[r], even, _mm512_set1_epi32(x[r]));
      sum[r] = _mm512_dpbusd_epi32(sum[r], odd, _mm512_set1_epi32(x[ROWS + r]));
    }
  }
  for (int r = 0; r < R; r++) out[r] = {_mm512_cvtepi32_ps(sum[r])};
}

// The instruction wants one side unsigned: 128 is added to each weight and its share taken off.
template <int R, int INPUTS>
inline void dot8(const uint8_t* w, const int32_t* x, const int32_t* halves, Vec* out) {
  const __m512i flip = _mm512_set1_epi8((char)0x80);
  __m512i sum[R];
  for (int r = 0; r < R; r++) {
    const int32_t total = INPUTS == 32 ? halves[r] + halves[ROWS + r] : halves[r];
    sum[r] = _mm512_set1_epi32(-128 * total);
  }
#pragma GCC unroll 1
  for (int p = 0; p < INPUTS / 4; p++, w += 64, x += ROWS) {
    const __m512i raised = _mm512_xor_si512(_mm512_loadu_si512(w), flip);
    for (int r = 0; r < R; r++)
      sum[r] = _mm512_dpbusd_epi32(sum[r], raised, _mm512_set1_epi32(x[r]));
  }
  for (int r = 0; r < R; r++) out[r] = {_mm512_cvtepi32_ps(sum[r])};
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HEADRACE_DOTS "avx2"

inline Vec to_vec(__m256i a, __m256i b) {
#if defined(__AVX512F__)
  return {_mm512_cvtepi32_ps(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1))};
#else
  return {_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)};
#endif
}

// In place: left to itself, the compiler copies each sum once more, and spills (a third slower).
inline void add_to(__m256i& sum, __m256i x) { asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(x)); }

inline __m256i low_nibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
inline __m256i high_nibbles(__m256i x) { return low_nibbles(_mm256_srli_epi16(x, 4)); }

// Eight products of a nibble (15 at most) and an activation (127 at most), in pairs, are below 2^15.
template <int R>
inline void dot4(const uint8_t* w, const int32_t* x, const int32_t*, Vec* out) {
  __m256i a[R], b[R];  // columns 0-7 and 8-15
  for (int r = 0; r < R; r++) a[r] = b[r] = _mm256_setzero_si256();
#pragma GCC unroll 1
  for (int p = 0; p < 4; p++, w += 64, x += 2 * ROWS) {
    const __m256i first = _mm256_loadu_si256((const __m256i*)w);
    const __m256i second = _mm256_loadu_si256((const __m256i*)(w + 32));
    const __m256i even0 = low_nibbles(first), even1 = low_nibbles(second);
    for (int r = 0; r < R; r++) {
      const __m256i quad = _mm256_set1_epi32(x[r]);
      add_to(a[r], _mm256_maddubs_epi16(even0, quad));
      add_to(b[r], _mm256_maddubs_epi16(even1, quad));
    }
    const __m256i odd0 = high_nibbles(first), odd1 = high_nibbles(second);
    for (int r = 0; r < R; r++) {
      const __m256i quad = _mm256_set1_epi32(x[ROWS + r]);
      add_to(a[r], _mm256_maddubs_epi16(odd0, quad));
      add_to(b[r], _mm256_maddubs_epi16(odd1, quad));
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; r++)
    out[r] = to_vec(_mm256_madd_epi16(a[r], ones), _mm256_madd_epi16(b[r], ones));
}

// A weight is 16 * high + low - 128, both nibbles: two cheap sums instead of one of signed products.
template <int R, int INPUTS>
inline void dot8_columns(const uint8_t* w, const int32_t* x, const int32_t* halves, __m256i* out) {
  const __m256i flip = _mm256_set1_epi8((char)0x80);
  __m256i low[R], high[R];
  for (int r = 0; r < R; r++) low[r] = high[r] = _mm256_setzero_si256();
#pragma GCC unroll 1
  for (int p = 0; p < INPUTS / 4; p++, w += 64, x += ROWS) {
    const __m256i raised = _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)w), flip);
    const __m256i lows = low_nibbles(raised), highs = high_nibbles(raised);
    for (int r = 0; r < R; r++) {
      const __m256i quad = _mm256_set1_epi32(x[r]);
      add_to(low[r], _mm256_maddubs_epi16(lows, quad));
      add_to(high[r], _mm256_maddubs_epi16(highs, quad));
    }
  }
  const __m256i ones = _mm256_set1_epi16(1), sixteens = _mm256_set1_epi16(16);
  for (int r = 0; r < R; r++) {
    const int32_t total = INPUTS == 32 ? halves[r] + halves[ROWS + r] : halves[r];
    const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(low[r], ones),
                                         _mm256_madd_epi16(high[r], sixteens));
    out[r] = _mm256_sub_epi32(sum, _mm256_set1_epi32(128 * total));
  }
}

template <int R, int INPUTS>
inline void dot8(const uint8_t* w, const int32_t* x, const int32_t* halves, Vec* out) {
  __m256i a[R], b[R];
  dot8_columns<R, INPUTS>(w, x, halves, a);
  dot8_columns<R, INPUTS>(w + 32, x, halves, b);
  for (int r = 0; r < R; r++) out[r] = to_vec(a[r], b[r]);
}

#else
#define HEADRACE_DOTS "plain"

template <int R>
inline void dot4(const uint8_t* w, const int32_t* x, const int32_t*, Vec* out) {
  for (int r = 0; r < R; r++) {
    int32_t sum[COLUMNS] = {0};
    for (int p = 0; p < 4; p++) {
      int8_t even[4], odd[4];
      memcpy(even, x + 2 * ROWS * p + r, 4);
      memcpy(odd, x + 2 * ROWS * p + ROWS + r, 4);
      for (int c = 0; c < COLUMNS; c++)
        for (int i = 0; i < 4; i++) {
          const int both = w[64 * p + 4 * c + i];
          sum[c] += (both & 15) * even[i] + (both >> 4) * odd[i];
        }
    }
    out[r] = from_int(sum);
  }
}

template <int R, int INPUTS>
inline void dot8(const uint8_t* w, const int32_t* x, const int32_t*, Vec* out) {
  for (int r = 0; r < R; r++) {
    int32_t sum[COLUMNS] = {0};
    for (int p = 0; p < INPUTS / 4; p++) {
      int8_t four[4];
      memcpy(four, x + ROWS * p + r, 4);
      for (int c = 0; c < COLUMNS; c++)
        for (int i = 0; i < 4; i++) sum[c] += (int8_t)w[64 * p + 4 * c + i] * four[i];
    }
    out[r] = from_int(sum);
  }
}

#endif

}  // namespace headrace
