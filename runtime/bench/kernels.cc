#include "runtime/bench/kernels.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "kernels/matmul.h"
#include "kernels/workspace.h"
#include "runtime/base/error.h"
#include "runtime/bench/row_kernels.h"
#include "runtime/plan/price.h"
#include "runtime/train/peak_memory.h"

namespace ds {
namespace {

double PeakOf(const DevicePeaks& peaks, DType dtype) {
  const auto at = peaks.flops.find(dtype);
  return at == peaks.flops.end() ? 0 : at->second;
}

int64_t Elements(const AttentionShape& s, int64_t heads) { return s.batch * s.tokens * heads * s.head_size; }

int64_t BytesOf(const MatMulKey& key) {
  const int64_t size = static_cast<int64_t>(SizeOf(key.ab)), aux = key.epilogue == MatMulEpilogue::none ? 1 : 2;
  return size * (key.m * key.k + key.k * key.n) + aux * static_cast<int64_t>(SizeOf(key.c)) * key.m * key.n;
}

int64_t BytesOf(const BenchAttention& a) {
  const AttentionShape& s = a.shape;
  const int64_t size = static_cast<int64_t>(SizeOf(a.dtype));
  return size * (2 * Elements(s, s.heads + 2 * s.kv_heads) + 2 * Elements(s, s.heads)) +
         8 * s.batch * s.heads * s.tokens;
}

/// Measures one thing after another, each with its share of the time.
class KernelBench {
 public:
  KernelBench(BenchDevice& device, const BenchWork& work, const DevicePeaks& peaks, const Budget& budget,
              BenchTable& table, MachineFile& file)
      : device_(device), work_(work), peaks_(peaks), budget_(budget), table_(table), file_(file) {}

  void Run() {
    const std::vector<RowKernel> rows = RowKernelsOf(work_, device_.device().kind);
    remaining_ = static_cast<int>(work_.products.size() + 3 * work_.attention.size() + rows.size());
    const MachineFile old = file_;
    file_.matmul.clear(), file_.matmul_choices.clear(), file_.attention.clear();
    file_.matmul_library_version = OnGpu() ? MatMulLibraryVersion() : 0;
    for (const BenchProduct& product : work_.products) Try("matmul " + product.what, [&] { Product(product); });
    for (const BenchAttention& attention : work_.attention) Try("attention", [&] { Attention(attention); });
    for (const RowKernel& kernel : rows) Try(kernel.what, [&] { Rows(kernel); });
    if (left_out_ > 0) {
      if (file_.matmul.empty() && file_.attention.empty() && failed_ == 0) {
        file_ = old;
        throw RuntimeError("nothing was measured; the table says why");
      }
      KeepOld(old);
    }
    if (file_.matmul_choices.empty()) file_.matmul_library_version = 0;
    if (failed_ > 0) throw RuntimeError("of the kernels " + std::to_string(failed_) + " failed; the table says why");
  }

 private:
  /// One kernel that fails, such as an algorithm that the library suggests and then refuses, costs its own line alone.
  void Try(const std::string& what, const std::function<void()>& measure) {
    try {
      measure();
    } catch (const std::exception& error) {
      ++failed_;
      table_.Add({what, "", 0, 0, RateUnit::flops, std::string("failed: ") + error.what()});
    }
  }

  /// What an earlier measurement of the file has and this one left out stays; choices only where the library is the
  /// same.
  void KeepOld(const MachineFile& old) {
    const auto keep = [](const auto& from, auto& to, auto key) {
      const size_t measured = to.size();
      for (const auto& entry : from) {
        const auto same = [&](const auto& other) { return key(other) == key(entry); };
        if (std::none_of(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(measured), same)) to.push_back(entry);
      }
    };
    keep(old.matmul, file_.matmul,
         [](const MatMulRate& r) { return std::tuple(r.dtype, r.m, r.n, r.k, r.transpose_a, r.transpose_b); });
    keep(old.attention, file_.attention, [](const AttentionRate& r) {
      return std::tuple(r.dtype, r.tokens, r.head_size, r.backward, r.deterministic);
    });
    if (old.matmul_library_version == file_.matmul_library_version)
      keep(old.matmul_choices, file_.matmul_choices, [](const MatMulChoice& c) { return c.key; });
  }

