// Runs whole training jobs in this process, a thread a rank, and keeps everything that a layout must not change.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/exec/executor.h"
#include "runtime/job/job_spec.h"
#include "runtime/train/train.h"

namespace ds::layout_test {

/// A model of two layers and hidden size 32 on real text (this project's licence), 20 steps of 12 samples of 16 tokens,
/// AdamW. GPT-2's shape, fp32, ZeRO-0.
JobSpec TinySpec();
/// The same in LLaMA's shape: RMSNorm, RoPE, SwiGLU, grouped queries, no biases, untied head.
JobSpec TinyLlama();

/// A new file of JSON lines, documents of so many bytes of text: a token more each, which ends it.
std::string WriteDocuments(const std::vector<int>& bytes);
/// `like` on samples of 24 tokens of unequal documents, which go on across their borders too; attention stays within
/// documents.
JobSpec OfDocuments(const JobSpec& like);

/// Wraps the communicator of one rank and stream.
using Decorate = std::function<std::unique_ptr<Communicator>(const std::string& stream, std::unique_ptr<Communicator>)>;
/// What a rank reports, as it reports it: on its training thread.
using OnStep = std::function<void(int rank, const StepRecord& record)>;
using OnState = std::function<void(int rank, const std::string& state)>;

struct RunOptions {
  int ranks = 1;
  int threads = 1;
  std::string resume = {};     ///< a checkpoint's folder
  std::string directory = {};  ///< of the run; empty: one of its own
  int64_t stop_after = -1;     ///< the last rank is asked to stop after this step
  Decorate decorate = {};
  std::function<std::unique_ptr<Gpu>(int rank)> gpu = {};               ///< empty: ranks compute on the CPU
  std::function<CommunicatorFactory(int rank)> gpu_communicators = {};  ///< empty: those of threads
  int64_t gpu_idle_bytes = 0;                                           ///< of each GPU's memory, in use before the job
  std::optional<MachineFile> machine = {};
  OnStep on_step = {};
  OnState on_state = {};
  std::function<void(int rank, JobSpec& spec)> adjust = {};  ///< what is another on this rank
  /// With each rank's samples before each step, one call at a time.
  std::function<void(int rank, int64_t step, const std::vector<MicroBatch>& micro_batches)> on_batch = {};
};

/// The state of a parameter at the end, as its checkpoint has it.
using State = std::map<std::pair<std::string, std::string>, std::vector<float>>;  // (parameter, "master"), ...

struct RunOutcome {
  std::vector<StepRecord> records;                          ///< of rank 0
  std::vector<std::pair<std::string, std::string>> events;  ///< of rank 0, then of rank 1, ...
  TrainResult result;                                       ///< of rank 0
  State state;                                              ///< empty when the run wrote no checkpoint
  std::string error;  ///< what(): the first that is no CommunicatorAborted; empty: none
  int failed_ranks = 0;
  std::optional<std::pair<std::string, int>> numerical;  ///< the kind of a NumericalError, and its rank

  std::vector<double> losses() const;
  std::vector<double> norms() const;
};

State ReadState(const std::string& checkpoint);  ///< of its folder

/// Sets the micro-batch size so that `ranks` and the accumulation make up the global batch, and runs.
RunOutcome Run(JobSpec spec, const RunOptions& options);

/// Requires losses, gradient norms and final state to be equal bit for bit.
void RequireSame(const RunOutcome& a, const RunOutcome& b);

/// A new folder under the system's temporary folder, removed at the end of the process.
std::string NewDirectory();

}  // namespace ds::layout_test
