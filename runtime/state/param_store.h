// The parameter store of a rank: every resident buffer of its plan, placed on its tier, filled by parameter name.
//
// Values are addressed by (parameter, element), never by place, so weights at the start and after a resume do not
// depend on how the model is sharded.
#pragma once

#include <functional>
#include <vector>

#include "kernels/context.h"
#include "runtime/plan/plan.h"
#include "runtime/state/memory.h"
#include "runtime/state/unit_tensor.h"

namespace ds {

/// A run of elements of one parameter's state that this rank owns.
struct StateRun {
  const ParamSpec* param = nullptr;
  StateKind state = StateKind::master;
  int64_t begin = 0;  ///< first element, in the parameter
  Tensor data;        ///< f32, one-dimensional; on the device of its tier
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
  ParamStore(const ModelLayout& layout, const Plan& plan, Gpu* gpu = nullptr);

  /// The memory of a resident buffer of this plan or of another plan of the same rank, stage and layout. Throws
  /// RuntimeError naming the buffer when the store has none such.
  Tensor Resident(const Buffer& buffer) const;
  /// What the rank holds of `unit`; empty where the plan has none. `slot`: of gradients; -1 otherwise.
  UnitTensor Find(int unit, StateKind state, int slot = -1) const;

  /// Writes master, moments and working copy of every parameter from `source`. on_gpu: what `source` is asked for lies
  /// on the GPU, where the store's tensors do, and its work is enqueued on on_gpu's stream; its workspace stages what
  /// is rounded, and is not the source's to use. Null: `source` fills tensors of the host, which are copied.
  void Fill(const StateSource& source, const KernelContext* on_gpu = nullptr);

  /// Master and moments of this rank's shard, whatever the stage: over all ranks every element once.
  std::vector<StateRun> Owned() const;

  Gpu* gpu() const { return gpu_; }  ///< of the device tier; null: the host
  int64_t resident_bytes(Tier tier) const { return memory_[static_cast<int>(tier)].bytes(); }

 private:
  struct Entry {
    Buffer buffer;
    Tensor data;
  };
  void FillTensor(int unit, StateKind state, const UnitTensor& tensor, const StateSource& source,
                  const KernelContext* on_gpu);
  void FillRounded(const ParamSpec& spec, int64_t begin, const Tensor& part, const StateSource& source,
                   const KernelContext& on_gpu);

  const ModelLayout& layout_;
  DType compute_;
  int rank_;
  Gpu* gpu_;
  Memory memory_[3];
  std::vector<Entry> entries_;
};

}  // namespace ds
