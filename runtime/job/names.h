// How the spec's enumerations are written.
#pragma once

#include "runtime/job/job_spec.h"
#include "runtime/job/read_value.h"

namespace ds {

inline const Names<Norm> kNormNames = {{"layer_norm", Norm::layer_norm}, {"rms_norm", Norm::rms_norm}};
inline const Names<PositionKind> kPositionNames = {{"learned", PositionKind::learned}, {"rope", PositionKind::rope}};
inline const Names<Activation> kActivationNames = {
    {"gelu", Activation::gelu}, {"gelu_tanh", Activation::gelu_tanh}, {"swiglu", Activation::swiglu}};
inline const Names<ScheduleKind> kScheduleNames = {{"gpipe", ScheduleKind::gpipe},
                                                   {"1f1b", ScheduleKind::one_f_one_b},
                                                   {"interleaved", ScheduleKind::interleaved},
                                                   {"zb-h1", ScheduleKind::zb_h1},
                                                   {"zb-v", ScheduleKind::zb_v}};
inline const Names<RecomputeMode> kRecomputeNames = {{"none", RecomputeMode::none},
                                                     {"activation", RecomputeMode::activation},
                                                     {"attention", RecomputeMode::attention},
                                                     {"full", RecomputeMode::full}};
inline const Names<OffloadTarget> kOffloadNames = {{"none", OffloadTarget::none},
                                                   {"cpu", OffloadTarget::cpu},
                                                   {"nvme", OffloadTarget::nvme},
                                                   {"auto", OffloadTarget::automatic}};
inline const Names<OnNan> kOnNanNames = {{"stop", OnNan::stop}, {"skip", OnNan::skip}};
inline const Names<BindChoice> kBindNames = {
    {"auto", BindChoice::automatic}, {"cores", BindChoice::cores}, {"none", BindChoice::none}};
inline const Names<DeviceChoice> kDeviceNames = {
    {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"gpu", DeviceChoice::gpu}};
inline const Names<SchedulerKind> kSchedulerNames = {{"LRRangeTest", SchedulerKind::lr_range_test},
                                                     {"OneCycle", SchedulerKind::one_cycle},
                                                     {"WarmupLR", SchedulerKind::warmup_lr},
                                                     {"WarmupDecayLR", SchedulerKind::warmup_decay_lr},
                                                     {"WarmupCosineLR", SchedulerKind::warmup_cosine_lr}};

}  // namespace ds
