#include "runtime/checkpoint/agreement.h"

#include <cstdint>
#include <vector>

namespace ds {
namespace {

/// One number of every rank.
std::vector<int64_t> GatherNumbers(Communicator& control, int64_t number) {
  std::vector<int64_t> numbers(static_cast<size_t>(control.size()));
  control.AllGather(Tensor::Of(&number, {1}), Tensor::Of(numbers.data(), {control.size()}));
  return numbers;
}

Tensor Bytes(std::string& text) { return Tensor(text.data(), DType::u8, Shape{static_cast<int64_t>(text.size())}); }

}  // namespace

void TogetherOrThrow(Communicator& control, const std::string& what, const std::function<void()>& work) {
  std::string failure;
  try {
    work();
  } catch (const CommunicatorAborted&) {
    throw;
  } catch (const std::exception& error) {
    failure = error.what();
    if (failure.empty()) failure = "unknown failure";
  }
  const std::vector<int64_t> lengths = GatherNumbers(control, static_cast<int64_t>(failure.size()));
  for (int rank = 0; rank < control.size(); ++rank) {
    if (lengths[rank] == 0) continue;
    failure.resize(static_cast<size_t>(lengths[rank]));
    control.Broadcast(Bytes(failure), rank);
    try {
      control.Barrier();                    // who throws ends, and breaks the group for those that have not heard yet
    } catch (const CommunicatorAborted&) {  // some peer has heard and is on its way out: so has this rank
    }
    const std::string message = what + ": rank " + std::to_string(rank) + ": " + failure;
    if (rank != control.rank()) throw PeerFailed(message);
    throw RuntimeError(message);
  }
}

std::vector<std::string> GatherTexts(Communicator& control, const std::string& text) {
  const std::vector<int64_t> lengths = GatherNumbers(control, static_cast<int64_t>(text.size()));
  std::string own = text;
  if (control.rank() != 0) {
    if (!own.empty()) control.Send(Bytes(own), 0);
    return {};
  }
  std::vector<std::string> texts{own};
  for (int rank = 1; rank < control.size(); ++rank) {
    texts.emplace_back(static_cast<size_t>(lengths[rank]), '\0');
    if (lengths[rank] > 0) control.Receive(Bytes(texts.back()), rank);
  }
  return texts;
}

}  // namespace ds
