#include "test/layout/harness.h"

#include <stdlib.h>

#include <cerrno>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/mesh/mesh.h"
#include "test/catch.h"

namespace ds::layout_test {
namespace {

class Collector : public Reporter {
 public:
  void OnState(const std::string& state) override {
    if (options->on_state) options->on_state(rank, state);
  }
  void OnStep(const StepRecord& record) override {
    records.push_back(record);
    if (options->on_step) options->on_step(rank, record);
    if (record.step == stop_after) stop = true;
  }
  void OnEvent(const std::string& kind, const std::string& message) override { events.emplace_back(kind, message); }
  bool StopRequested() override { return stop; }

  std::vector<StepRecord> records;
  std::vector<std::pair<std::string, std::string>> events;
  const RunOptions* options = nullptr;
  int rank = 0;
  int64_t stop_after = -1;
  bool stop = false;
};

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

/// A file of the repository, also where the test runs from a bundle (scripts/bundle.sh).
std::string SourceFile(const std::string& name) {
  const std::filesystem::path here = std::filesystem::path(DS_SOURCE_DIR) / name;
  if (std::filesystem::exists(here)) return here.string();
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / name).string();
}

}  // namespace

State ReadState(const std::string& checkpoint) {
  State state;
  const CheckpointReader reader(checkpoint);
  for (const auto& [name, shape] : reader.parameters()) {
    const std::pair<StateKind, const char*> kinds[] = {
        {StateKind::master, "master"}, {StateKind::moment1, "moment1"}, {StateKind::moment2, "moment2"}};
    for (const auto& [kind, label] : kinds) {
      if (!reader.Has(name, kind)) continue;
      std::vector<float> values(static_cast<size_t>(shape.numel()));
      reader.Read(name, kind, 0, Tensor::Of(values.data(), Shape{shape.numel()}));
      state[{name, label}] = std::move(values);
    }
  }
  return state;
}

JobSpec TinySpec() {
  JobSpec spec;
  spec.name = "tiny";
  spec.seed = 7;
  ModelConfig& model = spec.model;
  model.layers = 2;
  model.hidden = 32;
  model.heads = 2;
  model.kv_heads = 2;
  model.ffn = 64;
  model.vocabulary = 257;
  model.max_positions = 16;
  spec.data.train = {SourceFile("LICENSE")};
  spec.data.sequence_length = 16;
  spec.training.steps = 20;
  spec.batch.train_batch_size = 12;
  spec.optimizer.lr = 3e-3;
  spec.zero.param_persistence_threshold = 100;  // norms and biases are kept whole, matrices are not
  spec.checkpoint.keep = 0;
  return spec;
}

JobSpec TinyLlama() {
  JobSpec spec = TinySpec();
  ModelConfig& model = spec.model;
  model.heads = 4;
  model.norm = Norm::rms_norm;
  model.position = PositionKind::rope;
  model.activation = Activation::swiglu;
  model.bias = model.qkv_bias = false;
  model.tied_head = false;
  return spec;
}

std::string WriteDocuments(const std::vector<int>& bytes) {
  const std::string folder = NewDirectory();
  std::filesystem::create_directories(folder);
  std::ofstream file(folder + "/documents.jsonl");
  uint32_t state = 1;
  for (int count : bytes) {
    file << "{\"text\": \"";
    for (int i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      file << static_cast<char>('a' + state / 65536 % 26);
    }
    file << "\"}\n";
  }
  return folder + "/documents.jsonl";
}

JobSpec OfDocuments(const JobSpec& like) {
  static const std::string path = WriteDocuments({3, 40, 0, 7, 90, 1, 12, 25, 8, 130, 5, 5, 33, 64, 2, 71, 9, 300, 14});
  JobSpec spec = like;
  spec.data.train = spec.data.validation = {path};
  spec.data.sequence_length = spec.model.max_positions = 24;
  spec.data.reset_attention = true;
  return spec;
}

