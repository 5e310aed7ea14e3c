// Attention on the GPU: every way of computing it against the fp64 kernel of the CPU, within bounds that follow from
// the roundings; the same bits in every run; dropout masks equal to the CPU's; documents that do not see each other.
#include "kernels/attention.h"

#include <array>
#include <optional>
#include <thread>

#include "kernels/attention_paths.h"
#include "kernels/workspace.h"
#include "test/unit/gpu/attention_bounds.h"
#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/first_keys.h"

namespace ds::test {
namespace {

struct Case {
  AttentionShape shape;
  float dropout = 0;
  int64_t offset = 0;  ///< elements before the arrays
  bool deterministic = true;
  std::vector<int64_t> documents = {};  ///< of FirstKeys()
};

const AttentionDropout kStream{0, {0x1234567890abcdefu, 42}, 3};

AttentionDropout DropoutOf(const Case& c) {
  AttentionDropout dropout = kStream;
  dropout.p = c.dropout;
  return dropout;
}

/// The factor of probability `index` counted from sample 0, written from the documentation of the stream alone.
std::function<double(uint64_t)> FactorOf(const Case& c) {
  const AttentionDropout d = DropoutOf(c);
  const uint64_t offset = d.first_sample * static_cast<uint64_t>(c.shape.heads * c.shape.tokens * c.shape.tokens);
  return [d, offset](uint64_t index) {
    if (d.p == 0) return 1.0;
    const uint64_t i = offset + index;
    const auto words = Philox({static_cast<uint32_t>(i / 4), static_cast<uint32_t>((i / 4) >> 32),
                               static_cast<uint32_t>(d.stream.site), static_cast<uint32_t>(d.stream.site >> 32)},
                              {static_cast<uint32_t>(d.stream.seed), static_cast<uint32_t>(d.stream.seed >> 32)});
    return words[i % 4] >= static_cast<double>(d.p) * 4294967296.0 ? 1 / (1 - static_cast<double>(d.p)) : 0.0;
  };
}

Shape QkvShape(const AttentionShape& s) { return {s.batch, s.tokens, s.heads + 2 * s.kv_heads, s.head_size}; }
Shape OutShape(const AttentionShape& s) { return {s.batch, s.tokens, s.heads * s.head_size}; }
Shape RowsShape(const AttentionShape& s) { return {s.batch, s.heads, s.tokens}; }

/// A way of computing attention.
struct Path {
  decltype(&AttentionForward) forward;
  decltype(&AttentionBackward) backward;
};
const Path kOwn{&cuda::OwnAttentionForward, &cuda::OwnAttentionBackward};
const Path kChosen{&AttentionForward, &AttentionBackward};
void CudnnForward(const KernelContext& context, const AttentionShape& s, Tensor qkv, const AttentionDropout& dropout,
                  Tensor out, Tensor log_sum_exp, Tensor first_key) {
  REQUIRE(!first_key);
  REQUIRE(cuda::CudnnAttentionForward(context, s, qkv, dropout, out, log_sum_exp));
}
void CudnnBackward(const KernelContext& context, const AttentionShape& s, Tensor dout, Tensor qkv, Tensor out,
                   Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv, Tensor first_key) {
  REQUIRE(!first_key);
  REQUIRE(cuda::CudnnAttentionBackward(context, s, dout, qkv, out, log_sum_exp, dropout, dqkv));
}
const Path kCudnn{&CudnnForward, &CudnnBackward};

void WgmmaBackward(const KernelContext& context, const AttentionShape& s, Tensor dout, Tensor qkv, Tensor out,
                   Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv, Tensor first_key) {
  REQUIRE(!first_key);
  REQUIRE(cuda::WgmmaAttentionBackward(context, s, dout, qkv, out, log_sum_exp, dropout, dqkv));
}
const Path kWgmma{&cuda::OwnAttentionForward, &WgmmaBackward};

/// Empty where the case has no documents.
Array FirstKeysOf(const Case& c) {
  const std::vector<int32_t> first = FirstKeys(c.shape.batch, c.shape.tokens, c.documents);
  return first.empty() ? Array() : Array::OfInts({c.shape.batch, c.shape.tokens}, first);
}

/// {out, log_sum_exp, dqkv}
using Results = std::array<Array, 3>;

/// One run on the GPU, all of whose outputs are poisoned before.
Results RunOnGpu(const Path& path, const Case& c, const Array& qkv, const Array& dout) {
  const AttentionShape& s = c.shape;
  const GpuContext gpu(AttentionWorkspaceBytes(s, qkv.dtype(), true));
  KernelContext context = gpu;
  context.deterministic = c.deterministic;
  const GpuArray in(qkv, c.offset), d(dout, c.offset), out(qkv.dtype(), OutShape(s), c.offset);
  const GpuArray rows(StatisticsType(qkv.dtype()), RowsShape(s)), dqkv(qkv.dtype(), QkvShape(s), c.offset);
  std::optional<GpuArray> keys;
  if (!c.documents.empty()) keys.emplace(FirstKeysOf(c));
  const Tensor first_key = keys ? Tensor(*keys) : Tensor();
  path.forward(context, s, in, DropoutOf(c), out, rows, first_key);
  path.backward(context, s, d, in, out, rows, DropoutOf(c), dqkv, first_key);
  return {out.Host(), rows.Host(), dqkv.Host()};
}

/// The same in fp64 on the CPU.
Results Reference(const Case& c, const Array& qkv, const Array& dout) {
  const KernelContext context{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  const AttentionShape& s = c.shape;
  const Array in = qkv.To(DType::f64);
  Array out(DType::f64, OutShape(s)), rows(DType::f64, RowsShape(s)), dqkv(DType::f64, QkvShape(s));
  const Array keys = FirstKeysOf(c);
  const Tensor first_key = c.documents.empty() ? Tensor() : keys.tensor();
  AttentionForward(context, s, in, DropoutOf(c), out, rows, first_key);
  AttentionBackward(context, s, dout.To(DType::f64), in, out, rows, DropoutOf(c), dqkv, first_key);
  return {out, rows, dqkv};
}

/// Every element within its bound.
void CheckWithin(const char* name, const Array& got, const Array& want, const Values& bounds) {
  INFO(name << " " << NameOf(got.dtype()) << " " << got.shape().str());
  REQUIRE(got.size() == want.size());
  REQUIRE(bounds.size() == want.size());
  size_t worst = 0;
  double worst_ratio = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(got[i] - want[i]);
    const double ratio = std::isnan(error) ? HUGE_VAL : error == 0 ? 0 : error / bounds[i];  // what is dropped is exact
    if (ratio > worst_ratio) {
      worst = i;
      worst_ratio = ratio;
    }
  }
  if (worst_ratio > 1)
    FAIL_CHECK("element " << worst << ": got " << got[worst] << ", want " << want[worst] << ", bound "
                          << bounds[worst]);
}

void CheckCase(const Path& path, const Case& c, DType dtype) {
  const AttentionShape& s = c.shape;
  if (LeftOut(QkvShape(s).numel())) return;
  CAPTURE(NameOf(dtype), s.batch, s.tokens, s.heads, s.kv_heads, s.head_size, c.dropout, c.offset, c.documents);
  const Array qkv = Array::Random(dtype, QkvShape(s), 1), dout = Array::Random(dtype, OutShape(s), 2);
  const Results got = RunOnGpu(path, c, qkv, dout), want = Reference(c, qkv, dout);
  const AttentionBounds bounds =
      BoundsOf(s, dtype, qkv.values(), dout.values(), want[2].values(), FactorOf(c),
               path.backward != kOwn.backward && s.heads > s.kv_heads, FirstKeys(s.batch, s.tokens, c.documents));
  CheckWithin("out", got[0], want[0], bounds.out);
  CheckWithin("log_sum_exp", got[1], want[1], bounds.log_sum_exp);
  CheckWithin("dqkv", got[2], want[2], bounds.dqkv);
  if (!c.deterministic) return;
  const Results again = RunOnGpu(path, c, qkv, dout);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("result " << i << " of a second run");
    CHECK(got[i] == again[i]);
  }
}

constexpr DType kTrained[] = {DType::f32, DType::bf16, DType::f16};
constexpr std::array<int64_t, 2> kHeads[] = {{1, 1}, {12, 12}, {8, 2}, {5, 1}};
constexpr int64_t kHeadSizes[] = {16, 64, 80, 128, 256};
constexpr int64_t kTokens[] = {1, 7, 64, 129};
constexpr int64_t kManyTokens = 520;  ///< nine blocks of 64, the last with few; fp64 takes their square

TEST_CASE("GPU: own attention agrees with fp64 for any heads, sizes and tokens") {
  for (DType dtype : kTrained)
    for (const auto& [heads, kv_heads] : kHeads)
      for (int64_t size : kHeadSizes)
        for (int64_t tokens : kTokens) CheckCase(kOwn, {{2, tokens, heads, kv_heads, size}}, dtype);
}

TEST_CASE("GPU: own attention agrees with fp64 over many blocks", "[slow]") {
  for (DType dtype : kTrained) {
    for (int64_t size : kHeadSizes) CheckCase(kOwn, {{1, kManyTokens, 8, 2, size}}, dtype);
    CheckCase(kOwn, {{1, kManyTokens, 12, 12, 64}}, dtype);
    CheckCase(kOwn, {{1, kManyTokens, 5, 1, 128}}, dtype);
  }
}

TEST_CASE("GPU: own attention in f64 agrees with the CPU's") {
  for (int64_t size : kHeadSizes) CheckCase(kOwn, {{2, 129, 4, 2, size}}, DType::f64);
  CheckCase(kOwn, {{1, 70, 2, 1, 7}, 0.2f, 3}, DType::f64);
}

TEST_CASE("GPU: own attention takes rows that 16-byte accesses do not fit") {
  for (DType dtype : kTrained) {
    for (int64_t size : {7, 24, 100, 129}) CheckCase(kOwn, {{2, 70, 4, 2, size}}, dtype);
    for (int64_t size : {64, 128}) CheckCase(kOwn, {{1, 130, 2, 1, size}, 0, 3}, dtype);
  }
}

TEST_CASE("GPU: attention with dropout agrees with fp64 under the CPU's masks") {
  for (DType dtype : kTrained)
    for (int64_t size : kHeadSizes)
      for (int64_t tokens : {7, 129, 258}) CheckCase(kChosen, {{2, tokens, 4, 2, size}, 0.3f}, dtype);
}

TEST_CASE("GPU: attention drops what the CPU drops") {
  // Values of 1 in one column each show the probabilities.
  const Case c{{2, 61, 3, 1, 64}, 0.5f};
  const AttentionShape& s = c.shape;
  for (DType dtype : kTrained) {
    CAPTURE(NameOf(dtype));
    Array qkv = Array::Random(dtype, QkvShape(s), 1);
    for (int64_t row = 0; row < s.batch * s.tokens; ++row)
      for (int64_t column = 0; column < s.head_size; ++column)
        qkv.Set(static_cast<size_t>((row * 5 + 4) * s.head_size + column), row % s.tokens == column ? 1 : 0);
    const Results got = RunOnGpu(kChosen, c, qkv, Array::Random(dtype, OutShape(s), 2));
    Array want(dtype, OutShape(s)), rows(DType::f32, RowsShape(s));
    AttentionForward({}, s, qkv, DropoutOf(c), want, rows);
    size_t dropped = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      REQUIRE((got[0][i] == 0) == (want[i] == 0));
      dropped += want[i] == 0;
    }
    CHECK(dropped > want.size() / 4);
    CHECK(dropped < want.size());
  }
}

