// The GPU versions of the kernels: ds::cuda::NAME has the type of ds::NAME, and NAME_cuda.cu (or .cc) defines it.
// Internal to kernels/: ds::NAME checks its arguments and hands tensors of a GPU on (dispatch.h).
//
// The declarations are weak: in a program that does not link ds_gpu, or while nobody has written a version, they are
// null. Files that define a twin do not include this header, which would make their definitions weak too.
//
// A twin gets arguments that its CPU version has checked. All of its tensors are on one GPU, which the caller has made
// the current device. It enqueues work on context.stream, waits for nothing and allocates nothing; what it needs beside
// its tensors is in context.workspace (workspace.h).
#pragma once

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/finite.h"
#include "kernels/fp8.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/matmul.h"
#include "kernels/matmul_choice.h"
#include "kernels/optimizer.h"
#include "kernels/random.h"
#include "kernels/reduce.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/step_decision.h"

namespace ds::cuda {

/// Defined where ds_gpu is linked: its address tells programs with GPU code from others.
[[gnu::weak]] extern const char kLinked;

[[gnu::weak]] extern decltype(ds::GeluForward) GeluForward;
[[gnu::weak]] extern decltype(ds::GeluBackward) GeluBackward;
[[gnu::weak]] extern decltype(ds::SwigluForward) SwigluForward;
[[gnu::weak]] extern decltype(ds::SwigluBackward) SwigluBackward;

[[gnu::weak]] extern decltype(ds::AttentionForward) AttentionForward;
[[gnu::weak]] extern decltype(ds::AttentionBackward) AttentionBackward;

[[gnu::weak]] extern decltype(ds::CrossEntropy) CrossEntropy;

[[gnu::weak]] extern decltype(ds::Dropout) Dropout;

[[gnu::weak]] extern decltype(ds::Fill) Fill;
[[gnu::weak]] extern decltype(ds::Cast) Cast;
[[gnu::weak]] extern decltype(ds::Add) Add;
[[gnu::weak]] extern decltype(ds::Scale) Scale;
[[gnu::weak]] extern decltype(ds::BiasBackward) BiasBackward;

[[gnu::weak]] extern decltype(ds::EmbeddingForward) EmbeddingForward;
[[gnu::weak]] extern decltype(ds::EmbeddingBackwardTokens) EmbeddingBackwardTokens;
[[gnu::weak]] extern decltype(ds::EmbeddingBackwardPositions) EmbeddingBackwardPositions;

[[gnu::weak]] extern decltype(ds::FindNonFinite) FindNonFinite;

[[gnu::weak]] extern decltype(ds::QuantizeFp8) QuantizeFp8;
[[gnu::weak]] extern decltype(ds::MatMulFp8) MatMulFp8;

[[gnu::weak]] extern decltype(ds::LayerNormForward) LayerNormForward;
[[gnu::weak]] extern decltype(ds::LayerNormBackwardInput) LayerNormBackwardInput;
[[gnu::weak]] extern decltype(ds::LayerNormBackwardWeight) LayerNormBackwardWeight;

[[gnu::weak]] extern decltype(ds::LinearAddForward) LinearAddForward;
[[gnu::weak]] extern decltype(ds::LinearGeluForward) LinearGeluForward;
[[gnu::weak]] extern decltype(ds::LinearGeluBackwardInput) LinearGeluBackwardInput;

[[gnu::weak]] extern decltype(ds::MatMul) MatMul;
[[gnu::weak]] extern decltype(ds::MatMulLibraryVersion) MatMulLibraryVersion;
[[gnu::weak]] extern decltype(ds::SetMatMulChoices) SetMatMulChoices;
[[gnu::weak]] extern decltype(ds::TimeMatMulCandidates) TimeMatMulCandidates;

[[gnu::weak]] extern decltype(ds::AdamStep) AdamStep;
[[gnu::weak]] extern decltype(ds::SgdStep) SgdStep;
[[gnu::weak]] extern decltype(ds::LionStep) LionStep;
[[gnu::weak]] extern decltype(ds::AdagradStep) AdagradStep;
[[gnu::weak]] extern decltype(ds::RmsPropStep) RmsPropStep;

[[gnu::weak]] extern decltype(ds::FillNormal) FillNormal;

[[gnu::weak]] extern decltype(ds::AddSumsOfSquares) AddSumsOfSquares;
[[gnu::weak]] extern decltype(ds::SumInto) SumInto;
[[gnu::weak]] extern decltype(ds::SumInOrder) SumInOrder;

[[gnu::weak]] extern decltype(ds::RmsNormForward) RmsNormForward;
[[gnu::weak]] extern decltype(ds::RmsNormBackwardInput) RmsNormBackwardInput;
[[gnu::weak]] extern decltype(ds::RmsNormBackwardWeight) RmsNormBackwardWeight;

[[gnu::weak]] extern decltype(ds::Rope) Rope;

[[gnu::weak]] extern decltype(ds::WriteStepFacts) WriteStepFacts;
[[gnu::weak]] extern decltype(ds::DecideStep) DecideStep;

}  // namespace ds::cuda
