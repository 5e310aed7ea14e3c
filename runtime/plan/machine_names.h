// How a machine file's enumerations are written.
#pragma once

#include "runtime/job/read_value.h"
#include "runtime/plan/machine_file.h"

namespace ds {

inline const Names<DeviceKind> kDeviceKindNames = {{"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}};
inline const Names<DType> kFloatNames = {
    {"f64", DType::f64}, {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
/// Of the operands of matrix products.
inline const Names<DType> kProductNames = {{"f64", DType::f64},         {"f32", DType::f32},
                                           {"bf16", DType::bf16},       {"f16", DType::f16},
                                           {"f8_e4m3", DType::f8_e4m3}, {"f8_e5m2", DType::f8_e5m2}};
/// What a device's peak is stated for.
inline const Names<DType> kPeakNames = {
    {"f64", DType::f64}, {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}, {"f8_e4m3", DType::f8_e4m3}};
inline const Names<CollectiveKind> kCollectiveNames = {{"all_gather", CollectiveKind::all_gather},
                                                       {"reduce_scatter", CollectiveKind::reduce_scatter},
                                                       {"all_reduce", CollectiveKind::all_reduce},
                                                       {"broadcast", CollectiveKind::broadcast},
                                                       {"all_to_all", CollectiveKind::all_to_all}};
inline const Names<MatMulEpilogue> kEpilogueNames = {{"none", MatMulEpilogue::none},
                                                     {"bias", MatMulEpilogue::bias},
                                                     {"gelu", MatMulEpilogue::gelu},
                                                     {"bias_gelu", MatMulEpilogue::bias_gelu},
                                                     {"gelu_backward", MatMulEpilogue::gelu_backward}};

}  // namespace ds
