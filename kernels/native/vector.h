// Sixteen fp32 lanes, whatever the registers' width: one AVX-512 register, two of AVX2, or an array.
// Every operation is lane by lane, or in an order that is written down here, so a result has the
// same bits on each of them where the machine has a fused multiply-add.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace {

constexpr int LANES = 16;
using half = uint16_t;    // IEEE binary16, as bits
using bfloat = uint16_t;  // bfloat16, as bits; told apart by the loader's name

#if defined(__AVX512F__)

struct Vec {
  __m512 v;
};
inline Vec all(float x) { return {_mm512_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec load_half(const half* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
inline Vec load_bfloat(const bfloat* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline void store_half(half* p, Vec a) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
// the nearest integers, ties to even
inline void round_to(int32_t* p, Vec a) { _mm512_storeu_si512(p, _mm512_cvtps_epi32(a.v)); }
inline Vec from_int(const int32_t* p) { return {_mm512_cvtepi32_ps(_mm512_loadu_si512(p))}; }

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

struct Vec {
  __m256 a, b;
};
inline Vec all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
inline Vec operator+(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Vec operator-(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Vec operator*(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Vec operator/(Vec x, Vec y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Vec fma(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Vec max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Vec min(Vec x, Vec y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline Vec load_half(const half* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
inline __m256 widen_bfloat(const bfloat* p) {
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline Vec load_bfloat(const bfloat* p) { return {widen_bfloat(p), widen_bfloat(p + 8)}; }
inline void store_half(half* p, Vec x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline void round_to(int32_t* p, Vec x) {
  _mm256_storeu_si256((__m256i*)p, _mm256_cvtps_epi32(x.a));
  _mm256_storeu_si256((__m256i*)(p + 8), _mm256_cvtps_epi32(x.b));
}
inline Vec from_int(const int32_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i*)p)),
          _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i*)(p + 8)))};
}

#else  // any other machine: plain loops, for the compiler to vectorise

struct Vec {
  float x[LANES];
};
template <class F>
inline Vec each(F f) {
  Vec r;
  for (int i = 0; i < LANES; i++) r.x[i] = f(i);
  return r;
}
inline float fused(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;  // no such instruction: two roundings, always
#endif
}
inline float widen_half(half h) {
#if defined(__FLT16_MAX__)
  _Float16 f;
  memcpy(&f, &h, 2);
  return (float)f;
#else
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest < 0x400) return (sign ? -1.f : 1.f) * (float)rest * 0x1p-24f;
  uint32_t bits = sign | (rest >= 0x7c00 ? 0x7f800000u | (rest & 0x3ff) << 13
                                         : (rest << 13) + (112u << 23));
  float f;
  memcpy(&f, &bits, 4);
  return f;
#endif
}
inline half narrow_half(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  uint16_t sign = (bits >> 16) & 0x8000;
  float size = std::fabs(f);
  if (!(size == size)) return sign | 0x7e00;
  if (size >= 65520.f) return sign | 0x7c00;
  if (size < 0x1p-14f) return sign | (uint16_t)std::nearbyint(size * 0x1p24f);
  bits = (bits & 0x7fffffff) - (112u << 23);
  return sign | (uint16_t)((bits + 0xfff + ((bits >> 13) & 1)) >> 13);
}
inline Vec all(float x) { return each([&](int) { return x; }); }
inline Vec load(const float* p) { return each([&](int i) { return p[i]; }); }
inline void store(float* p, Vec a) { memcpy(p, a.x, sizeof a.x); }
inline Vec operator+(Vec a, Vec b) { return each([&](int i) { return a.x[i] + b.x[i]; }); }
inline Vec operator-(Vec a, Vec b) { return each([&](int i) { return a.x[i] - b.x[i]; }); }
inline Vec operator*(Vec a, Vec b) { return each([&](int i) { return a.x[i] * b.x[i]; }); }
inline Vec operator/(Vec a, Vec b) { return each([&](int i) { return a.x[i] / b.x[i]; }); }
inline Vec fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return fused(a.x[i], b.x[i], c.x[i]); });
}
inline Vec max(Vec a, Vec b) { return each([&](int i) { return a.x[i] > b.x[i] ? a.x[i] : b.x[i]; }); }
inline Vec min(Vec a, Vec b) { return each([&](int i) { return a.x[i] < b.x[i] ? a.x[i] : b.x[i]; }); }
inline Vec load_half(const half* p) { return each([&](int i) { return widen_half(p[i]); }); }
inline Vec load_bfloat(const bfloat* p) {
  return each([&](int i) {
    uint32_t bits = (uint32_t)p[i] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
  });
}
inline void store_half(half* p, Vec a) {
  for (int i = 0; i < LANES; i++) p[i] = narrow_half(a.x[i]);
}
inline void round_to(int32_t* p, Vec a) {
  for (int i = 0; i < LANES; i++) p[i] = (int32_t)std::nearbyint(a.x[i]);
}
inline Vec from_int(const int32_t* p) { return each([&](int i) { return (float)p[i]; }); }

#endif

inline Vec zero() { return all(0.f); }

// Lanes to one number: halves are folded onto each other, 8, 4, 2, 1.
template <class Fold>
inline float reduce(Vec a, Fold fold) {
  float x[LANES];
  store(x, a);
  for (int width = LANES / 2; width; width /= 2)
    for (int i = 0; i < width; i++) x[i] = fold(x[i], x[i + width]);
  return x[0];
}
inline float sum(Vec a) {
  return reduce(a, [](float x, float y) { return x + y; });
}
inline float largest(Vec a) {
  return reduce(a, [](float x, float y) { return x > y ? x : y; });
}

// e^x to about 1 ulp: x = n ln2 + r, a polynomial in r, and 2^n put into the exponent.
// Coefficients are Cephes' expf (Moshier). Below -87 the result is that of -87: 1.6e-38.
inline Vec exp(Vec x) {
  x = min(max(x, all(-87.f)), all(88.f));
  int32_t n[LANES];
  round_to(n, x * all(1.44269504f));
  Vec whole = from_int(n);
  Vec r = fma(whole, all(-0.693359375f), x);
  r = fma(whole, all(2.12194440e-4f), r);
  Vec p = all(1.9875691500e-4f);
  p = fma(p, r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = fma(p, r * r, r + all(1.f));
  for (int i = 0; i < LANES; i++) n[i] = (n[i] + 127) << 23;
  float power[LANES];
  memcpy(power, n, sizeof power);
  return p * load(power);
}

}  // namespace headrace
