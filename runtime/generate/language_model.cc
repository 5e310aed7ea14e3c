#include "runtime/generate/language_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/segments/segment.h"

namespace ds {
namespace {

constexpr int64_t kWindowStep = 32;  // windows are rounded up to this, so that short texts cost little
constexpr std::align_val_t kAlignment{64};

/// Aligned memory, zero at first.
class Block {
 public:
  explicit Block(int64_t bytes = 0)
      : bytes_(bytes),
        data_(static_cast<char*>(::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 64)), kAlignment))) {
    std::memset(data_, 0, static_cast<size_t>(bytes));
  }
  ~Block() { ::operator delete(data_, kAlignment); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  Tensor At(int64_t offset, DType dtype, Shape shape) const { return Tensor(data_ + offset, dtype, shape); }
  Tensor Bytes() const { return Tensor(data_, DType::u8, Shape{bytes_}); }

 private:
  int64_t bytes_;
  char* data_;
};

/// Segments and memory for windows of one length. All layers share one `saved`: only the forward pass is run.
struct Window {
  SegmentOptions options;
  std::vector<SegmentSpec> specs;
  std::vector<std::unique_ptr<Segment>> segments;
  std::unique_ptr<Block> saved, scratch, activations[2], tokens;

  Window(const ModelConfig& model, int64_t length) : options{model, DType::f32, {1, length}} {
    specs = BuildSegments(model, DType::f32, options.shape);
    int64_t saved_bytes = 0, scratch_bytes = 0;
    for (const SegmentSpec& spec : specs) {
      segments.push_back(MakeSegment(spec, options));
      saved_bytes = std::max(saved_bytes, LayOut(spec.saved));
      scratch_bytes = std::max(scratch_bytes, spec.forward_scratch);
    }
    saved = std::make_unique<Block>(saved_bytes);
    scratch = std::make_unique<Block>(scratch_bytes);
    for (auto& activation : activations) activation = std::make_unique<Block>(length * model.hidden * 4);
    tokens = std::make_unique<Block>(length * 4);
  }
};

}  // namespace

struct LanguageModel::Impl {
  JobSpec job;
  TrainingState state;
  StepContext step;
  int64_t context = 0, parameter_count = 0;
  std::vector<std::unique_ptr<Block>> memory;
  std::vector<std::vector<Tensor>> params;  // by segment, as SegmentIo wants them
  std::map<int64_t, Window> windows;
  std::vector<float> logits;

  void Load(const CheckpointReader& reader);
  Tensor LoadParameter(const CheckpointReader& reader, const ParamSpec& spec);
  Window& WindowFor(int64_t length);
};

Tensor LanguageModel::Impl::LoadParameter(const CheckpointReader& reader, const ParamSpec& spec) {
  auto held = reader.parameters().find(spec.name);
  if (held == reader.parameters().end()) throw RuntimeError("the checkpoint holds no parameter " + spec.name);
  Shape real = spec.shape;
  if (spec.real_rows > 0) real = Shape{spec.real_rows, spec.shape[1]};
  if (held->second != real)
    throw RuntimeError("parameter " + spec.name + " of the checkpoint is " + held->second.str() + ", the model's is " +
                       real.str());
  memory.push_back(std::make_unique<Block>(spec.shape.numel() * 4));
  Tensor whole = memory.back()->At(0, DType::f32, spec.shape);
  reader.Read(spec.name, StateKind::master, 0, whole.Flat(0, real.numel()));
  parameter_count += real.numel();
  return whole;
}

void LanguageModel::Impl::Load(const CheckpointReader& reader) {
  const std::vector<SegmentSpec> specs = BuildSegments(job.model, DType::f32, {1, context});
  for (const SegmentSpec& spec : specs) {
    std::vector<Tensor>& tensors = params.emplace_back();
    for (const ParamSpec& param : spec.params) tensors.push_back(LoadParameter(reader, param));
    if (spec.tied) tensors.push_back(params.front().front());  // the embedding's token table is its first parameter
  }
}

Window& LanguageModel::Impl::WindowFor(int64_t length) {
  length = std::min(context, (length + kWindowStep - 1) / kWindowStep * kWindowStep);
  auto found = windows.find(length);
  if (found == windows.end()) found = windows.try_emplace(length, job.model, length).first;
  return found->second;
}

LanguageModel::LanguageModel(const std::filesystem::path& checkpoint, int threads) : impl_(std::make_unique<Impl>()) {
  const CheckpointReader reader(checkpoint);
  impl_->state = reader.state();
  impl_->job = ParseJobSpec(reader.state().job_yaml, (checkpoint / "manifest.json").string() + " (job)",
                            checkpoint.string(), {}, reader.state().data_width);
  impl_->context = impl_->job.data.sequence_length;
  impl_->step.kernel.threads = threads;
  impl_->step.training = false;
  impl_->logits.resize(static_cast<size_t>(impl_->job.model.vocabulary));
  impl_->Load(reader);
}

LanguageModel::~LanguageModel() = default;

const JobSpec& LanguageModel::job() const { return impl_->job; }
int64_t LanguageModel::step() const { return impl_->state.step; }
int64_t LanguageModel::parameters() const { return impl_->parameter_count; }
int64_t LanguageModel::context() const { return impl_->context; }
int64_t LanguageModel::vocabulary() const { return impl_->job.model.vocabulary; }

std::span<const float> LanguageModel::Logits(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw RuntimeError("no tokens to go on from");
  if (static_cast<int64_t>(tokens.size()) > context()) tokens = tokens.last(static_cast<size_t>(context()));
  const int64_t count = static_cast<int64_t>(tokens.size()), hidden = impl_->job.model.hidden;
  Window& window = impl_->WindowFor(count);
  const int64_t length = window.options.shape.tokens;
  // Attention is causal: what stands behind the text (token 0) does not reach it.
  Tensor ids = window.tokens->At(0, DType::i32, {1, length});
  std::memset(ids.data, 0, static_cast<size_t>(ids.bytes()));
  std::copy(tokens.begin(), tokens.end(), ids.as<int32_t>());

  Tensor x;
  const size_t head = window.segments.size() - 1;
  for (size_t i = 0; i < head; ++i) {
    const SegmentSpec& spec = window.specs[i];
    SegmentIo io;
    if (i == 0) io.tokens = ids;
    io.x = x;
    io.y = window.activations[i % 2]->At(0, DType::f32, {1, length, hidden});
    io.params = impl_->params[i];
    std::vector<int64_t> offsets;
    LayOut(spec.saved, &offsets);
    for (size_t s = 0; s < spec.saved.size(); ++s)
      io.saved.push_back(window.saved->At(offsets[s], spec.saved[s].dtype, spec.saved[s].shape));
    io.scratch = window.scratch->Bytes();
    window.segments[i]->Forward(impl_->step, io);
    x = io.y;
  }
  HeadLogits(window.options, window.specs[head], impl_->step, impl_->params[head], x.View({length, hidden}), count - 1,
             1, Tensor::Of(impl_->logits.data(), {1, vocabulary()}));
  return impl_->logits;
}

}  // namespace ds