std::string NewDirectory() {
  struct Root {
    std::string path = (std::filesystem::temp_directory_path() / "ds-layout-XXXXXX").string();
    int count = 0;
    Root() {
      if (!::mkdtemp(path.data())) throw SystemError("cannot create " + path, errno);
    }
    ~Root() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static Root root;
  return root.path + "/" + std::to_string(root.count++);
}

std::vector<double> RunOutcome::losses() const {
  std::vector<double> values;
  for (const StepRecord& record : records) values.push_back(record.loss);
  return values;
}

std::vector<double> RunOutcome::norms() const {
  std::vector<double> values;
  for (const StepRecord& record : records) values.push_back(record.grad_norm);
  return values;
}

RunOutcome Run(JobSpec spec, const RunOptions& options) {
  const int width = MeshOf(spec.parallel, options.ranks).data_width();
  spec.batch.micro_batch_size = spec.batch.train_batch_size / (width * spec.batch.accumulation);
  REQUIRE(spec.batch.micro_batch_size * width * spec.batch.accumulation == spec.batch.train_batch_size);
  const std::string directory = options.directory.empty() ? NewDirectory() : options.directory;

  ThreadWorld world(options.ranks, std::chrono::minutes(2));
  std::vector<Collector> collectors(static_cast<size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    collectors[rank].options = &options;
    collectors[rank].rank = rank;
  }
  collectors.back().stop_after = options.stop_after;
  std::vector<TrainResult> results(static_cast<size_t>(options.ranks));
  RunOutcome outcome;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      TrainEnvironment environment;
      environment.rank = rank;
      environment.size = options.ranks;
      environment.threads = options.threads;
      environment.run_directory = directory;
      environment.resume = options.resume;
      environment.machine = options.machine;
      environment.reporter = &collectors[rank];
      if (options.on_batch)
        environment.on_batch = [&, rank](int64_t step, const std::vector<MicroBatch>& micro_batches) {
          std::lock_guard lock(mutex);
          options.on_batch(rank, step, micro_batches);
        };
      JobSpec own = spec;
      if (options.adjust) options.adjust(rank, own);
      environment.communicators = [&, rank](const std::string& stream) {
        std::unique_ptr<Communicator> made = world.Make(rank, stream);
        return options.decorate ? options.decorate(stream, std::move(made)) : std::move(made);
      };
      std::unique_ptr<Gpu> gpu = options.gpu ? options.gpu(rank) : nullptr;
      environment.gpu = gpu.get();
      environment.gpu_idle_bytes = options.gpu_idle_bytes;
      if (gpu && options.ranks > 1) {
        if (options.gpu_communicators)
          environment.device_communicators = options.gpu_communicators(rank);
        else
          environment.device_communicators = [&, rank](const std::string& stream) {
            return world.Make(rank, "gpu " + stream);
          };
      }
      try {
        results[rank] = Train(own, environment);
      } catch (const CommunicatorAborted&) {
        std::lock_guard lock(mutex);
        ++outcome.failed_ranks;
      } catch (const NumericalError& error) {
        std::lock_guard lock(mutex);
        ++outcome.failed_ranks;
        outcome.numerical = {error.kind(), rank};
        if (outcome.error.empty()) outcome.error = error.what();
      } catch (const std::exception& error) {
        std::lock_guard lock(mutex);
        ++outcome.failed_ranks;
        if (outcome.error.empty()) outcome.error = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  outcome.records = collectors[0].records;
  for (const Collector& collector : collectors)
    outcome.events.insert(outcome.events.end(), collector.events.begin(), collector.events.end());
  outcome.result = results[0];
  if (!outcome.result.checkpoint.empty()) outcome.state = ReadState(outcome.result.checkpoint);
  return outcome;
}

void RequireSame(const RunOutcome& a, const RunOutcome& b) {
  REQUIRE(a.error == "");
  REQUIRE(b.error == "");
  REQUIRE(a.failed_ranks + b.failed_ranks == 0);
  REQUIRE_FALSE(a.records.empty());
  REQUIRE(SameBits(a.losses(), b.losses()));
  REQUIRE(SameBits(a.norms(), b.norms()));
  REQUIRE_FALSE(a.state.empty());
  REQUIRE(a.state.size() == b.state.size());
  for (const auto& [key, values] : a.state) {
    CAPTURE(key.first, key.second);
    const auto found = b.state.find(key);
    REQUIRE(found != b.state.end());
    REQUIRE(found->second.size() == values.size());
    REQUIRE(std::memcmp(found->second.data(), values.data(), values.size() * sizeof(float)) == 0);
  }
}

}  // namespace ds::layout_test
