// Machine files that several tests read.
#pragma once

#include "runtime/plan/machine_file.h"

namespace ds::test {

/// A GPU's, with something in every field.
inline MachineFile FullMachineFile() {
  MachineFile file;
  file.written = "2026-11-30T21:40:00Z";
  file.host = "node-1";
  file.program = "0.1.0";
  file.device = {DeviceKind::cuda, "NVIDIA H200", 8, 150'754'820'096, "9.0", "550.54.15", "12.4", 0};
  file.libraries = {560 << 20, 672 << 20, 0};
  file.peak_flops = {{DType::bf16, 989e12}, {DType::f16, 989e12}, {DType::f32, 6.7e13}};
  file.memory_bytes_per_second = 4.2e12;
  file.host_optimizer = {16, 1.0 / 3 * 1e12};
  file.matmul = {{DType::bf16, 8192, 4096, 4096, false, true, 6.5e14},
                 {DType::bf16, 512, 768, 768, true, false, 1.0 / 3 * 1e14},
                 {DType::f32, 1024, 1024, 1024, false, false, 4e13},
                 {DType::f8_e4m3, 8192, 4096, 4096, false, true, 1.2e15},
                 {DType::f8_e5m2, 8192, 4096, 4096, false, true, 1.1e15}};
  file.attention = {{DType::bf16, 2048, 128, false, true, 4e14},
                    {DType::bf16, 2048, 128, true, true, 2e14},
                    {DType::bf16, 2048, 128, true, false, 3e14}};
  file.host_to_device = {1e-5, 5.5e10};
  file.device_to_host = {0, 5.2e10};
  file.collectives = {{CollectiveKind::all_gather, 2, {2e-5, 1.5e11}, {{1024, 2.1e-5}, {1 << 20, 3e-5}}},
                      {CollectiveKind::reduce_scatter, 8, {4e-5, 3e11}, {}}};
  file.disks = {{"/scratch/a b, \"c\"", 2e9, 5e9, true, 3.5e9, 4 << 20, 32}, {"/tmp", 1e9, 1e9, false, 0, 0, 0}};
  file.matmul_library_version = 120403;
  MatMulChoice choice;
  choice.key = {8192, 4096, 4096, DType::bf16, DType::f32, false, true, true, MatMulEpilogue::bias_gelu};
  choice.algorithm.words = {0x42, 0xffffffffffffffff, 0, 1, 2, 3, 4, 0x8000000000000000};
  choice.seconds = 4.25e-4;
  file.matmul_choices = {choice, choice, choice, choice};
  file.matmul_choices[1].key.m = 16;
  file.matmul_choices[2].key = {8192, 4096, 4096, DType::f8_e4m3, DType::bf16, false, true};
  file.matmul_choices[3].key = {4096, 4096, 8192, DType::f8_e5m2, DType::f32, false, true, true};
  return file;
}

}  // namespace ds::test
