// A communicator takes tensors of its own memory only.
#include "runtime/comm/operation.h"

#include "runtime/comm/communicator.h"
#include "test/catch.h"

namespace ds::test {

TEST_CASE("tensors elsewhere than where the communicator works are refused") {
  float memory[8] = {};
  const Device gpu0{DeviceKind::cuda, 0}, gpu1{DeviceKind::cuda, 1};
  const auto on = [&](Device device, int64_t n) { return Tensor(memory, DType::f32, Shape{n}, device); };
  for (const Device where : {Device{}, gpu0, gpu1}) {
    for (const Device other : {Device{}, gpu0, gpu1}) {
      if (other == where) continue;
      CHECK(CheckAllGather(on(where, 2), on(where, 4), 2, where).count == 2);
      CHECK_THROWS_AS(CheckAllGather(on(other, 2), on(where, 4), 2, where), std::invalid_argument);
      CHECK_THROWS_AS(CheckAllGather(on(where, 2), on(other, 4), 2, where), std::invalid_argument);
      CHECK_THROWS_AS(CheckReduceScatter(on(other, 4), on(where, 2), on(where, 4), 2, where), std::invalid_argument);
      CHECK_THROWS_AS(CheckAllToAll(on(where, 4), on(other, 4), 2, where), std::invalid_argument);
      CHECK_THROWS_AS(CheckBroadcast(on(other, 4), 0, 2, where), std::invalid_argument);
      CHECK_THROWS_AS(CheckPointToPoint(Collective::send, on(other, 4), 1, 0, 2, where), std::invalid_argument);
    }
  }
  CHECK_THROWS_AS(SingleRankFactory()("solo")->Broadcast(on(gpu0, 4), 0), std::invalid_argument);
}

TEST_CASE("only in host memory a reduction needs a workspace") {
  float whole[4] = {}, shard[2] = {};
  const auto check = [&](Device device) {
    return CheckReduceScatter(Tensor(whole, DType::f32, Shape{4}, device), Tensor(shard, DType::f32, Shape{2}, device),
                              Tensor(nullptr, DType::u8, Shape{0}), 2, device);
  };
  CHECK(check({DeviceKind::cuda, 0}).count == 2);
  CHECK_THROWS_AS(check({}), std::invalid_argument);
}

}  // namespace ds::test
