#include "runtime/state/finite_check.h"

#include "kernels/finite.h"

namespace ds {

int64_t FiniteCheck::First(const KernelContext& kernel, const Tensor& x) const {
  if (!gpu_ || x.device != gpu_->device()) return FirstNonFinite(kernel, x);  // of the host
  const Tensor bytes = index_.Bytes(0, index_.bytes());
  const Tensor found(bytes.data, DType::i64, Shape{1}, bytes.device);
  FindNonFinite(kernel, x, found);
  gpu_->Synchronize(kernel.stream);
  int64_t first = -1;
  CopyNow(gpu_, found, Tensor::Of(&first, Shape{1}));
  return first;
}

}  // namespace ds
