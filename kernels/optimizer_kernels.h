// The CPU's optimizer updates of a range of elements, once for each instruction set, and which of them runs. Internal
// to the CPU kernels.
//
// All give the same bits (optimizer_math.h). They read the gradient in the type in which it is stored and round the new
// parameter into the working copy while it is in a register: one pass over memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/optimizer.h"

namespace ds::detail {

/// The arrays of an update, element 0 of each.
struct OptimizerArrays {
  const void* gradient = nullptr;
  DType gradient_type = DType::f32;  ///< f32, bf16 or f16
  float* master = nullptr;
  float* state[2] = {};     ///< as many as the update has
  void* working = nullptr;  ///< null: none
  DType working_type = DType::f32;
  bool stream = false;  ///< the working copy is written past the caches, where its alignment allows that
};

/// The updates of an instruction set: each changes elements [begin, end). The scalars' gradient_scale counts.
struct OptimizerKernels {
  const char* name;
  /// State of Adam: m, v. Of SGD: buffer, null without momentum. Lion: m. Adagrad: v. RMSprop: v, buffer (likewise).
  void (*adam)(const AdamScalars&, const OptimizerArrays&, int64_t begin, int64_t end);
  void (*sgd)(const SgdScalars&, const OptimizerArrays&, int64_t begin, int64_t end);
  void (*lion)(const LionScalars&, const OptimizerArrays&, int64_t begin, int64_t end);
  void (*adagrad)(const AdagradScalars&, const OptimizerArrays&, int64_t begin, int64_t end);
  void (*rmsprop)(const RmsPropScalars&, const OptimizerArrays&, int64_t begin, int64_t end);
};

/// Loops that the compiler vectorises for the instruction set of all kernels. The only ones that know a working copy in
/// f64.
extern const OptimizerKernels kPortableOptimizerKernels;
/// What this build has, whatever the CPU; null on other architectures.
extern const OptimizerKernels* const kCompiledAvx2OptimizerKernels;
extern const OptimizerKernels* const kCompiledAvx512OptimizerKernels;

/// Those that this CPU runs, the fastest last.
std::vector<const OptimizerKernels*> UsableOptimizerKernels();

/// The usable one of that name; the fastest where `name` is null or empty. Throws std::invalid_argument that names
/// DS_OPTIMIZER_KERNELS and what there is.
const OptimizerKernels& FindOptimizerKernels(const char* name);

/// What the kernels of optimizer.h run: what the environment's DS_OPTIMIZER_KERNELS names, else the fastest. Tests set
/// it, for one process at a time.
const OptimizerKernels& ChosenOptimizerKernels();
void ChooseOptimizerKernels(const OptimizerKernels& kernels);

}  // namespace ds::detail
