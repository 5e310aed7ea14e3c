#include "runtime/base/visible_gpus.h"

#include "test/catch.h"

namespace ds {
namespace {

GpuFacts Gpu(int index, const std::string& uuid, bool instance = false) {
  GpuFacts gpu;
  gpu.index = index;
  gpu.uuid = uuid;
  gpu.instance = instance;
  return gpu;
}

const std::vector<GpuUnit> kWhole = {{Gpu(0, "GPU-aa11"), false, {}},
                                     {Gpu(1, "GPU-aa22"), false, {}},
                                     {Gpu(2, "GPU-bb33"), false, {}},
                                     {Gpu(3, "GPU-cc44"), false, {}}};
const std::vector<GpuUnit> kDivided = {
    {Gpu(0, "GPU-aa11"), false, {}},
    {Gpu(1, "GPU-aa22"), true, {Gpu(1, "MIG-dd11", true), Gpu(1, "MIG-dd22", true), Gpu(1, "MIG-ee33", true)}},
    {Gpu(2, "GPU-bb33"), true, {}}};

/// The last two characters of the UUIDs that a list leaves.
std::string Seen(const std::vector<GpuUnit>& units, std::optional<std::string_view> list) {
  std::string text;
  for (const GpuFacts& gpu : SelectVisible(units, list)) text += (text.empty() ? "" : " ") + gpu.uuid.substr(6);
  return text;
}

}  // namespace

TEST_CASE("CUDA_VISIBLE_DEVICES: numbers, in their order, to the first that is none") {
  CHECK(Seen(kWhole, std::nullopt) == "11 22 33 44");
  CHECK(Seen(kWhole, "2,0") == "33 11");
  CHECK(Seen(kWhole, "0,1,2,3") == "11 22 33 44");
  CHECK(Seen(kWhole, " 1, 3 ") == "22 44");
  CHECK(Seen(kWhole, "1gpu,+2") == "22 33");  // as strtoul reads
  CHECK(Seen(kWhole, "") == "");
  CHECK(Seen(kWhole, "-1") == "");
  CHECK(Seen(kWhole, "NoDevFiles") == "");
  CHECK(Seen(kWhole, "0,4,1") == "11");
  CHECK(Seen(kWhole, "0,-1,1") == "11");
  CHECK(Seen(kWhole, "0,,1") == "11");
  CHECK(Seen(kWhole, "0,x") == "11");
  CHECK(Seen(kWhole, "0,GPU-bb33") == "11");
  CHECK(Seen(kWhole, "99999999999999999999") == "");
  CHECK(Seen(kWhole, "0,1,0") == "");  // a repeated one leaves none
  CHECK(Seen({}, "0") == "");
}

TEST_CASE("CUDA_VISIBLE_DEVICES: UUIDs and their beginnings") {
  CHECK(Seen(kWhole, "GPU-cc44,GPU-aa22") == "44 22");
  CHECK(Seen(kWhole, "GPU-c,GPU-aa2") == "44 22");
  CHECK(Seen(kWhole, "GPU-cc44,GPU-a,GPU-bb33") == "44");  // of several GPUs: ends the list
  CHECK(Seen(kWhole, "GPU-cc44,GPU-dd,GPU-bb33") == "44");
  CHECK(Seen(kWhole, "GPU-cc44,1") == "44");
  CHECK(Seen(kWhole, "GPU-cc44, GPU-bb33") == "44");
  CHECK(Seen(kWhole, "gpu-cc44") == "");
  CHECK(Seen(kWhole, "GPU-cc44,GPU-c") == "");  // the same twice
  CHECK(Seen(kWhole, "MIG-cc44") == "");
}

TEST_CASE("CUDA_VISIBLE_DEVICES: divided GPUs compute as their instances") {
  CHECK(Seen(kDivided, std::nullopt) == "11 11 22 33");
  CHECK(Seen(kDivided, "MIG-ee33,MIG-dd1") == "33 11");
  CHECK(Seen(kDivided, "MIG-ee33,MIG-dd") == "33");
  CHECK(SelectVisible(kDivided, "1")[0].uuid == "MIG-dd11");
  CHECK(SelectVisible(kDivided, "GPU-aa22")[0].uuid == "MIG-dd11");
  CHECK(Seen(kDivided, "0,2,1") == "11");  // divided into nothing
}

TEST_CASE("What workers see is written as the node has it") {
  const auto list = [](const std::vector<GpuUnit>& units, std::optional<std::string_view> given) {
    return VisibleList(SelectVisible(units, given), given);
  };
  CHECK(list(kWhole, std::nullopt) == "0,1,2,3");
  CHECK(list(kWhole, "3,1") == "3,1");
  CHECK(list(kWhole, "GPU-c,GPU-aa2") == "GPU-cc44,GPU-aa22");
  CHECK(list(kDivided, "MIG-ee") == "MIG-ee33");
  CHECK(list(kDivided, std::nullopt) == "GPU-aa11,MIG-dd11,MIG-dd22,MIG-ee33");
  CHECK(list(kWhole, "") == "");
}

}  // namespace ds
