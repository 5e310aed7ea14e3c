#include "runtime/generate/language_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/generate/decoder.h"
#include "runtime/job/problems.h"
#include "runtime/job/read_value.h"
#include "runtime/job/yaml.h"
#include "runtime/model/segment_spec.h"

namespace ds {
namespace {

constexpr std::align_val_t kAlignment{64};

/// Aligned memory, zero at first.
class Block {
 public:
  explicit Block(int64_t bytes) : data_(::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 64)), kAlignment)) {
    std::memset(data_, 0, static_cast<size_t>(bytes));
  }
  ~Block() { ::operator delete(data_, kAlignment); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

}  // namespace

struct LanguageModel::Impl {
  JobSpec job;
  TrainingState state;
  int64_t context = 0, parameter_count = 0;
  std::vector<std::unique_ptr<Block>> memory;
  std::unique_ptr<Decoder> decoder;
  std::vector<int32_t> cached;  // the tokens whose keys and values the decoder holds
  bool keep_cache = true;
  std::vector<float> logits;

  std::map<std::string, Tensor> Load(const CheckpointReader& reader);
  Tensor LoadParameter(const CheckpointReader& reader, const ParamSpec& spec);
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
  Tensor whole(memory.back()->data(), DType::f32, spec.shape);
  reader.Read(spec.name, StateKind::master, 0, whole.Flat(0, real.numel()));
  parameter_count += real.numel();
  return whole;
}

std::map<std::string, Tensor> LanguageModel::Impl::Load(const CheckpointReader& reader) {
  std::map<std::string, Tensor> parameters;
  for (const SegmentSpec& spec : BuildSegments(job.model, DType::f32, {1, context}))
    for (const ParamSpec& param : spec.params) parameters[param.name] = LoadParameter(reader, param);
  return parameters;
}

namespace {

/// Of the job that wrote a checkpoint: a job spec reads with their number.
int64_t RanksOf(const TrainingState& state, const std::string& name) {
  const Value root = ParseYaml(state.job_yaml, name);
  const Value* stages = FindPath(root, "parallel.pipeline");  // not in checkpoints from before there were pipelines
  return state.data_width * (stages ? ReadInteger(*stages, 1, 1 << 20) : 1);
}

}  // namespace

LanguageModel::LanguageModel(const std::filesystem::path& checkpoint, int threads) : impl_(std::make_unique<Impl>()) {
  const CheckpointReader reader(checkpoint);
  impl_->state = reader.state();
  const std::string name = (checkpoint / "manifest.json").string() + " (job)";
  impl_->job = ParseJobSpec(reader.state().job_yaml, name, checkpoint.string(), {}, RanksOf(reader.state(), name));
  impl_->context = impl_->job.data.sequence_length;
  impl_->logits.resize(static_cast<size_t>(impl_->job.model.vocabulary));
  impl_->decoder =
      std::make_unique<Decoder>(impl_->job.model, impl_->context, impl_->Load(reader), KernelContext{threads});
}

LanguageModel::~LanguageModel() = default;

const JobSpec& LanguageModel::job() const { return impl_->job; }
int64_t LanguageModel::step() const { return impl_->state.step; }
int64_t LanguageModel::parameters() const { return impl_->parameter_count; }
int64_t LanguageModel::context() const { return impl_->context; }
int64_t LanguageModel::vocabulary() const { return impl_->job.model.vocabulary; }

int64_t LanguageModel::cache_bytes() const { return impl_->decoder->cache_bytes(); }

void LanguageModel::KeepCache(bool keep) { impl_->keep_cache = keep; }

std::span<const float> LanguageModel::Logits(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw RuntimeError("no tokens to go on from");
  const std::span<const int32_t> window =
      tokens.subspan(static_cast<size_t>(WindowBegin(static_cast<int64_t>(tokens.size()), context())));
  std::vector<int32_t>& cached = impl_->cached;
  if (!impl_->keep_cache) cached.clear();
  const auto apart = std::mismatch(cached.begin(), cached.end(), window.begin(), window.end()).first;
  // The last token is computed at any rate: its logits are wanted.
  const size_t kept = std::min(static_cast<size_t>(apart - cached.begin()), window.size() - 1);
  cached.resize(kept);
  impl_->decoder->Truncate(static_cast<int64_t>(kept));
  impl_->decoder->Forward(window.subspan(kept), impl_->logits);
  cached.assign(window.begin(), window.end());
  return impl_->logits;
}

int64_t WindowBegin(int64_t length, int64_t context) {
  if (length <= context) return 0;
  const int64_t half = std::max<int64_t>(1, context / 2);
  return (length - context + half - 1) / half * half;
}

}  // namespace ds
