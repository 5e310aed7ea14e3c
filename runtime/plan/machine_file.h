// What was measured of the machines that a job runs on: rates of their devices, links and disks, what the libraries
// take of device memory, and which algorithm computes each matrix product. ds-bench writes it; the price of a plan, the
// workers' matrix products and metrics' mfu read it. docs/machine-file.md describes the YAML.
//
// Every number is SI (seconds, bytes, floating-point operations) and finite. Zero and an empty list mean "not
// measured"; such a key is not written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/matmul_choice.h"
#include "kernels/tensor.h"

namespace ds {

inline constexpr int kMachineFileFormat = 1;

/// The kind of device that ranks compute on; all of a job are alike.
struct MachineDevice {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;                              ///< "NVIDIA H200", as the driver tells it; a CPU's model
  int64_t count = 1;                             ///< a host's GPUs; cores of a CPU
  int64_t memory_bytes = 0;                      ///< of one GPU; of a host of CPUs. 0: unknown
  std::string compute_capability, driver, cuda;  ///< "9.0", "550.54.15", "12.4"; empty for CPUs and where unknown
  int64_t threads = 0;                           ///< CPUs: threads of the rank that was measured; 0 for GPUs
  bool operator==(const MachineDevice&) const = default;
};

/// Device memory beyond a plan's buffers: Machine (price.h) has the same three.
struct LibraryMemory {
  std::optional<int64_t> library_bytes, first_communicator_bytes, communicator_bytes;
  bool operator==(const LibraryMemory&) const = default;
};

/// A product c[m, n] = op(a)[m, k] * op(b)[k, n]: 2 m n k operations.
struct MatMulRate {
  DType dtype = DType::f32;  ///< of a and b
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  double flops_per_second = 0;
  bool operator==(const MatMulRate&) const = default;
};

/// Causal attention. A product of queries and keys, or like it, counts tokens^2 * head_size operations a head (half of
/// the scores are computed); the forward has two, the backward five.
struct AttentionRate {
  DType dtype = DType::f32;
  int64_t tokens = 0, head_size = 0;
  bool backward = false, deterministic = true;
  double flops_per_second = 0;
  bool operator==(const AttentionRate&) const = default;
};

/// A transfer of B bytes takes latency_seconds + B / bytes_per_second.
struct LinkRate {
  double latency_seconds = 0;   ///< may be 0
  double bytes_per_second = 0;  ///< 0: not measured
  bool operator==(const LinkRate&) const = default;
};

/// AdamW on the host, over arrays that no cache holds: a parameter's gradient and working copy in bf16, master and both
/// moments, 28 bytes read and written.
struct HostOptimizerRate {
  int64_t threads = 0;          ///< that stepped together; their memory may be that of other ranks too
  double bytes_per_second = 0;  ///< of all of them; 0: not measured
  bool operator==(const HostOptimizerRate&) const = default;
};

enum class CollectiveKind : uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, all_to_all };
const char* NameOf(CollectiveKind kind);

/// A collective over `ranks` ranks. B of its LinkRate are bytes that a rank sends: of an all_gather, reduce_scatter or
/// all_to_all of S bytes in all (ranks - 1) / ranks * S, of an all_reduce twice as many, of a broadcast S.
struct CollectiveRate {
  CollectiveKind kind = CollectiveKind::all_gather;
  int64_t ranks = 2;
  LinkRate rate;                                   ///< fitted to the points
  std::vector<std::pair<int64_t, double>> points;  ///< measured: S, seconds
  bool operator==(const CollectiveRate&) const = default;
};

/// A disk as the file tier moves bytes there (runtime/state/file_tier.h).
struct DiskRate {
  std::string path;
  double write_bytes_per_second = 0, read_bytes_per_second = 0;
  bool direct_io = false;
  double mixed_bytes_per_second = 0;         ///< read and written at once, the sum of both ways; 0: not measured
  int64_t block_bytes = 0, queue_depth = 0;  ///< that the rates are of, and to take there; 0: not known
  bool operator==(const DiskRate&) const = default;
};

/// The fastest algorithm of a product, on the file's device.
struct MatMulChoice {
  MatMulKey key;
  MatMulAlgorithm algorithm;
  double seconds = 0;  ///< of one product
  bool operator==(const MatMulChoice&) const = default;
};

struct MachineFile {
  std::string written;        ///< when: UTC, "2026-11-30T21:40:00Z"
  std::string host, program;  ///< where, and by which version
  MachineDevice device;
  LibraryMemory libraries;
  std::map<DType, double> peak_flops;  ///< a second, of dense matrix products; what mfu is a share of
  double memory_bytes_per_second = 0;  ///< read and written
  HostOptimizerRate host_optimizer;
  std::vector<MatMulRate> matmul;
  std::vector<AttentionRate> attention;
  LinkRate host_to_device, device_to_host;
  std::vector<CollectiveRate> collectives;
  std::vector<DiskRate> disks;
  int64_t matmul_library_version = 0;  ///< that the choices belong to; 0: there are none
  std::vector<MatMulChoice> matmul_choices;
  bool operator==(const MachineFile&) const = default;
};

/// Reads the text of a machine file; `name` stands for it in errors. Throws UsageError with "name:line:column: key:
/// ...": what is not YAML, unknown, duplicate and absent keys, wrong types, impossible numbers, something measured
/// twice, a format newer than kMachineFileFormat.
MachineFile ParseMachineFile(const std::string& text, const std::string& name);

/// ParseMachineFile of the file; UsageError too where it cannot be read.
MachineFile ReadMachineFile(const std::filesystem::path& path);

/// The text: reads back as the same MachineFile, bit for bit.
std::string ToYaml(const MachineFile& file);

}  // namespace ds
