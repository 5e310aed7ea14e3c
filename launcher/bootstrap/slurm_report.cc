#include "launcher/bootstrap/slurm_report.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "launcher/bootstrap/slurm_nodelist.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr size_t kKeptLines = 6;

/// The signal that strsignal calls `text`, with or without "(core dumped)"; 0: none.
int SignalOf(std::string_view text) {
  if (const size_t dumped = text.find(" (core dumped)"); dumped != std::string_view::npos)
    text = text.substr(0, dumped);
  for (int signal = 1; signal < 32; ++signal) {
    const char* name = ::sigdescr_np(signal);
    if (name && text == name) return signal;
  }
  return 0;
}

std::optional<ProcessEnd> EndOf(std::string_view text) {
  constexpr std::string_view kExited = "Exited with exit code ";
  if (text.starts_with(kExited)) {
    text.remove_prefix(kExited.size());
    int code = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return ProcessEnd{code, 0};
  }
  if (text == "Completed") return ProcessEnd{};
  const int signal = SignalOf(text);
  return signal == 0 ? std::nullopt : std::optional(ProcessEnd{0, signal});
}

std::vector<std::string> Nodes(std::string_view list) {
  try {
    return ExpandNodeList(list, "srun");
  } catch (const UsageError&) {
    return {};
  }
}

}  // namespace

std::optional<TasksEnded> ReadTasksEnded(std::string_view line) {
  if (!line.starts_with("srun: ")) return std::nullopt;
  const size_t task = std::min(line.find(": task "), line.find(": tasks "));
  if (task == std::string_view::npos) return std::nullopt;
  const size_t colon = line.find(": ", task + 2);
  if (colon == std::string_view::npos) return std::nullopt;
  const std::optional<ProcessEnd> end = EndOf(line.substr(colon + 2));
  const std::string_view before = line.substr(0, task);
  std::vector<std::string> nodes = Nodes(before.substr(before.rfind(' ') + 1));
  if (!end || nodes.empty()) return std::nullopt;
  return TasksEnded{std::move(nodes), *end};
}

std::vector<std::string> ReadNodesFailed(std::string_view line) {
  constexpr std::string_view kFailure = "Node failure on ";
  const size_t at = line.find(kFailure);
  if (!line.starts_with("srun: ") || at == std::string_view::npos) return {};
  return Nodes(line.substr(at + kFailure.size()));
}

bool SlurmNoise::Add(std::string_view line) {
  if (!line.starts_with("srun: ") && !line.starts_with("slurmstepd")) return false;
  constexpr std::string_view kTelling[] = {"error:", "fatal:", "warning:", "Warning:", "abort",  "step creation",
                                           "retry",  "CANCEL", "cancel",   "expired",  "killed", "forcing"};
  if (std::none_of(std::begin(kTelling), std::end(kTelling),
                   [&](std::string_view word) { return line.find(word) != std::string_view::npos; }))
    return true;
  for (const std::string_view prefix : {"srun: ", "error: "}) {
    if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
  }
  if (!lines_.empty() && lines_.back() == line) return true;
  lines_.emplace_back(line);
  if (lines_.size() > kKeptLines) lines_.pop_front();
  return true;
}

std::string SlurmNoise::Text() const { return Join({lines_.begin(), lines_.end()}, "; "); }

}  // namespace ds