/// A case with documents, counted over both of its samples: of one token, around the tiles of 32 and 64 tokens, and
/// longer than one.
Case Packed(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t size, float dropout = 0) {
  Case c{{2, tokens, heads, kv_heads, size}, dropout};
  for (int64_t begin : {1, 31, 40, 64, 65, 200, 250}) c.documents.push_back(begin % (2 * tokens));
  return c;
}

TEST_CASE("GPU: attention within documents agrees with fp64 for any heads, sizes and tokens") {
  for (DType dtype : kTrained)
    for (const auto& [heads, kv_heads] : kHeads)
      for (int64_t size : kHeadSizes)
        for (int64_t tokens : kTokens) CheckCase(kOwn, Packed(tokens, heads, kv_heads, size), dtype);
}

TEST_CASE("GPU: attention within documents agrees with fp64 over many blocks, rows that fit no access, and in f64") {
  for (DType dtype : kTrained)
    for (int64_t size : kHeadSizes) {
      CheckCase(kOwn, {{1, kManyTokens, 8, 2, size}, 0, 0, true, {3, 63, 64, 250, 251, 320, 500}}, dtype);
      CheckCase(kOwn, {{1, kManyTokens, 2, 1, size}, 0, 0, true, {kManyTokens - 1}}, dtype);
    }
  for (DType dtype : kTrained)
    for (int64_t size : {7, 24, 100, 129}) CheckCase(kOwn, Packed(70, 4, 2, size), dtype);
  for (int64_t size : kHeadSizes) CheckCase(kOwn, Packed(129, 4, 2, size), DType::f64);
}

