#include "runtime/state/unit_tensor.h"

#include <algorithm>

namespace ds {

Shape ExportedShape(const ParamSpec& spec) {
  if (spec.real_rows == 0) return spec.shape;
  return spec.shape.rank() == 1 ? Shape{spec.real_rows} : Shape{spec.real_rows, spec.shape[1]};
}

std::vector<ParamRun> ParamRuns(const ParamUnit& unit, int64_t begin, int64_t count) {
  std::vector<ParamRun> runs;
  for (size_t p = 0; p < unit.params.size(); ++p) {
    const FlatParam& param = unit.params[p];
    const int64_t from = std::max(begin, param.offset);
    const int64_t to = std::min(begin + count, param.offset + ExportedShape(param.spec).numel());
    if (from < to) runs.push_back(ParamRun{static_cast<int>(p), from - param.offset, from, to - from});
  }
  return runs;
}

std::vector<ShardRange> Gaps(const ParamUnit& unit) {
  std::vector<ShardRange> gaps;
  int64_t at = 0;
  auto close = [&](int64_t next) {
    if (next > at) gaps.push_back(ShardRange{at, at, next - at});
  };
  for (const FlatParam& param : unit.params) {
    close(param.offset);
    at = param.offset + param.numel();
  }
  close(unit.numel);
  return gaps;
}

}  // namespace ds
