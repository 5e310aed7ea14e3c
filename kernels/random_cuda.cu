#include "kernels/cuda_elementwise.h"
#include "kernels/philox.h"
#include "kernels/random.h"

namespace ds::cuda {
namespace {

struct NormalElements {
  RandomStream stream;
  uint64_t first;
  float mean, stddev;
  float* out;

  /// N is 1 or, where `first` is a multiple of 4, of whole random blocks.
  template <int N>
  __device__ void Apply(int64_t i) const {
    const uint64_t number = first + static_cast<uint64_t>(i);
    Pack<float, N> normals;
    if constexpr (N == 1) {
      const detail::PhiloxWords words = detail::PhiloxBlock(stream, number / 4);
      const bool upper = number & 2;
      const detail::NormalPair pair =
          detail::NormalsOf(upper ? words.v[2] : words.v[0], upper ? words.v[3] : words.v[1], mean, stddev);
      normals[0] = number & 1 ? pair.second : pair.first;
    } else {
#pragma unroll
      for (int block = 0; block < N / 4; ++block) {
        const detail::PhiloxWords words = detail::PhiloxBlock(stream, number / 4 + block);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const detail::NormalPair pair = detail::NormalsOf(words.v[2 * half], words.v[2 * half + 1], mean, stddev);
          normals[4 * block + 2 * half] = pair.first;
          normals[4 * block + 2 * half + 1] = pair.second;
        }
      }
    }
    StoreRaw(out + i, normals);
  }
};

}  // namespace

void FillNormal(const KernelContext& context, RandomStream stream, uint64_t first, float mean, float stddev,
                Tensor out) {
  ForEachElement(context, "FillNormal", out.numel(), Aligned(out.data) && first % 4 == 0,
                 NormalElements{stream, first, mean, stddev, Elements<float>(out)});
}

}  // namespace ds::cuda
