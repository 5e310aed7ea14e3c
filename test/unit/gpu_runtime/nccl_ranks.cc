#include "test/unit/gpu_runtime/nccl_ranks.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "runtime/comm/nccl/wait.h"
#include "test/catch.h"

namespace ds::test {

int Gpus() {
  int count = 0;
  Must(cudaGetDeviceCount(&count));
  return count;
}

bool HasTwoGpus() {
  if (Gpus() >= 2) return true;
  WARN("skipped: needs 2 GPUs, and there is 1");
  return false;
}

void Must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
}

RankMemory::RankMemory(DType dtype, int64_t elements) : dtype_(dtype), elements_(elements) {
  const size_t bytes = static_cast<size_t>(tensor().bytes() + 2 * kGuard);
  Must(cudaGetDevice(&device_));
  Must(cudaMalloc(reinterpret_cast<void**>(&data_), bytes));
  Must(cudaMemset(data_, 0xff, bytes));
  Must(cudaDeviceSynchronize());
}

RankMemory::RankMemory(DType dtype, const std::string& bytes)
    : RankMemory(dtype, static_cast<int64_t>(bytes.size() / SizeOf(dtype))) {
  Must(cudaMemcpy(data_ + kGuard, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  Must(cudaDeviceSynchronize());
}

RankMemory::~RankMemory() { cudaFree(data_); }

Tensor RankMemory::tensor() const {
  return Tensor(data_ + kGuard, dtype_, Shape{elements_}, Device{DeviceKind::cuda, device_});
}

std::string RankMemory::Bytes() const {
  const size_t size = static_cast<size_t>(tensor().bytes());
  std::string all(size + 2 * kGuard, '\0');
  Must(cudaDeviceSynchronize());
  Must(cudaMemcpy(all.data(), data_, all.size(), cudaMemcpyDeviceToHost));
  const auto untouched = [](char byte) { return byte == '\xff'; };
  if (!std::all_of(all.begin(), all.begin() + kGuard, untouched) ||
      !std::all_of(all.end() - kGuard, all.end(), untouched))
    throw std::runtime_error("memory beside a tensor was written");
  return all.substr(kGuard, size);
}

void Finish(Communicator& communicator, std::chrono::milliseconds timeout) {
  cudaEvent_t event = nullptr;
  Must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto destroy = [](cudaEvent_t e) { cudaEventDestroy(e); };
  const std::unique_ptr<CUevent_st, decltype(destroy)> owned(event, destroy);
  Must(cudaEventRecord(event, static_cast<cudaStream_t>(communicator.stream())));
  Communicator* const communicators[] = {&communicator};
  WaitForEvent(event, communicators, timeout, "the test");
}

RankOutcome RunBody(int rank, const RankBody& body, const NcclOptions& options, Store& store) {
  RankOutcome outcome;
  try {
    Must(cudaSetDevice(options.device));
    outcome.value = body(rank, NcclFactory(options, store));
  } catch (const CommunicatorAborted& error) {
    outcome.error = error.what();
    outcome.aborted = true;
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

std::vector<RankOutcome> RunThreads(int size, const RankBody& body, std::chrono::milliseconds timeout) {
  MemoryStore store;
  std::vector<RankOutcome> outcomes(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      NcclOptions options;
      options.rank = options.device = rank;
      options.size = size;
      options.timeout = timeout;
      outcomes[rank] = RunBody(rank, body, options, store);
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::filesystem::path FolderStore::PathOf(const std::string& key) const {
  std::string name = key;
  std::replace(name.begin(), name.end(), '/', '_');
  return folder_ / name;
}

void FolderStore::Set(const std::string& key, const std::string& value) {
  const auto path = PathOf(key);
  auto temporary = path;
  temporary += ".new";
  std::ofstream(temporary, std::ios::binary) << value;
  std::filesystem::rename(temporary, path);
}

std::string FolderStore::Get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!std::filesystem::exists(PathOf(key))) {
    if (std::chrono::steady_clock::now() > deadline) throw RuntimeError("nobody set " + key);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::ostringstream text;
  text << std::ifstream(PathOf(key), std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace ds::test