TEST_CASE("GPU: attention within documents agrees with fp64 under the CPU's masks") {
  for (DType dtype : kTrained)
    for (int64_t size : kHeadSizes)
      for (int64_t tokens : {7, 129, 258}) CheckCase(kChosen, Packed(tokens, 4, 2, size, 0.3f), dtype);
}

TEST_CASE("GPU: attention within documents is our own, and first keys of 0 change no bit of it") {
  for (DType dtype : kTrained)
    for (int64_t size : {64, 128, 256}) {
      CAPTURE(NameOf(dtype), size);
      Case c = Packed(258, 4, 2, size);
      const Array qkv = Array::Random(dtype, QkvShape(c.shape), 1), dout = Array::Random(dtype, OutShape(c.shape), 2);
      CHECK(RunOnGpu(kChosen, c, qkv, dout) == RunOnGpu(kOwn, c, qkv, dout));
      c.documents = {0};
      const Results zeros = RunOnGpu(kOwn, c, qkv, dout);
      c.documents = {};
      CHECK(zeros == RunOnGpu(kOwn, c, qkv, dout));
    }
}

TEST_CASE("GPU: attention within documents survives large scores") {
  for (DType dtype : kTrained) {
    const Case c = Packed(130, 2, 1, 64);
    const Array qkv = Array::Random(dtype, QkvShape(c.shape), 6, 20);  // scores in the hundreds
    const Array dout = Array::Random(dtype, OutShape(c.shape), 7);
    const Results got = RunOnGpu(kOwn, c, qkv, dout), want = Reference(c, qkv, dout);
    CheckClose("out", got[0], want[0].values(), dtype == DType::f32 ? 1e-3 : 2e-2);
    CheckClose("log_sum_exp", got[1], want[1].values(), 2e-6);
  }
}