  bool OnGpu() const { return device_.device().kind == DeviceKind::cuda; }

  /// Whether there is time for work of so many operations or bytes, and memory; says so where there is not.
  bool Fits(BenchLine& line, double seconds, int64_t bytes) {
    --remaining_;
    // Some memory is left for libraries and for others.
    const int64_t free = device_.gpu() ? device_.gpu()->Memory().free : AvailableMemory();
    if (budget_.Over() || seconds > budget_.Left())
      line.note = "left out: no time; --seconds gives more";
    else if (free > 0 && bytes > free / 4 * 3)
      line.note = "left out: wants " + FormatBytes(bytes) + " of memory, " + FormatBytes(free) + " are free";
    else
      return true;
    ++left_out_;
    table_.Add(line);
    return false;
  }
  double Share() const { return budget_.Share(remaining_ + 1); }

  void Product(const BenchProduct& product) {
    const MatMulKey& key = product.key;
    BenchLine line{"matmul " + product.what, ShapeText(key), 0, PeakOf(peaks_, key.ab), RateUnit::flops, ""};
    const double flops = Flops(key);
    if (!Fits(line, line.limit > 0 ? 2 * flops / line.limit : 0, BytesOf(key))) return;
    table_.Progress(line.what + " " + line.shape);
    double seconds = 0;
    if (OnGpu()) {
      // Each candidate is run 16 times (matmul_timing_cuda.cc); the first few suggestions are the likeliest.
      const double once = line.limit > 0 ? 2 * flops / line.limit : 1e-3;
      const int limit = static_cast<int>(std::clamp(Share() / (16 * once), 1.0, 16.0));
      const std::vector<MatMulCandidate> candidates = TimeMatMulCandidates(device_.context(), key, limit);
      if (!candidates.empty()) {
        seconds = candidates.front().seconds;
        line.note = candidates.front().description;
        file_.matmul_choices.push_back({key, candidates.front().algorithm, seconds});
      } else if (IsFp8(key.ab)) {
        line.note = "the library has no such product on this GPU: training.fp8 will not run";
        return table_.Add(line);
      } else if (key.epilogue != MatMulEpilogue::none && key.epilogue != MatMulEpilogue::bias) {
        line.note = "the library does not fuse it";  // training computes the product and what follows apart
        return table_.Add(line);
      } else {
        line.note = "the library does not know it: our own kernel";
      }
    }
    if (seconds == 0) seconds = TimeProduct(key);
    line.achieved = flops / seconds;
    table_.Add(line);
    Keep({key.ab, key.m, key.n, key.k, key.transpose_a, key.transpose_b, line.achieved});
  }

  double TimeProduct(const MatMulKey& key) {
    const BenchTensor a(device_, key.ab, key.transpose_a ? Shape{key.k, key.m} : Shape{key.m, key.k});
    const BenchTensor b(device_, key.ab, key.transpose_b ? Shape{key.n, key.k} : Shape{key.k, key.n});
    const BenchTensor c(device_, key.c, {key.m, key.n});
    const bool has_bias = key.epilogue == MatMulEpilogue::bias;
    const BenchTensor bias(device_, key.ab, {has_bias ? key.n : 1});
    MatMulOptions options;
    options.transpose_a = key.transpose_a, options.transpose_b = key.transpose_b, options.accumulate = key.accumulate;
    if (has_bias) options.bias = bias;
    return device_.Time(Share(), [&] { MatMul(device_.context(), a, b, c, options); }).seconds;
  }

  /// Products that differ in what the file does not tell apart (a bias) count once, the faster of them.
  void Keep(const MatMulRate& rate) {
    for (MatMulRate& known : file_.matmul) {
      MatMulRate same = known;
      same.flops_per_second = rate.flops_per_second;
      if (same != rate) continue;
      known.flops_per_second = std::max(known.flops_per_second, rate.flops_per_second);
      return;
    }
    file_.matmul.push_back(rate);
  }

