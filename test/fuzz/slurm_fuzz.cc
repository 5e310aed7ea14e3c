// What SLURM's variables and programs write: lists of nodes, counts, details of a job, srun's lines.
#include "launcher/bootstrap/slurm_nodelist.h"
#include "launcher/bootstrap/slurm_report.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

std::string Commas(const std::vector<std::string>& nodes) {
  std::string text;
  for (const std::string& node : nodes) text += (text.empty() ? "" : ",") + node;
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::View(data, size));
  const fuzz::Memory limit{1500, 128 << 20};  // 65536 names of up to 255 bytes, in a list and in a set
  std::vector<std::string> nodes;
  if (fuzz::Guarded(size, limit, {"NODES:"}, [&] { nodes = ExpandNodeList(text, "NODES"); })) {
    fuzz::Check(!nodes.empty(), "an empty list was read");
    // Of long lists the check alone would take a second.
    fuzz::Check(nodes.size() > 4096 || ExpandNodeList(Commas(nodes), "NODES") == nodes,
                "the nodes one by one are others", text);
  }
  std::vector<int> counts;
  if (fuzz::Guarded(size, limit, {"COUNTS:"}, [&] { counts = ExpandCounts(text, "COUNTS"); }))
    fuzz::Check(!counts.empty() && counts.size() <= 65536, "counts beyond the limit");
  fuzz::Guarded(size, limit, {"JOB:"}, [&] { GpusOfJobDetails(text, "JOB"); });
  fuzz::Check(CountOfGpus(text) >= -1, "fewer GPUs than none");
  ReadTasksEnded(text);
  ReadNodesFailed(text);
  SlurmNoise noise;
  noise.Add(text);
  return 0;
}