/// Whether the first GPU is a Hopper, and this program has code for it: it then must know these shapes.
bool HasWgmma() {
  const AttentionShape s{1, 8, 1, 1, 64};
  const GpuContext context(AttentionWorkspaceBytes(s, DType::bf16, true));
  const GpuArray qkv(Array::Random(DType::bf16, QkvShape(s), 1)), out(Array::Random(DType::bf16, OutShape(s), 2));
  const GpuArray rows(Array::Random(DType::f32, RowsShape(s), 3)), dqkv(DType::bf16, QkvShape(s));
  const bool knows = cuda::WgmmaAttentionBackward(context, s, out, qkv, out, rows, kStream, dqkv);
  if (!knows) std::printf("left out: attention by warpgroups needs a GPU of compute capability 9.0\n");
  return knows;
}

TEST_CASE("GPU: attention's backward by warpgroups agrees with fp64") {
  if (!HasWgmma()) return;
  for (DType dtype : {DType::bf16, DType::f16}) {
    for (int64_t tokens : {1, 7, 63, 64, 65, 127, 128, 129, 200, 257})
      CheckCase(kWgmma, {{2, tokens, 4, 2, 64}}, dtype);
    CheckCase(kWgmma, {{1, 1000, 12, 12, 64}}, dtype);
    CheckCase(kWgmma, {{3, 300, 5, 1, 64}}, dtype);
  }
}

TEST_CASE("GPU: attention's backward by warpgroups survives large scores, and refuses what it does not know") {
  if (!HasWgmma()) return;
  const AttentionShape s{1, 130, 2, 1, 64};
  const Array qkv = Array::Random(DType::bf16, QkvShape(s), 6, 20), dout = Array::Random(DType::bf16, OutShape(s), 7);
  const Results got = RunOnGpu(kWgmma, {s}, qkv, dout), want = RunOnGpu(kOwn, {s}, qkv, dout);
  CheckClose("dqkv", got[2], want[2].values(), 2e-2);
  for (const Case& c : {Case{{1, 130, 2, 1, 80}}, Case{{1, 130, 2, 1, 64}, 0.5f}, Case{{1, 130, 2, 1, 64}, 0, 3}}) {
    const GpuContext context(AttentionWorkspaceBytes(c.shape, DType::bf16, true));
    const GpuArray in(DType::bf16, QkvShape(c.shape), c.offset), out(DType::bf16, OutShape(c.shape), c.offset);
    const GpuArray rows(DType::f32, RowsShape(c.shape)), dqkv(DType::bf16, QkvShape(c.shape), c.offset);
    CHECK_FALSE(cuda::WgmmaAttentionBackward(context, c.shape, out, in, out, rows, DropoutOf(c), dqkv));
  }
}

TEST_CASE("GPU: cuDNN's attention agrees with fp64", "[library]") {
  for (int64_t size : {64, 80, 128, 256}) CheckCase(kCudnn, {{2, 129, 4, 2, size}}, DType::bf16);
  for (int64_t tokens : {1, 7}) CheckCase(kCudnn, {{2, tokens, 4, 2, 64}}, DType::bf16);
  CheckCase(kCudnn, {{1, 1000, 12, 12, 64}}, DType::bf16);
  CheckCase(kCudnn, {{1, 1000, 5, 1, 128}}, DType::bf16);
  CheckCase(kCudnn, {{2, 129, 4, 4, 128}}, DType::f16);
  CheckCase(kCudnn, {{2, 200, 4, 1, 64}}, DType::f16);
}