  void Attention(const BenchAttention& attention) {
    const AttentionShape& s = attention.shape;
    // Half of the scores are computed: a product counts tokens^2 * head_size operations a head.
    const double product =
        static_cast<double>(s.batch * s.heads * s.tokens) * static_cast<double>(s.tokens * s.head_size);
    const std::string shape = std::to_string(s.batch) + " x " + std::to_string(s.tokens) + ", " +
                              std::to_string(s.heads) +
                              (s.kv_heads != s.heads ? "/" + std::to_string(s.kv_heads) : "") + " heads of " +
                              std::to_string(s.head_size) + " " + NameOf(attention.dtype);
    BenchLine line{"attention forward", shape, 0, PeakOf(peaks_, attention.dtype), RateUnit::flops, ""};
    const double once = line.limit > 0 ? 4 * product / line.limit : 0;
    if (!Fits(line, once, BytesOf(attention))) {
      remaining_ -= 2;
      return;
    }
    const DType wide = attention.dtype == DType::f64 ? DType::f64 : DType::f32;
    const Shape qkv_shape{s.batch, s.tokens, s.heads + 2 * s.kv_heads, s.head_size};
    const Shape out_shape{s.batch, s.tokens, s.heads * s.head_size};
    const BenchTensor qkv(device_, attention.dtype, qkv_shape), dqkv(device_, attention.dtype, qkv_shape);
    const BenchTensor out(device_, attention.dtype, out_shape), dout(device_, attention.dtype, out_shape);
    const BenchTensor log_sum_exp(device_, wide, {s.batch, s.heads, s.tokens});
    const auto add = [&](bool backward, bool deterministic, double flops, const std::function<void()>& body) {
      table_.Progress(line.what + " " + line.shape);
      line.achieved = flops / device_.Time(Share(), body).seconds;
      table_.Add(line);
      file_.attention.push_back({attention.dtype, s.tokens, s.head_size, backward, deterministic, line.achieved});
    };
    Forget(attention);
    add(false, true, 2 * product, [&] { AttentionForward(device_.context(), s, qkv, {}, out, log_sum_exp); });
    line.what = "attention backward", line.achieved = 0;
    if (Fits(line, 3 * once, 0))
      add(true, true, 5 * product,
          [&] { AttentionBackward(device_.context(), s, dout, qkv, out, log_sum_exp, {}, dqkv); });
    if (!OnGpu()) return void(--remaining_);  // a CPU's is the same, deterministic or not
    line.what = "attention backward, any order", line.achieved = 0;
    if (Fits(line, 3 * once, 0))
      add(true, false, 5 * product,
          [&] { AttentionBackward(device_.Loose(), s, dout, qkv, out, log_sum_exp, {}, dqkv); });
  }

  /// The file has one rate of a length and head size: the last measured.
  void Forget(const BenchAttention& attention) {
    std::erase_if(file_.attention, [&](const AttentionRate& known) {
      return known.dtype == attention.dtype && known.tokens == attention.shape.tokens &&
             known.head_size == attention.shape.head_size;
    });
  }

  void Rows(const RowKernel& kernel) {
    BenchLine line{kernel.what, kernel.shape, 0, peaks_.memory_bytes, RateUnit::bytes, ""};
    const double bytes = static_cast<double>(kernel.bytes);
    if (!Fits(line, line.limit > 0 ? bytes / line.limit : 0, 2 * kernel.bytes)) return;
    table_.Progress(line.what + " " + line.shape);
    line.achieved = bytes / kernel.time(device_, Share());
    table_.Add(line);
  }

  BenchDevice& device_;
  const BenchWork& work_;
  const DevicePeaks& peaks_;
  const Budget& budget_;
  BenchTable& table_;
  MachineFile& file_;
  int remaining_ = 0, failed_ = 0, left_out_ = 0;
};

}  // namespace

int64_t WorkspaceOf(const BenchWork& work) {
  int64_t bytes = std::max(MatMulWorkspaceBytes(), RowKernelWorkspace(work));
  for (const BenchAttention& attention : work.attention)
    for (const bool backward : {false, true})
      bytes = std::max(bytes, AttentionWorkspaceBytes(attention.shape, attention.dtype, backward));
  return bytes;
}

void MeasureKernels(BenchDevice& device, const BenchWork& work, const DevicePeaks& peaks, const Budget& budget,
                    BenchTable& table, MachineFile& file) {
  KernelBench(device, work, peaks, budget, table, file).Run();
}

}  // namespace ds
