#include "launcher/nodes/preflight.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <map>

#include "runtime/base/clock.h"
#include "runtime/base/text.h"
#include "runtime/job/preflight_names.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

/// Everything that a judgement may look at.
struct Node {
  const std::vector<HostSlots>& hosts;
  const std::vector<pb::NodeFacts>& facts;
  const PreflightNeeds& needs;
  size_t index;
  int64_t clock_offset_ns;
  const ProbeOutcome* probe;  ///< nullptr: none was made
  NodeShare share;

  const pb::NodeFacts& own() const { return facts[index]; }
  const std::string& host() const { return hosts[index].host; }
  size_t workers() const { return needs.world > 0 ? hosts[index].slots.size() : 0; }
};

std::string Text(const char* format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::string Size(int64_t bytes) {
  if (bytes < (10 << 20)) return Text("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes < (1 << 30)) return Text("%.0f MiB", static_cast<double>(bytes) / (1 << 20));
  return Text("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string Count(uint64_t value) {
  return value == std::numeric_limits<uint64_t>::max() ? "unlimited" : std::to_string(value);
}

void Fail(CheckResult& result, std::string text) { result = {result.name, CheckStatus::failed, std::move(text), 0}; }
void Warn(CheckResult& result, std::string text) { result = {result.name, CheckStatus::warning, std::move(text), 0}; }

void JudgeReachability(const Node& node, CheckResult& result) {
  result.text = "the agent reaches ds-launch";
  if (!node.probe) return;
  if (!node.probe->text.empty()) return Fail(result, node.probe->text);
  result.text +=
      Text(", and %d other node%s on the data interface", node.probe->dialled, node.probe->dialled == 1 ? "" : "s");
}

void JudgeVersions(const Node&, CheckResult& result) { result.text = "ds-agent and ds-launch are the same build"; }

void JudgeClock(const Node& node, CheckResult& result) {
  const double seconds = static_cast<double>(node.clock_offset_ns) * 1e-9;
  result.text =
      std::abs(seconds) < 0.5 ? "in step" : Text("%.1f s %s", std::abs(seconds), seconds > 0 ? "ahead" : "behind");
  if (std::abs(seconds) < kClockWarnSeconds) return;
  const std::string text = result.text + " of ds-launch's clock: set it (chrony, ntpd)";
  if (std::abs(seconds) < kClockFailSeconds) return Warn(result, text);
  Fail(result, text + Text("; more than %.0f s would spoil times in logs and files", kClockFailSeconds));
}

void JudgeDisk(const Node& node, CheckResult& result) {
  std::vector<std::string> found;
  for (const auto& disk : node.own().disks()) {
    const bool output = disk.path() == node.needs.output;
    if (output) {
      const int64_t wanted = node.needs.checkpoint_bytes * node.needs.checkpoints;
      if (disk.free() < wanted)
        return Fail(result, Size(disk.free()) + " free at " + disk.path() + ", " + Size(wanted) + " needed for " +
                                (node.needs.checkpoints == 1
                                     ? "a checkpoint"
                                     : std::to_string(node.needs.checkpoints) + " checkpoints (checkpoint.keep is " +
                                           std::to_string(node.needs.checkpoint_keep) + ", and one is being written)") +
                                "; free space" + (node.needs.checkpoints > 1 ? " or set checkpoint.keep" : ""));
    } else if (disk.path() != "/") {  // where sockets and programs' temporary files go
      if (disk.free() < kLeastTemporary)
        return Fail(result,
                    "no space left at " + disk.path() + ", where the agent's socket goes; free space or set TMPDIR");
      if (disk.free() < kLittleTemporary)
        return Warn(result, "only " + Size(disk.free()) + " free at " + disk.path() + "; free space");
    }
    if (output || disk.path() != "/") found.push_back(Size(disk.free()) + " free at " + disk.path());
  }
  result.text = Join(found, ", ");
}

void JudgeSharedOutput(const Node& node, CheckResult& result) {
  const bool seen = node.own().token_seen();
  result.text = seen ? "the output folder is shared" : "the output folder is not shared";
  if (node.needs.output.empty()) result.text = "no output folder to look for";
  if (!seen && node.needs.shared_output)
    Fail(result,
         "the output folder is not shared with " + node.host() +
             ": checkpoints could not be put together; choose --output on a file system that all nodes share, or set "
             "checkpoint.every to -1");
}

void JudgeOpenFiles(const Node& node, CheckResult& result) {
  const uint64_t limit = node.own().open_files();
  result.text = Count(limit) + " open files";
  if (node.needs.world == 0) return;
  const std::string allows = node.host() + " allows " + Count(limit) + " open files (hard limit), and ";
  const std::string mend = ": raise it (ulimit -Hn, limits.conf, LimitNOFILE of a daemon)";
  const uint64_t agent = AgentFiles(node.workers()), worker = node.needs.foreign ? 0 : WorkerFiles(node.needs.world);
  if (limit < agent)
    return Fail(result, allows + std::to_string(node.workers()) + " workers need " + std::to_string(agent) + mend);
  if (limit < worker)
    return Fail(result, allows + "each of " + std::to_string(node.needs.world) + " ranks that are connected needs " +
                            std::to_string(worker) + mend);
}

void JudgeLockedMemory(const Node& node, CheckResult& result) {
  const uint64_t limit = node.own().locked_memory();
  const bool unlimited = limit == std::numeric_limits<uint64_t>::max();
  result.text = unlimited ? "unlimited" : Size(static_cast<int64_t>(limit));
  const bool rdma = node.own().rdma_size() > 0 && node.own().gpus_size() > 0 && node.hosts.size() > 1;
  if (unlimited || !rdma || node.needs.world == 0) return;
  const std::string text = result.text + " of memory may be locked, and NCCL locks its buffers for " +
                           node.own().rdma(0) + ": set it to unlimited (ulimit -l, limits.conf memlock)";
  limit < kLeastRdmaMemory ? Fail(result, text) : Warn(result, text);
}

void JudgeProcesses(const Node& node, CheckResult& result) {
  const uint64_t left = node.own().processes();
  result.text = left == std::numeric_limits<uint64_t>::max()
                    ? "unlimited"
                    : Count(left) + " more may start (" + node.own().processes_limit() + ")";
  if (node.needs.world == 0) return;
  // A worker of ours: its share of cores, and gRPC's and the checkpoint's threads. A program: itself and one thread.
  const uint64_t each = node.needs.foreign ? 2 : static_cast<uint64_t>(node.share.threads) + 24;
  const uint64_t wanted = 32 + each * node.workers();
  if (left < wanted)
    Fail(result, "only " + Count(left) + " more processes and threads may start (" + node.own().processes_limit() +
                     "), and " + std::to_string(node.workers()) + " workers need " + std::to_string(wanted) +
                     ": raise the limit");
}

void JudgeShm(const Node& node, CheckResult& result) {
  const int64_t size = node.own().shm_size(), free = node.own().shm_free();
  result.text = size == 0 ? "no /dev/shm" : Size(free) + " free of " + Size(size);
  if (node.own().gpus_size() == 0 || node.workers() < 2) return;
  const int64_t wanted = kShmPerRank * static_cast<int64_t>(node.workers());
  if (free < wanted)
    Warn(result, result.text + ", and NCCL may need " + Size(wanted) + " of it: mount it larger (docker: --shm-size)");
}

/// One past the highest slot: how many GPUs of the machine belong to this host.
int SlotSpan(const HostSlots& host) { return host.slots.empty() ? 0 : host.slots.back() + 1; }

void JudgeSlots(const Node& node, CheckResult& result) {
  const std::string& host = node.host();
  const int gpus = node.own().gpus_size(), wanted = node.share.first_gpu + SlotSpan(node.hosts[node.index]);
  const DeviceChoice device = node.needs.device;
  const size_t slots = node.hosts[node.index].slots.size();
  if (node.needs.world == 0) {
    result.text = gpus > 0 ? std::to_string(gpus) + " GPUs" : std::to_string(node.own().cores()) + " cores";
    return;
  }
  result.text = std::to_string(slots) + (slots == 1 ? " slot" : " slots") + " on " +
                (gpus > 0 && device != DeviceChoice::cpu ? std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs")
                                                         : std::to_string(node.own().cores()) + " cores");
  if (gpus > 0 && wanted > gpus && device != DeviceChoice::cpu)
    return Fail(result, host + " has " + std::to_string(gpus) + " GPUs, and its slots need " + std::to_string(wanted) +
                            (node.share.first_gpu > 0 ? " with those of the hosts before it on the same machine" : "") +
                            ": give it fewer slots, or set training.device: cpu");
  if (gpus == 0 && device == DeviceChoice::gpu)
    return Fail(result, host + " has no GPU that the agent can see, and training.device is gpu");
  const bool first = node.facts[0].gpus_size() > 0;
  if (node.needs.one_device_kind && device == DeviceChoice::automatic && (gpus > 0) != first)
    Fail(result, host + (gpus > 0 ? " has GPUs and " : " has no GPUs and ") + node.hosts[0].host +
                     (gpus > 0 ? " has none" : " has some") +
                     ": ranks compute on one kind of device; set training.device: cpu, or leave out nodes");
}

void JudgeContainment(const Node& node, CheckResult& result) {
  result.text = node.own().contained().empty() ? "none" : node.own().contained();
  if (!node.own().containment_refused().empty())
    result.text += " (not allowed: " + node.own().containment_refused() + ")";
}

void JudgeGpuState(const Node& node, CheckResult& result) {
  const int gpus = node.own().gpus_size();
  result.text = gpus == 0 ? "no GPU" : std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs") + " in good state";
}

void JudgeWorker(const Node& node, CheckResult& result) {
  result.text = "ds-worker is there";
  if (node.own().worker_program().empty()) return;
  const std::string text =
      "ds-worker cannot be run: " + node.own().worker_program() + "; install the same build on every node";
  node.needs.foreign ? Warn(result, text) : Fail(result, text);
}

using Judge = void (*)(const Node&, CheckResult&);
const std::map<std::string, Judge>& Judges() {
  static const std::map<std::string, Judge> judges = {{"reachability", JudgeReachability},
                                                      {"versions", JudgeVersions},
                                                      {"clock", JudgeClock},
                                                      {"disk", JudgeDisk},
                                                      {"shared-output", JudgeSharedOutput},
                                                      {"open-files", JudgeOpenFiles},
                                                      {"locked-memory", JudgeLockedMemory},
                                                      {"processes", JudgeProcesses},
                                                      {"shm", JudgeShm},
                                                      {"slots", JudgeSlots},
                                                      {"containment", JudgeContainment},
                                                      {"gpu-state", JudgeGpuState},
                                                      {"worker", JudgeWorker}};
  return judges;
}

CheckResult JudgeOne(const char* name, const Node& node) {
  CheckResult result{name, CheckStatus::passed, "", 0};
  const auto& skip = node.needs.skip;
  if (std::find(skip.begin(), skip.end(), name) != skip.end()) {
    result.status = CheckStatus::skipped;
    return result;
  }
  double milliseconds = node.probe && result.name == "reachability" ? node.probe->milliseconds : 0;
  const pb::NodeFacts::Check* looked = nullptr;
  for (const pb::NodeFacts::Check& check : node.own().checks())
    if (check.name() == name) looked = &check;
  if (looked) milliseconds = looked->milliseconds();
  // A program without GPUs has no use for their state, and a job on CPUs neither: it is told, and stops nothing.
  if (looked && !looked->passed()) {
    const bool unused = result.name == "gpu-state" && node.needs.device == DeviceChoice::cpu;
    looked->warning() || unused ? Warn(result, looked->text()) : Fail(result, looked->text());
  }
  if (result.status != CheckStatus::failed) {
    CheckResult judged{name, CheckStatus::passed, "", 0};
    Judges().at(name)(node, judged);
    if (judged.status >= result.status && (judged.status != CheckStatus::passed || !looked || looked->passed()))
      result = judged;
  }
  result.milliseconds = milliseconds;
  return result;
}

}  // namespace

uint64_t AgentFiles(size_t workers) {
  // Beside those of its workers; for each worker: two pipes, a socket, a pidfd, and room.
  constexpr uint64_t kAgent = 64, kPerWorker = 8;
  return kAgent + kPerWorker * workers;
}

uint64_t WorkerFiles(int world) {
  // Its files and gRPC's; a connection to every other rank, of the communicators that are open at a time.
  constexpr uint64_t kWorker = 64, kPerRank = 4;
  return kWorker + kPerRank * static_cast<uint64_t>(world);
}

std::vector<std::vector<CheckResult>> JudgeNodes(const std::vector<HostSlots>& hosts,
                                                 const std::vector<pb::NodeFacts>& facts,
                                                 const std::vector<int64_t>& offsets,
                                                 const std::vector<ProbeOutcome>& probes, const PreflightNeeds& needs) {
  const std::vector<NodeShare> shares = ShareMachines(hosts, facts);
  std::vector<std::vector<CheckResult>> all;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const Node node{hosts, facts, needs, i, offsets[i], i < probes.size() ? &probes[i] : nullptr, shares[i]};
    std::vector<CheckResult>& results = all.emplace_back();
    for (const char* name : kCheckNames) results.push_back(JudgeOne(name, node));
  }
  return all;
}

const char* CheckStatusName(CheckStatus status) {
  switch (status) {
    case CheckStatus::passed:
      return "passed";
    case CheckStatus::warning:
      return "warning";
    case CheckStatus::failed:
      return "failed";
    case CheckStatus::skipped:
      return "skipped";
  }
  return "";
}

std::vector<std::string> PreflightLines(const std::vector<HostSlots>& hosts,
                                        const std::vector<std::vector<CheckResult>>& results) {
  struct Line {
    const CheckResult* result;
    std::vector<std::string> hosts;
  };
  std::vector<Line> lines;
  for (CheckStatus status : {CheckStatus::failed, CheckStatus::warning}) {
    for (size_t i = 0; i < results.size(); ++i) {
      for (const CheckResult& result : results[i]) {
        if (result.status != status) continue;
        auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& line) {
          return line.result->name == result.name && line.result->text == result.text && line.result->status == status;
        });
        if (same == lines.end()) same = lines.insert(lines.end(), Line{&result, {}});
        same->hosts.push_back(hosts[i].host);
      }
    }
  }
  std::vector<std::string> texts;
  for (const Line& line : lines)
    texts.push_back(std::string(line.result->status == CheckStatus::warning ? "preflight warning: " : "preflight: ") +
                    line.result->name + " on " + GroupHosts(line.hosts) + ": " + line.result->text);
  return texts;
}

std::string PreflightSummary(const std::vector<std::vector<CheckResult>>& results) {
  size_t made = 0;
  double longest = 0;
  std::vector<std::string> skipped;
  for (const std::vector<CheckResult>& node : results) {
    size_t here = 0;
    for (const CheckResult& result : node) {
      if (result.status != CheckStatus::skipped) ++here;
      longest = std::max(longest, result.milliseconds);
      if (result.status == CheckStatus::skipped && &node == &results[0]) skipped.push_back(result.name);
    }
    made = std::max(made, here);
  }
  return Text("preflight: %zu checks passed on %zu node%s in %.0f ms", made, results.size(),
              results.size() == 1 ? "" : "s", longest) +
         (skipped.empty() ? "" : "; skipped: " + Join(skipped, ", "));
}

}  // namespace ds