TEST_CASE("GPU: cuDNN's attention that may add in any order agrees with fp64", "[library]") {
  CheckCase(kCudnn, {{2, 129, 4, 2, 64}, 0, 0, false}, DType::bf16);
  CheckCase(kCudnn, {{1, 1000, 5, 1, 128}, 0, 0, false}, DType::bf16);
}

TEST_CASE("GPU: cuDNN's attention in parts gives what our kernel gives", "[library][slow]") {
  for (const AttentionShape& s : {AttentionShape{5, 2048, 16, 4, 64}, AttentionShape{1, 4096, 16, 4, 64}}) {
    const CudnnAttentionPart part = CudnnAttentionPartOf(s, true);
    REQUIRE((part.samples < s.batch || part.kv_heads < s.kv_heads));
    const Array qkv = Array::Random(DType::bf16, QkvShape(s), 1), dout = Array::Random(DType::bf16, OutShape(s), 2);
    const Results got = RunOnGpu(kCudnn, {s}, qkv, dout), want = RunOnGpu(kOwn, {s}, qkv, dout);
    // Wide, since cuDNN rounds each head's gradients before it sums them; other samples' or heads' would be far off.
    CheckClose("dqkv", got[2], want[2].values(), 0.5);
  }
}

TEST_CASE("GPU: attention chooses a way for every shape", "[library]") {
  for (DType dtype : kTrained)
    for (int64_t size : {16, 60, 80}) CheckCase(kChosen, {{2, 129, 4, 2, size}}, dtype);
  CheckCase(kChosen, {{2, 129, 4, 2, 64}, 0, 3}, DType::bf16);
  CheckCase(kChosen, {{0, 8, 2, 1, 64}}, DType::bf16);
}

TEST_CASE("attention's workspace fits its limit and does not grow past it") {
  for (int64_t tokens : {1, 129, 1024, 4096, 8192})
    for (int64_t batch : {1, 3, 32})
      for (const auto& [heads, kv_heads] : kHeads)
        for (bool deterministic : {false, true}) {
          const AttentionShape s{batch, tokens, heads, kv_heads, 128};
          CAPTURE(tokens, batch, heads, kv_heads, deterministic);
          const CudnnAttentionPart part = CudnnAttentionPartOf(s, deterministic);
          CHECK(part.bytes <= kCudnnAttentionLimit);
          CHECK(part.bytes <= AttentionWorkspaceBytes(s, DType::bf16, true));
          CHECK(part.samples <= batch);
          CHECK(part.kv_heads <= kv_heads);
          CHECK(part.samples * part.kv_heads * deterministic * 2 * (heads / kv_heads) * tokens * tokens <= part.bytes);
        }
}

TEST_CASE("GPU: attention survives large scores", "[library]") {
  for (DType dtype : kTrained) {
    const Case c{{1, 130, 2, 1, 64}};
    const Array qkv = Array::Random(dtype, QkvShape(c.shape), 6, 20);  // scores in the hundreds
    const Array dout = Array::Random(dtype, OutShape(c.shape), 7);
    for (const Path& path : {kOwn, kChosen}) {
      const Results got = RunOnGpu(path, c, qkv, dout), want = Reference(c, qkv, dout);
      CheckClose("out", got[0], want[0].values(), dtype == DType::f32 ? 1e-3 : 2e-2);
      CheckClose("log_sum_exp", got[1], want[1].values(), 2e-6);
    }
  }
}

TEST_CASE("GPU: attention refuses heads that are too large, and too small a workspace") {
  const AttentionShape large{1, 4, 1, 1, 264};
  const GpuArray qkv(DType::bf16, QkvShape(large)), out(DType::bf16, OutShape(large)),
      rows(DType::f32, RowsShape(large));
  CHECK_THROWS_AS(AttentionForward(GpuContext(), large, qkv, {}, out, rows), std::invalid_argument);
  const AttentionShape s{1, 4, 1, 1, 64};
  const GpuArray in(DType::bf16, QkvShape(s)), y(DType::bf16, OutShape(s)), lse(DType::f32, RowsShape(s));
  CHECK_THROWS_AS(AttentionBackward(GpuContext(), s, y, in, y, lse, {}, in), std::invalid_argument);
  CHECK_THROWS_AS(AttentionForward(GpuContext(), s, in, {1.0f, {}, 0}, y, lse), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
