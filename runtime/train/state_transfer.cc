#include "runtime/train/state_transfer.h"

#include <string>

namespace ds {

std::vector<StateSlice> SlicesOf(const ParamStore& store) {
  std::vector<StateSlice> slices;
  for (const StateRun& run : store.Owned()) {
    StateSlice& slice = slices.emplace_back();
    slice.param = run.param->name;
    slice.state = run.state;
    slice.shape = ExportedShape(*run.param);
    slice.begin = run.begin;
    slice.data = run.data;
    slice.gpu = store.gpu();
    if (run.data) continue;
    slice.read = [&store, run](int64_t first, Tensor out) { store.ReadFiles(run, first, out); };
    slice.read_count = run.count;
  }
  return slices;
}

StateSource CheckpointSource(const CheckpointReader& reader) {
  return [&reader](const ParamSpec& param, StateKind state, int64_t begin, Tensor out) {
    reader.Read(param.name, state, begin, out);
  };
}

void CheckCompatible(const ModelLayout& layout, int moments, const CheckpointReader& reader,
                     const std::string& folder) {
  const auto& stored = reader.parameters();
  size_t expected = 0;
  auto refuse = [&](const std::string& name, const std::string& why) {
    throw UsageError("checkpoint " + folder + ": parameter " + name + " " + why +
                     "; model, optimizer and checkpoint must agree");
  };
  for (const ParamUnit& unit : layout.units) {
    for (const FlatParam& param : unit.params) {
      ++expected;
      const auto found = stored.find(param.spec.name);
      if (found == stored.end()) refuse(param.spec.name, "is missing");
      const Shape shape = ExportedShape(param.spec);
      if (found->second != shape)
        refuse(param.spec.name, "has shape " + found->second.str() + ", the model has " + shape.str());
      if (moments >= 1 && !reader.Has(param.spec.name, StateKind::moment1))
        refuse(param.spec.name, "has no first moment of the optimizer");
      if (moments >= 2 && !reader.Has(param.spec.name, StateKind::moment2))
        refuse(param.spec.name, "has no second moment of the optimizer");
    }
  }
  if (stored.size() == expected) return;
  for (const auto& [name, shape] : stored) {
    bool known = false;
    for (const ParamUnit& unit : layout.units)
      for (const FlatParam& param : unit.params) known = known || param.spec.name == name;
    if (!known) refuse(name, "is not in the model");
  }
}

}  // namespace ds
