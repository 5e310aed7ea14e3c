#include "kernels/matmul_packed.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>

#include "kernels/aligned_memory.h"
#include "kernels/cpu_features.h"
#include "kernels/parallel.h"

namespace ds::detail {
namespace {

// Sizes of what is packed at a time: 4 MiB of fp32 an operand, which with the sums stays in the last-level cache. The
// cut along K is part of the result: it depends on K alone.
constexpr int64_t kSlabDepth = 1024, kSlabRows = 1024, kSlabColumns = 1024;
// Panels of a and b that a thread multiplies at a time: as many columns as stay in the second-level cache, under as
// many rows as make up for loading them.
constexpr int64_t kItemRowPanels = 37, kItemColumnPanels = 12;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t n, int64_t unit) { return CeilDiv(n, unit) * unit; }
/// Length of equal pieces of at most `target` that cover `total`, a multiple of `unit`.
int64_t Piece(int64_t total, int64_t target, int64_t unit) {
  return RoundUp(CeilDiv(total, CeilDiv(total, target)), unit);
}

/// `count` things dealt out in `parts` runs whose lengths differ by one at most.
struct Deal {
  int64_t count, parts;
  int64_t Begin(int64_t part) const { return part * (count / parts) + std::min(part, count % parts); }
  int64_t Size(int64_t part) const { return Begin(part + 1) - Begin(part); }
};

/// Memory of the calling thread that grows to what the largest product needed.
class Buffer {
 public:
  std::byte* Get(int64_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_ = AllocateAligned(bytes);
      size_ = bytes;
      AdviseHugePages(memory_.get(), bytes);
    }
    return memory_.get();
  }

 private:
  AlignedMemory memory_;
  int64_t size_ = 0;
};

struct Buffers {
  Buffer a, b, sums;
};

/// One product, shared out among the threads of a team (or computed by the calling thread alone).
class Product {
 public:
  Product(const PackedKernel& kernel, const BlockProduct& p, int threads, Buffers& buffers)
      : kernel_(kernel),
        p_(p),
        threads_(threads),
        slab_depth_(Piece(p.k, kSlabDepth, kernel.depth_unit)),
        slab_rows_(std::min(p.m, kSlabRows)),
        slab_columns_(std::min(p.n, kSlabColumns)),
        depth_(Piece(slab_depth_, kernel.depth, kernel.depth_unit)),
        element_(static_cast<int64_t>(SizeOf(kernel.type))),
        panel_a_((slab_depth_ * kernel.rows + 16) * element_),
        panel_b_(slab_depth_ * kernel.columns * element_),
        plain_(p.c_type == DType::f32 && !p.accumulate && p.alpha == 1.0f && !p.bias),
        own_sums_(!plain_ && p.k > depth_) {
    panel_a_ = RoundUp(panel_a_, 64), panel_b_ = RoundUp(panel_b_, 64);
    a_ = buffers.a.Get(CeilDiv(slab_rows_, kernel.rows) * panel_a_);
    b_ = buffers.b.Get(CeilDiv(slab_columns_, kernel.columns) * panel_b_);
    if (own_sums_)
      sums_ =
          reinterpret_cast<float*>(buffers.sums.Get(slab_rows_ * slab_columns_ * static_cast<int64_t>(sizeof(float))));
  }

  /// Every thread of the team calls this.
  void Run() const {
    if (kernel_.enter) kernel_.enter();
    for (int64_t row = 0; row < p_.m; row += slab_rows_)
      for (int64_t column = 0; column < p_.n; column += slab_columns_)
        for (int64_t k = 0; k < p_.k; k += slab_depth_) {
          const Slab slab{row,
                          column,
                          k,
                          std::min(slab_rows_, p_.m - row),
                          std::min(slab_columns_, p_.n - column),
                          std::min(slab_depth_, p_.k - k)};
          // Where all of K fits, a stays packed while columns go by, and b, if all of it fits, while rows do.
          const bool whole_depth = slab_depth_ >= p_.k;
          Pack(slab, !whole_depth || column == 0, !whole_depth || slab_columns_ < p_.n || row == 0);
          Multiply(slab);
        }
    if (kernel_.leave) kernel_.leave();
  }

