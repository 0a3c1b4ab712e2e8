// Integer dot products of 16 packed columns with rows of 8-bit activations.
//
// Integers do not round, so every machine gets the same sums, however wide its registers are. A
// group is 32 inputs by 16 columns; its bytes are cut into quads, four inputs of each column:
//   4 bits: byte 64 p + 4 c + i has column c, input 8 p + i low, input 8 p + 4 + i high
//   8 bits: byte 64 p + 4 c + i has column c, input 4 p + i
// Loops over quads stay loops: unrolled, the compiler runs out of registers (measured: a third slower).
#pragma once
#include "step.h"

namespace headrace {

inline int32_t quad(const int8_t* x) {
  int32_t four;
  memcpy(&four, x, 4);
  return four;
}

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define HEADRACE_DOTS "avx512-vnni"
constexpr int ROWS = 8;  // rows at once: each unpacking serves that many

template <int R>
inline void dot4(const uint8_t* w, const int8_t* const* x, const int32_t* const*, Vec* out) {
  const __m512i low = _mm512_set1_epi8(15);
  __m512i sum[R];
  for (int r = 0; r < R; r++) sum[r] = _mm512_setzero_si512();
#pragma GCC unroll 1
  for (int p = 0; p < 4; p++) {
    const __m512i both = _mm512_loadu_si512(w + 64 * p);
    const __m512i even = _mm512_and_si512(both, low);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    for (int r = 0; r < R; r++) {
      sum[r] = _mm512_dpbusd_epi32(sum[r], even, _mm512_set1_epi32(quad(x[r] + 8 * p)));
      sum[r] = _mm512_dpbusd_epi32(sum[r], odd, _mm512_set1_epi32(quad(x[r] + 8 * p + 4)));
    }
  }
  for (int r = 0; r < R; r++) out[r] = {_mm512_cvtepi32_ps(sum[r])};
}

// The instruction wants one side unsigned: 128 is added to each weight and its share taken off.
template <int R, int INPUTS>
inline void dot8(const uint8_t* w, const int8_t* const* x, const int32_t* const* halves, Vec* out) {
  const __m512i flip = _mm512_set1_epi8((char)0x80);
  __m512i sum[R];
  for (int r = 0; r < R; r++) {
    const int32_t total = INPUTS == 32 ? halves[r][0] + halves[r][1] : halves[r][0];
    sum[r] = _mm512_set1_epi32(-128 * total);
  }
#pragma GCC unroll 1
  for (int p = 0; p < INPUTS / 4; p++) {
    const __m512i raised = _mm512_xor_si512(_mm512_loadu_si512(w + 64 * p), flip);
    for (int r = 0; r < R; r++)
      sum[r] = _mm512_dpbusd_epi32(sum[r], raised, _mm512_set1_epi32(quad(x[r] + 4 * p)));
  }
  for (int r = 0; r < R; r++) out[r] = {_mm512_cvtepi32_ps(sum[r])};
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HEADRACE_DOTS "avx2"
constexpr int ROWS = 4;

inline Vec to_vec(__m256i a, __m256i b) {
#if defined(__AVX512F__)
  return {_mm512_cvtepi32_ps(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1))};
#else
  return {_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)};
#endif
}

// Eight products of a nibble (15 at most) and an activation (127 at most), in pairs, are below 2^15.
template <int R>
inline void dot4(const uint8_t* w, const int8_t* const* x, const int32_t* const*, Vec* out) {
  const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256i a[R], b[R];
  for (int r = 0; r < R; r++) a[r] = b[r] = _mm256_setzero_si256();
#pragma GCC unroll 1
  for (int p = 0; p < 4; p++) {
    const __m256i first = _mm256_loadu_si256((const __m256i*)(w + 64 * p));
    const __m256i second = _mm256_loadu_si256((const __m256i*)(w + 64 * p + 32));
    const __m256i even0 = _mm256_and_si256(first, low), even1 = _mm256_and_si256(second, low);
    const __m256i odd0 = _mm256_and_si256(_mm256_srli_epi16(first, 4), low);
    const __m256i odd1 = _mm256_and_si256(_mm256_srli_epi16(second, 4), low);
    for (int r = 0; r < R; r++) {
      const __m256i xe = _mm256_set1_epi32(quad(x[r] + 8 * p));
      const __m256i xo = _mm256_set1_epi32(quad(x[r] + 8 * p + 4));
      a[r] = _mm256_add_epi16(a[r], _mm256_add_epi16(_mm256_maddubs_epi16(even0, xe),
                                                     _mm256_maddubs_epi16(odd0, xo)));
      b[r] = _mm256_add_epi16(b[r], _mm256_add_epi16(_mm256_maddubs_epi16(even1, xe),
                                                     _mm256_maddubs_epi16(odd1, xo)));
    }
  }
  for (int r = 0; r < R; r++)
    out[r] = to_vec(_mm256_madd_epi16(a[r], ones), _mm256_madd_epi16(b[r], ones));
}

// The sign moves from the weight to the activation, since one side must be unsigned.
template <int R, int INPUTS>
inline void dot8(const uint8_t* w, const int8_t* const* x, const int32_t* const*, Vec* out) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a[R], b[R];
  for (int r = 0; r < R; r++) a[r] = b[r] = _mm256_setzero_si256();
#pragma GCC unroll 1
  for (int p = 0; p < INPUTS / 4; p++) {
    const __m256i first = _mm256_loadu_si256((const __m256i*)(w + 64 * p));
    const __m256i second = _mm256_loadu_si256((const __m256i*)(w + 64 * p + 32));
    const __m256i size0 = _mm256_abs_epi8(first), size1 = _mm256_abs_epi8(second);
    for (int r = 0; r < R; r++) {
      const __m256i four = _mm256_set1_epi32(quad(x[r] + 4 * p));
      const __m256i s0 = _mm256_maddubs_epi16(size0, _mm256_sign_epi8(four, first));
      const __m256i s1 = _mm256_maddubs_epi16(size1, _mm256_sign_epi8(four, second));
      a[r] = _mm256_add_epi32(a[r], _mm256_madd_epi16(s0, ones));
      b[r] = _mm256_add_epi32(b[r], _mm256_madd_epi16(s1, ones));
    }
  }
  for (int r = 0; r < R; r++) out[r] = to_vec(a[r], b[r]);
}

#else
#define HEADRACE_DOTS "plain"
constexpr int ROWS = 4;

template <int R>
inline void dot4(const uint8_t* w, const int8_t* const* x, const int32_t* const*, Vec* out) {
  for (int r = 0; r < R; r++) {
    int32_t sum[COLUMNS] = {0};
    for (int p = 0; p < 4; p++)
      for (int c = 0; c < COLUMNS; c++)
        for (int i = 0; i < 4; i++) {
          const int both = w[64 * p + 4 * c + i];
          sum[c] += (both & 15) * x[r][8 * p + i] + (both >> 4) * x[r][8 * p + 4 + i];
        }
    out[r] = from_int(sum);
  }
}

template <int R, int INPUTS>
inline void dot8(const uint8_t* w, const int8_t* const* x, const int32_t* const*, Vec* out) {
  for (int r = 0; r < R; r++) {
    int32_t sum[COLUMNS] = {0};
    for (int p = 0; p < INPUTS / 4; p++)
      for (int c = 0; c < COLUMNS; c++)
        for (int i = 0; i < 4; i++) sum[c] += (int8_t)w[64 * p + 4 * c + i] * x[r][4 * p + i];
    out[r] = from_int(sum);
  }
}

#endif

}  // namespace headrace
