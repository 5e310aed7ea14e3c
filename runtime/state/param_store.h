// The parameter store of a rank: every resident buffer of its plan, placed on its tier, filled by parameter name.
//
// Values are addressed by (parameter, element), never by place, so weights at the start and after a resume do not
// depend on how the model is sharded.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/context.h"
#include "runtime/plan/plan.h"
#include "runtime/state/file_lane.h"
#include "runtime/state/memory.h"
#include "runtime/state/unit_tensor.h"

namespace ds {

/// A run of elements of one parameter's state that this rank owns.
struct StateRun {
  const ParamSpec* param = nullptr;
  StateKind state = StateKind::master;
  int64_t begin = 0;  ///< first element, in the parameter
  int64_t count = 0;
  Tensor data;               ///< f32, one-dimensional; on the device of its tier. Empty: in files,
  int64_t file_offset = -1;  ///< here (ParamStore::ReadFiles)
};

/// Fills `out` (f32) with elements [begin, begin + out.numel()) of a parameter's master, moment1 or moment2. `out` is
/// of the host, but where ParamStore::Fill says otherwise.
using StateSource = std::function<void(const ParamSpec& param, StateKind state, int64_t begin, Tensor out)>;

/// Weights at the start: a normal distribution by the parameter's name, ones or zeros; moments are zero. Fills tensors
/// of the device of `context`, the same bits on each.
StateSource InitialState(uint64_t seed, const KernelContext& context = {});

class ParamStore {
 public:
  /// Allocates the resident buffers of `plan`, those of the device tier on `gpu` (null: on the host). `layout` and
  /// `gpu` outlive the store.
  /// Those of the file tier in `files`, which has room for them (ResidentFileBytes, price.h) and outlives the store;
  /// null where the plan has none.
  ParamStore(const ModelLayout& layout, const Plan& plan, Gpu* gpu = nullptr, FileTier* files = nullptr);

  /// The memory of a resident buffer of this plan or of another plan of the same rank, stage and layout. Throws
  /// RuntimeError naming the buffer when the store has none such.
  Tensor Resident(const Buffer& buffer) const;
  /// Where the piece of one bucket of such a buffer is in the file tier.
  int64_t FileOffset(const Buffer& buffer, int bucket) const;
  /// What the rank holds of `unit`; empty where the plan has none, or in files. `slot`: of gradients; -1 otherwise.
  UnitTensor Find(int unit, StateKind state, int slot = -1) const;

  /// Writes master, moments and working copy of every parameter from `source`. on_gpu: what `source` is asked for lies
  /// on the GPU, where the store's tensors do, and its work is enqueued on on_gpu's stream; its workspace stages what
  /// is rounded, and is not the source's to use. Null: `source` fills tensors of the host, which are copied.
  void Fill(const StateSource& source, const KernelContext* on_gpu = nullptr);

  /// Master and moments of this rank's shard, whatever the stage: over all ranks every element once.
  std::vector<StateRun> Owned() const;

  /// Elements [first, first + out.numel()) of a run that is in files, into `out` (f32, of the host). By one thread at a
  /// time.
  void ReadFiles(const StateRun& run, int64_t first, Tensor out) const;

  Gpu* gpu() const { return gpu_; }  ///< of the device tier; null: the host
  int64_t resident_bytes(Tier tier) const { return memory_[static_cast<int>(tier)].bytes(); }

 private:
  struct Entry {
    Buffer buffer;
    Tensor data;                        // empty: in files
    std::vector<int64_t> file_offsets;  // of each bucket's piece
  };
  const Entry* FindEntry(int unit, StateKind state, int slot) const;
  void FillFiles(const Entry& entry, const StateSource& source);
  void FillTensor(int unit, StateKind state, const UnitTensor& tensor, const StateSource& source,
                  const KernelContext* on_gpu);
  void FillRounded(const ParamSpec& spec, int64_t begin, const Tensor& part, const StateSource& source,
                   const KernelContext& on_gpu);

  const ModelLayout& layout_;
  DType compute_;
  int rank_;
  std::vector<bool> owned_;  // of a unit: by this stage of a pipeline, which writes it to checkpoints
  Gpu* gpu_;
  FileTier* files_;
  Memory memory_[kTiers];
  std::vector<Entry> entries_;
  std::unique_ptr<FileLane> lane_;  // of `files_`, for what is done beside steps
};

}  // namespace ds
