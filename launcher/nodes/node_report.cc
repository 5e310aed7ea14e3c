#include "launcher/nodes/node_report.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>

#include "runtime/base/json.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

constexpr double kClockToleranceSeconds = kClockWarnSeconds;

std::string Size(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

std::string Limit(uint64_t value, bool bytes) {
  if (value == UINT64_MAX) return "unlimited";
  return bytes ? std::to_string(value >> 10) + " KiB" : std::to_string(value);
}

std::string Gpus(const pb::NodeFacts& facts) {
  std::map<std::string, int> counts;
  for (const auto& gpu : facts.gpus()) ++counts[gpu.name() + " " + Size(gpu.memory())];
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + name;
  }
  return text.empty() ? "none" : text;
}

std::string Clock(int64_t offset_ns) {
  char text[48];
  double seconds = static_cast<double>(offset_ns) * 1e-9;
  if (std::abs(seconds) < kClockToleranceSeconds) return "in step";
  std::snprintf(text, sizeof text, "%.1f s %s", std::abs(seconds), seconds > 0 ? "ahead" : "behind");
  return text;
}

}  // namespace

std::string ToJson(const NodeReport& report) {
  const pb::NodeFacts& facts = report.facts;
  JsonWriter json;
  json.BeginObject().Field("host", report.host).Field("hostname", facts.hostname()).Field("os", facts.os());
  json.Field("kernel", facts.kernel()).Field("boot_id", facts.boot_id()).Field("glibc", facts.glibc());
  json.Field("cpu", facts.cpu()).Field("cores", facts.cores());
  json.Field("memory", facts.memory()).Field("memory_available", facts.memory_available());
  json.Key("gpus").BeginList();
  for (const auto& gpu : facts.gpus()) {
    json.BeginObject().Field("index", gpu.index()).Field("name", gpu.name()).Field("memory", gpu.memory());
    json.Field("uuid", gpu.uuid()).EndObject();
  }
  json.EndList().Field("gpu_driver", facts.gpu_driver());
  json.Field("open_files", facts.open_files()).Field("locked_memory", facts.locked_memory());
  json.Key("disks").BeginList();
  for (const auto& disk : facts.disks()) {
    json.BeginObject().Field("path", disk.path()).Field("size", disk.size()).Field("free", disk.free()).EndObject();
  }
  json.EndList().Field("clock_offset_seconds", static_cast<double>(report.clock_offset_ns) * 1e-9);
  if (!report.affinity.empty()) json.Field("affinity", report.affinity);
  json.Field("agent_pid", facts.pid());
  json.Field("shm_size", facts.shm_size()).Field("shm_free", facts.shm_free());
  if (facts.processes() == UINT64_MAX)
    json.Key("processes_left").Null();
  else
    json.Field("processes_left", facts.processes());
  json.Key("containment").BeginObject().Field("in_force", facts.contained()).Key("possible").BeginList();
  for (const std::string& level : facts.containment()) json.Write(level);
  json.EndList().Field("refused", facts.containment_refused()).EndObject();
  json.Key("checks").BeginList();
  for (const CheckResult& check : report.checks) {
    json.BeginObject().Field("name", check.name).Field("status", CheckStatusName(check.status));
    json.Field("text", check.text).Field("milliseconds", check.milliseconds).EndObject();
  }
  json.EndList().EndObject();
  return json.str();
}

std::vector<NodeFact> FactsOf(const NodeReport& report) {
  const pb::NodeFacts& facts = report.facts;
  std::string contained;
  for (const std::string& level : facts.containment()) contained += (contained.empty() ? "" : ", ") + level;
  std::string free;
  for (const auto& disk : facts.disks())
    if (disk.path() != "/") free += (free.empty() ? "" : ", ") + Size(disk.free()) + " at " + disk.path();
  return {{"hostname", facts.hostname(), true},
          {"operating system", facts.os()},
          {"kernel", facts.kernel()},
          {"C library", facts.glibc()},
          {"processor", facts.cpu()},
          {"cores", std::to_string(facts.cores())},
          {"memory", Size(facts.memory())},
          {"memory available", Size(facts.memory_available()), true},
          {"GPUs", Gpus(facts)},
          {"GPU driver", facts.gpu_driver().empty() ? "none" : facts.gpu_driver()},
          {"InfiniBand, RoCE", facts.rdma().empty() ? "none" : Join({facts.rdma().begin(), facts.rdma().end()}, ", ")},
          {"open files limit", Limit(facts.open_files(), false)},
          {"locked memory limit", Limit(facts.locked_memory(), true)},
          {"/dev/shm", facts.shm_size() == 0 ? "none" : Size(facts.shm_size())},
          {"free space", free, true},
          {"containment", contained},
          {"clock", Clock(report.clock_offset_ns)}};
}

std::vector<std::string> Differences(const std::vector<NodeReport>& reports) {
  std::vector<std::string> lines;
  if (reports.empty()) return lines;
  const std::vector<NodeFact> first = FactsOf(reports[0]);
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i].varies) continue;
    std::map<std::string, std::vector<std::string>> hosts_of;  // by value
    for (const NodeReport& report : reports) hosts_of[FactsOf(report)[i].value].push_back(report.host);
    if (hosts_of.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [value, hosts] : hosts_of) parts.push_back(value + " on " + GroupHosts(hosts));
    lines.push_back(first[i].name + ": " + Join(parts, "; "));
  }
  return lines;
}

}  // namespace ds