 private:
  /// The part of the product whose operands are packed at a time.
  struct Slab {
    int64_t row, column, k, rows, columns, depth;
  };

  Deal RowPanels(const Slab& s) const { return {s.rows, CeilDiv(s.rows, kernel_.rows)}; }

  /// body(i) for i in [0, count), over the team; ends when all are done.
  template <class Body>
  void Share(int64_t count, const Body& body) const {
    if (threads_ == 1) {
      for (int64_t i = 0; i < count; ++i) body(i);
      return;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i) body(i);
  }

  static const void* At(const void* data, DType type, int64_t element) {
    return static_cast<const char*>(data) + element * static_cast<int64_t>(SizeOf(type));
  }

  /// Where the part of K from `k` on of a panel of b is packed: the panels of one part of K follow each other, so that
  /// those that a thread reads together do not compete for the same lines of the cache.
  std::byte* PanelOfB(const Slab& s, int64_t panel, int64_t k) const {
    const int64_t panels = CeilDiv(s.columns, kernel_.columns),
                  depth = RoundUp(std::min(depth_, s.depth - k), kernel_.depth_unit);
    return b_ + (panels * k + panel * depth) * kernel_.columns * element_;
  }

  void Pack(const Slab& s, bool pack_a, bool pack_b) const {
    const Deal panels = RowPanels(s);
    const int64_t parts = CeilDiv(s.depth, depth_);
    const int64_t of_a = pack_a ? panels.parts : 0, of_b = pack_b ? CeilDiv(s.columns, kernel_.columns) : 0;
    Share(of_a + of_b * parts, [&](int64_t i) {
      PackSource source;
      source.type = p_.ab;
      source.depth = s.depth;
      if (i < of_a) {
        const int64_t row = s.row + panels.Begin(i);
        source.ld = p_.lda, source.k_contiguous = !p_.transpose_a, source.extent = panels.Size(i);
        source.data = At(p_.a, p_.ab, p_.transpose_a ? s.k * p_.lda + row : row * p_.lda + s.k);
        kernel_.pack_a(source, a_ + i * panel_a_);
      } else {
        const int64_t panel = (i - of_a) / parts, k = (i - of_a) % parts * depth_;
        const int64_t begin = panel * kernel_.columns, column = s.column + begin, from = s.k + k;
        source.depth = std::min(depth_, s.depth - k);
        source.ld = p_.ldb, source.k_contiguous = p_.transpose_b;
        source.extent = std::min(kernel_.columns, s.columns - begin);
        source.data = At(p_.b, p_.ab, p_.transpose_b ? column * p_.ldb + from : from * p_.ldb + column);
        kernel_.pack_b(source, PanelOfB(s, panel, k));
      }
    });
  }

  void Multiply(const Slab& s) const {
    const Deal panels = RowPanels(s);
    const int64_t column_panels = CeilDiv(s.columns, kernel_.columns);
    int64_t down = CeilDiv(panels.parts, kItemRowPanels), across = CeilDiv(column_panels, kItemColumnPanels);
    if (threads_ > 1) {  // enough items that no thread waits long for the last one
      while (down * across < 6 * threads_ && down < panels.parts) down = std::min(panels.parts, 2 * down);
      while (down * across < 6 * threads_ && across < column_panels) across = std::min(column_panels, 2 * across);
    }
    const Deal rows{panels.parts, down}, columns{column_panels, across};
    Share(down * across, [&](int64_t i) {  // items with the same columns follow each other
      const int64_t r = i % down, c = i / down;
      for (int64_t k = 0; k < s.depth; k += depth_)
        for (int64_t a = rows.Begin(r); a < rows.Begin(r + 1); ++a)
          for (int64_t b = columns.Begin(c); b < columns.Begin(c + 1); ++b) MultiplyPanels(s, panels, a, b, k);
    });
  }

