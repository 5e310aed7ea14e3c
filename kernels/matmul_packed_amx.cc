// bf16 products of panels, 32 x 32, by AMX: four tiles of fp32 sums, two of a and two of b. Compiled for AVX-512 and
// AMX (kernels/CMakeLists.txt).
#include "kernels/matmul_packed.h"

#if defined(__AMX_BF16__)
#include "kernels/matmul_finish_avx512.h"

namespace ds::detail {
namespace {

constexpr int64_t kRows = 32, kStep = 32;     // rows of a panel of a; values of k that one tile holds
constexpr int64_t kTile = 16 * kStep;         // elements of a tile
constexpr int64_t kStepElements = 2 * kTile;  // of a panel of a or b, for a step along k
// Tile registers, which the compiler wants as literals: sums 0 1 (upper rows) and 2 3 (lower), a 4 5, b 6 7.

/// gcc does not know that tile loads read memory: what was written before must be there.
inline void WritesAreDone() { asm volatile("" ::: "memory"); }

const uint16_t* Elements(const PackSource& s) { return static_cast<const uint16_t*>(s.data); }

__mmask32 FirstHalves(int64_t n) { return n >= 32 ? ~__mmask32(0) : static_cast<__mmask32>((uint32_t{1} << n) - 1u); }

/// Values k .. k + 31 of one row of op(a) or column of op(b) that is contiguous along k.
__m512 AlongK(const PackSource& s, int64_t index, int64_t k) {
  if (index >= s.extent) return _mm512_setzero_ps();
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(FirstHalves(s.depth - k), Elements(s) + index * s.ld + k));
}

/// (k, k + 1) pairs of indices [begin, begin + 16), where the index is contiguous.
__m512 Pairs(const PackSource& s, int64_t begin, int64_t k) {
  const __mmask16 mask = FirstLanes(s.extent - begin);
  const auto row = [&](int64_t at) {
    if (at >= s.depth) return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, Elements(s) + at * s.ld + begin));
  };
  return _mm512_castsi512_ps(_mm512_or_si512(row(k), _mm512_slli_epi32(row(k + 1), 16)));
}

/// Panel of a: for each step two tiles of [16 rows][32 k].
void PackA(const PackSource& s, void* panel) {
  uint16_t* out = static_cast<uint16_t*>(panel);
  for (int64_t k = 0; k < s.depth; k += kStep, out += kStepElements)
    for (int64_t begin = 0; begin < kRows; begin += 16) {
      uint16_t* tile = out + begin / 16 * kTile;
      __m512 r[16];
      for (int i = 0; i < 16; ++i) r[i] = s.k_contiguous ? AlongK(s, begin + i, k) : Pairs(s, begin, k + 2 * i);
      if (!s.k_contiguous) Transpose(r);
      for (int i = 0; i < 16; ++i) _mm512_store_ps(tile + i * kStep, r[i]);
    }
}

/// Panel of b: for each step two tiles of [16 pairs of k][16 columns][2].
void PackB(const PackSource& s, void* panel) {
  uint16_t* out = static_cast<uint16_t*>(panel);
  for (int64_t k = 0; k < s.depth; k += kStep, out += kStepElements)
    for (int64_t begin = 0; begin < kPanelColumns; begin += 16) {
      uint16_t* tile = out + begin / 16 * kTile;
      __m512 r[16];
      for (int i = 0; i < 16; ++i) r[i] = s.k_contiguous ? AlongK(s, begin + i, k) : Pairs(s, begin, k + 2 * i);
      if (s.k_contiguous) Transpose(r);
      for (int i = 0; i < 16; ++i) _mm512_store_ps(tile + i * kStep, r[i]);
    }
}

void LoadSums(const float* sums, int64_t ld) {
  const int64_t stride = ld * static_cast<int64_t>(sizeof(float));
  WritesAreDone();
  _tile_loadd(0, sums, stride);
  _tile_loadd(1, sums + 16, stride);
  _tile_loadd(2, sums + 16 * ld, stride);
  _tile_loadd(3, sums + 16 * ld + 16, stride);
}

void StoreSums(float* sums, int64_t ld) {
  const int64_t stride = ld * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + 16, stride);
  _tile_stored(2, sums + 16 * ld, stride);
  _tile_stored(3, sums + 16 * ld + 16, stride);
}

/// Between the rows and columns that exist and a whole block of 32 x 32.
void CopySums(const PanelOutput& o, const float* from, int64_t ld_from, float* to, int64_t ld_to) {
  const __mmask16 low = FirstLanes(o.columns), high = FirstLanes(o.columns - 16);
  for (int64_t i = 0; i < o.rows; ++i) {
    _mm512_mask_storeu_ps(to + i * ld_to, low, _mm512_maskz_loadu_ps(low, from + i * ld_from));
    _mm512_mask_storeu_ps(to + i * ld_to + 16, high, _mm512_maskz_loadu_ps(high, from + i * ld_from + 16));
  }
}

void MultiplyPanels(const void* panel_a, int64_t, const void* panel_b, int64_t begin, int64_t depth,
                    const PanelOutput& o) {
  const uint16_t* a = static_cast<const uint16_t*>(panel_a) + begin / kStep * kStepElements;
  const uint16_t* b = static_cast<const uint16_t*>(panel_b);
  const bool whole = o.rows == kRows && o.columns == kPanelColumns;
  alignas(64) float block[kRows * kPanelColumns];
  if (o.first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else if (whole) {
    LoadSums(o.sums, o.ld_sums);
  } else {
    for (int64_t i = 0; i < kRows * kPanelColumns; i += 16) _mm512_store_ps(block + i, _mm512_setzero_ps());
    CopySums(o, o.sums, o.ld_sums, block, kPanelColumns);
    LoadSums(block, kPanelColumns);
  }
  const bool two_rows = o.rows > 16;
  WritesAreDone();
  for (int64_t k = 0; k < depth; k += kStep, a += kStepElements, b += kStepElements) {
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kTile, 64);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (!two_rows) continue;
    _tile_loadd(5, a + kTile, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  if (!o.finish && whole) return StoreSums(o.sums, o.ld_sums);
  StoreSums(block, kPanelColumns);
  if (o.finish)
    Finish(o, block);
  else
    CopySums(o, block, kPanelColumns, o.sums, o.ld_sums);
}

/// What ldtilecfg reads: all eight tiles have 16 rows of 64 bytes. Constant, because gcc believes that the instruction
/// reads eight bytes and would drop the stores of the rest.
struct alignas(64) TileConfiguration {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
};
constexpr TileConfiguration kTiles{1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

void Enter() { _tile_loadconfig(&kTiles); }

void Leave() { _tile_release(); }

constexpr PackedKernel kKernel{"AMX", DType::bf16, kRows,          kPanelColumns, kStep, 512,
                               PackA, PackB,       MultiplyPanels, Enter,         Leave, nullptr};

}  // namespace

const PackedKernel* const kCompiledAmxKernel = &kKernel;

}  // namespace ds::detail
#else
const ds::detail::PackedKernel* const ds::detail::kCompiledAmxKernel = nullptr;
#endif
