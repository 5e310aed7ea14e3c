// Why a DeepSpeed feature is refused: one line for each that this version has not. When a feature arrives, its line
// goes and the compiler names the rows to turn from refused to honoured.
#pragma once

namespace ds::deepspeed_missing {

inline constexpr const char* kSuperOffload =
    "the host steps a bucket when its gradient and what the step needs to know are there: it does not step first and "
    "roll back";
inline constexpr const char* kZenFlow =
    "every parameter is stepped in every step, by that step's gradient; ZenFlow's late steps change the result";
inline constexpr const char* kGds = "this version reads and writes files by way of host memory";
inline constexpr const char* kZeroPlusPlus = "this version has no ZeRO++";
inline constexpr const char* kMics = "this version shards over all data-parallel ranks";
inline constexpr const char* kGradientType = "this version accumulates gradients in fp32 only";
inline constexpr const char* kReduceType = "this version reduces gradients in fp32 only";
inline constexpr const char* kSequence = "there is no sequence parallelism in this version";
inline constexpr const char* kTensorOff = "parallel.tensor is 1";
inline constexpr const char* kPartitionActivations =
    "there is no tensor parallelism in this version; training.recompute saves activation memory";
inline constexpr const char* kExperts = "there are no experts in this version";
inline constexpr const char* kLamb = "layer-wise norms are not there yet for sharded parameters";
inline constexpr const char* kMuon = "it needs whole matrices where optimizer state is sharded";
inline constexpr const char* kOneBit = "gradients are reduced in fp32; there is no compression";
inline constexpr const char* kMup = "models are not parametrised for muP";

}  // namespace ds::deepspeed_missing
