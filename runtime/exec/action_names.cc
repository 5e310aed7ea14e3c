#include "runtime/exec/action_names.h"

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/planner.h"

namespace ds {

std::string FailpointOf(const ModelLayout& layout, const Plan& plan, int64_t step, size_t index) {
  const std::string description = Describe(layout, plan, index);
  const size_t space = description.find(' ');  // behind the action's number
  return "step:" + std::to_string(step) + "/" +
         (space == std::string::npos ? description : description.substr(space + 1));
}

std::exception_ptr Explain(const ModelLayout& layout, const Plan& plan, int64_t step, size_t index) {
  const std::string where = "rank " + std::to_string(plan.options.job_rank()) + ", step " + std::to_string(step) +
                            ", action " + Describe(layout, plan, index) + ": ";
  try {
    throw;
  } catch (const CommunicatorAborted& error) {
    return std::make_exception_ptr(CommunicatorAborted(where + error.what()));
  } catch (const Error& error) {
    return std::make_exception_ptr(Error(error.code(), where + error.what()));
  } catch (const std::exception& error) {
    return std::make_exception_ptr(RuntimeError(where + error.what()));
  }
}

}  // namespace ds