  void MultiplyPanels(const Slab& s, const Deal& panels, int64_t a, int64_t b, int64_t k) const {
    const int64_t depth = std::min(depth_, s.depth - k), column = b * kernel_.columns;
    PanelOutput out;
    out.rows = panels.Size(a), out.columns = std::min(kernel_.columns, s.columns - column);
    out.first = s.k + k == 0;
    out.finish = !plain_ && s.k + k + depth == p_.k;
    out.c = const_cast<void*>(At(p_.c, p_.c_type, (s.row + panels.Begin(a)) * p_.ldc + s.column + column));
    out.c_type = p_.c_type, out.ldc = p_.ldc;
    out.accumulate = p_.accumulate, out.alpha = p_.alpha;
    if (p_.bias) out.bias = At(p_.bias, p_.bias_type, s.column + column), out.bias_type = p_.bias_type;
    if (own_sums_) {
      out.sums = sums_ + panels.Begin(a) * slab_columns_ + column, out.ld_sums = slab_columns_;
    } else {  // the only part of K, or sums are kept in c
      out.sums = static_cast<float*>(out.c), out.ld_sums = p_.ldc;
    }
    kernel_.multiply(a_ + a * panel_a_, out.rows, PanelOfB(s, b, k), k, depth, out);
  }

  const PackedKernel& kernel_;
  const BlockProduct& p_;
  const int threads_;
  const int64_t slab_depth_, slab_rows_, slab_columns_, depth_, element_;
  int64_t panel_a_, panel_b_;  // bytes of a panel
  const bool plain_, own_sums_;
  std::byte *a_ = nullptr, *b_ = nullptr;
  float* sums_ = nullptr;
};

bool HasAvx512Bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

/// AMX, and the kernel's leave to use its registers: Linux grants it to processes that ask.
bool EnableAmx() {
#if defined(__x86_64__) && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kAmxBf16) || !(d & kAmxTile)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

const PackedKernel* AmxKernel() {
  static const PackedKernel* const kernel = HasAvx512() && EnableAmx() ? kCompiledAmxKernel : nullptr;
  return kernel;
}

const PackedKernel* Avx512Kernel() {
  static const PackedKernel* const kernel = HasAvx512() ? kCompiledAvx512Kernel : nullptr;
  return kernel;
}

const PackedKernel* PackedKernelFor(DType dtype) {
  static const bool bf16_instructions = HasAvx512Bf16();
  if (dtype == DType::f32 || dtype == DType::f16) return Avx512Kernel();
  if (dtype != DType::bf16) return nullptr;
  if (const PackedKernel* amx = AmxKernel()) return amx;
  if (bf16_instructions) return nullptr;  // oneDNN uses them
  return Avx512Kernel();
}

void MultiplyPacked(const PackedKernel& kernel, const KernelContext& context, const BlockProduct& p) {
  if (kernel.few_rows && p.m <= kFewRows && p.transpose_b && !p.transpose_a) {
    const int64_t slab = Piece(p.k, kSlabDepth, kernel.depth_unit),
                  depth = Piece(slab, kernel.depth, kernel.depth_unit);
    return ParallelFor(context, CeilDiv(p.n, 16), [&](int64_t i) { kernel.few_rows(p, 16 * i, slab, depth); });
  }
  static thread_local Buffers buffers;
  const int64_t panels = CeilDiv(p.m, kernel.rows) * CeilDiv(p.n, kernel.columns);
  const double work = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const int threads = work < 1 << 18 ? 1 : static_cast<int>(std::min<int64_t>(context.threads, panels));
  const Product product(kernel, p, std::max(1, threads), buffers);
  if (threads <= 1) return product.Run();
#pragma omp parallel num_threads(threads)
  product.Run();
}

}  // namespace ds::detail
