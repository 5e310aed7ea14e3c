#include "runtime/run/resume_check.h"

#include <map>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/job/yaml.h"
#include "runtime/plan/manifest.h"
#include "runtime/plan/planner.h"

namespace ds {
namespace {

/// As users see it: without padding of the vocabulary.
Shape RealShape(const ParamSpec& spec) {
  if (spec.real_rows == 0) return spec.shape;
  return spec.shape.rank() == 1 ? Shape{spec.real_rows} : Shape{spec.real_rows, spec.shape[1]};
}

/// deepspeed.optimizer.type of a resolved spec. Adam and AdamW differ in the decay only: one name for both.
std::string OptimizerIn(const std::string& job_yaml) {
  const Value root = ParseYaml(job_yaml, "job");
  const Value* at = &root;
  for (const char* key : {"deepspeed", "optimizer", "type"}) {
    at = at->Find(key);
    if (!at) return "";
  }
  return at->text == "Adam" ? "AdamW" : at->text;
}

}  // namespace

void CheckResume(const JobSpec& spec, int world, const std::string& folder) {
  const Manifest manifest = ReadManifest(folder);
  const auto refuse = [&](const std::string& name, const std::string& why) {
    throw UsageError("checkpoint " + folder + ": parameter " + name + " " + why +
                     "; model, optimizer and checkpoint must agree");
  };
  std::set<std::pair<std::string, StateKind>> states;
  for (const ManifestSlice& slice : manifest.slices) states.emplace(slice.param, slice.state);
  const int moments = MomentCount(spec.optimizer);
  std::set<std::string> of_model;
  const ModelLayout layout = LayoutOf(spec, world);
  for (const ParamUnit& unit : layout.units) {
    for (const FlatParam& param : unit.params) {
      const std::string& name = param.spec.name;
      of_model.insert(name);
      const auto found = manifest.parameters.find(name);
      if (found == manifest.parameters.end()) refuse(name, "is missing");
      if (const Shape shape = RealShape(param.spec); found->second != shape)
        refuse(name, "has shape " + found->second.str() + ", the model has " + shape.str());
      if (moments >= 1 && !states.contains({name, StateKind::moment1}))
        refuse(name, "has no first moment of the optimizer");
      if (moments >= 2 && !states.contains({name, StateKind::moment2}))
        refuse(name, "has no second moment of the optimizer");
    }
  }
  for (const auto& [name, shape] : manifest.parameters)
    if (!of_model.contains(name)) refuse(name, "is not in the model");
  const std::string was = OptimizerIn(manifest.training.job_yaml), is = OptimizerIn(ToYaml(spec));
  if (was != is)
    throw UsageError("checkpoint " + folder + ": its optimizer state is of " + was + ", deepspeed.optimizer.type is " +
                     is + "; write " + was + ", or train anew");
}

}  // namespace ds
