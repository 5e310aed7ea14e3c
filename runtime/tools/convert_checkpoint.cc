#include "runtime/tools/convert_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/terminal.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/job/yaml.h"
#include "runtime/plan/manifest.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

long long Long(int64_t value) { return value; }

std::string Time(int64_t nanoseconds) {
  const std::time_t seconds = nanoseconds / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

std::string Size(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < 100'000 ? "%.0f kB" : "%.1f MB",
                static_cast<double>(bytes) / (bytes < 100'000 ? 1e3 : 1e6));
  return text;
}

int64_t BytesOf(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

/// A dotted key of a resolved spec, "?" where it has none.
std::string JobKey(const Value& job, const std::string& dotted) {
  const Value* at = &job;
  for (size_t begin = 0; at && begin <= dotted.size();) {
    const size_t end = std::min(dotted.find('.', begin), dotted.size());
    at = at->Find(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  return at && !at->text.empty() ? at->text : "?";
}

std::string JobText(const std::string& yaml) {
  try {
    const Value job = ParseYaml(yaml, "job");
    return JobKey(job, "job.name") + ", ZeRO stage " + JobKey(job, "deepspeed.zero_optimization.stage") + ", " +
           JobKey(job, "deepspeed.optimizer.type") + ", train_batch_size " + JobKey(job, "deepspeed.train_batch_size");
  } catch (const Error& error) {
    return std::string("cannot be read: ") + error.what();
  }
}

void Show(const fs::path& folder, const Manifest& manifest) {
  const TrainingState& state = manifest.training;
  int64_t elements = 0;
  for (const auto& [name, shape] : manifest.parameters) elements += shape.numel();
  bool held[3] = {};
  const StateKind kinds[] = {StateKind::master, StateKind::moment1, StateKind::moment2};
  for (const ManifestSlice& slice : manifest.slices)
    for (int i = 0; i < 3; ++i) held[i] = held[i] || slice.state == kinds[i];
  std::string states;
  for (int i = 0; i < 3; ++i)
    if (held[i]) states += (states.empty() ? "" : ", ") + CheckpointStateName(kinds[i]);

  std::printf("checkpoint %s\n", folder.c_str());
  std::printf("  written      %s by %d rank%s\n", Time(manifest.written_ns).c_str(), manifest.ranks,
              manifest.ranks == 1 ? "" : "s");
  std::printf("  job          %s, seed %llu\n", JobText(state.job_yaml).c_str(),
              static_cast<unsigned long long>(state.seed));
  std::printf("  step         %lld (%lld optimizer steps, %lld samples, %lld tokens)\n", Long(state.step),
              Long(state.optimizer_steps), Long(state.samples), Long(state.tokens));
  std::printf("  loss         %.6g\n", state.final_loss);
  if (state.loss_scale != 1)
    std::printf("  loss scale   %g, %lld good steps\n", state.loss_scale, Long(state.good_steps));
  std::printf("  files        %zu, %s\n", manifest.files.size(), Size(BytesOf(manifest)).c_str());
  std::printf("  parameters   %zu, %lld elements; of each: %s\n", manifest.parameters.size(), Long(elements),
              states.c_str());
  for (const auto& [name, shape] : manifest.parameters)
    std::printf("    %-48s %s\n", name.c_str(), shape.str().c_str());
}

/// Folders that a crash left half-written.
std::vector<fs::path> Unfinished(const fs::path& root) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator i(root, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".partial")) found.push_back(i->path());
  }
  return found;
}

/// One line on a terminal, rewritten a few times a second; nothing elsewhere.
class Progress {
 public:
  void operator()(const fs::path& file, int64_t done, int64_t total) {
    const Clock::time_point now = Clock::now();
    if (!terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    shown_ = true;
    std::fprintf(stderr, "\r\033[K%s: %.0f%% of %s", (file.parent_path().filename() / file.filename()).c_str(),
                 100.0 * static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1)),
                 Size(total).c_str());
  }
  void Clear() {
    if (shown_) std::fputs("\r\033[K", stderr);
    shown_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const bool terminal_ = IsTerminal(STDERR_FILENO);
  Clock::time_point next_ = Clock::now() + std::chrono::milliseconds(300);
  bool shown_ = false;
};

/// Throws RuntimeError when it is damaged.
Manifest VerifyOne(const fs::path& folder) {
  Progress progress;
  try {
    Manifest manifest = VerifyCheckpoint(folder, std::ref(progress));
    CheckTensors(folder, manifest);
    progress.Clear();
    return manifest;
  } catch (...) {
    progress.Clear();
    throw;
  }
}

bool HoldsCheckpoints(const fs::path& root) { return !ListCheckpoints(root).empty() || LatestTrouble(root, 0); }

/// Calls `each` with the checkpoints of every root, newest first, and counts what is damaged.
template <class Each>
void ForEach(const CheckpointPath& path, const Each& each) {
  int damaged = 0, all = 0;
  auto complain = [&](const std::string& reason) {
    ++damaged;
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", reason.c_str());
  };
  for (const fs::path& root : path.roots) {
    const std::vector<CheckpointEntry> entries = ListCheckpoints(root);
    for (const CheckpointEntry& entry : entries) {
      ++all;
      try {
        each(entry);
      } catch (const Error& error) {
        complain(entry.folder.filename().string() + " is damaged: " + error.what());
      }
    }
    if (auto trouble = LatestTrouble(root, entries.empty() ? 0 : entries.front().written_ns)) complain(*trouble);
  }
  if (damaged > 0)
    throw RuntimeError(std::to_string(damaged) + " damaged or missing; " + std::to_string(all) + " checkpoint" +
                       (all == 1 ? " was" : "s were") + " found");
}

}  // namespace

std::optional<CheckpointPath> FindCheckpoints(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (fs::is_symlink(fs::symlink_status(path, error))) ResolveCheckpoint(path);  // it says where the link leads
    const fs::path file = fs::weakly_canonical(path, error), around = file.parent_path();
    if ((file.filename() == "manifest.json" || file.extension() == ".safetensors") &&
        fs::exists(around / "manifest.json"))
      throw UsageError(path + " is a file of a checkpoint; name the checkpoint: " + around.string());
    return std::nullopt;
  }
  fs::path folder = fs::weakly_canonical(path, error);
  const std::string name = folder.filename().string();
  if (name.starts_with("step-") || fs::exists(fs::symlink_status(folder / "manifest.json", error)))
    return CheckpointPath{folder, {}};
  if (name == "checkpoints" || !ListCheckpoints(folder).empty()) {  // a job's folder has a `latest` of its own
    if (!HoldsCheckpoints(folder)) throw UsageError(path + ": there is no checkpoint in it");
    return CheckpointPath{{}, {folder}};
  }
  CheckpointPath found;
  bool is_run = false;
  for (const fs::path& root : CheckpointRoots(folder)) {
    is_run = is_run || fs::is_directory(root, error) || fs::exists(root.parent_path() / "job.yaml", error);
    if (HoldsCheckpoints(root)) found.roots.push_back(root);
  }
  if (is_run && found.roots.empty()) throw UsageError(path + ": there is no checkpoint in it");
  return is_run ? std::optional(found) : std::nullopt;
}

void InspectCheckpoints(const CheckpointPath& path) {
  if (!path.checkpoint.empty()) return Show(path.checkpoint, ReadManifest(path.checkpoint));
  fs::path newest;
  int64_t written_ns = 0;
  for (const fs::path& root : path.roots) {
    std::printf("%s\n", root.c_str());
    for (const fs::path& partial : Unfinished(root))
      std::printf("  %s is unfinished; the next checkpoint removes it\n", partial.filename().c_str());
    for (const CheckpointEntry& entry : ListCheckpoints(root)) {
      try {
        const Manifest manifest = ReadManifest(entry.folder);
        std::printf("  %-12s %s by %d rank%s, %s, loss %.6g\n", entry.folder.filename().c_str(),
                    Time(manifest.written_ns).c_str(), manifest.ranks, manifest.ranks == 1 ? "" : "s",
                    Size(BytesOf(manifest)).c_str(), manifest.training.final_loss);
        if (manifest.written_ns < written_ns) continue;
        written_ns = manifest.written_ns;
        newest = entry.folder;
      } catch (const Error&) {
        std::printf("  %-12s damaged\n", entry.folder.filename().c_str());
      }
    }
  }
  if (!newest.empty()) Show(newest, ReadManifest(newest));
  ForEach(path, [](const CheckpointEntry& entry) { ReadManifest(entry.folder); });
}

void VerifyCheckpoints(const CheckpointPath& path) {
  auto verify = [](const fs::path& folder) {
    const Manifest manifest = VerifyOne(folder);
    std::printf("%s: whole (step %lld, %zu files, %s)\n", folder.c_str(), Long(manifest.training.step),
                manifest.files.size(), Size(BytesOf(manifest)).c_str());
  };
  if (!path.checkpoint.empty()) return verify(path.checkpoint);
  ForEach(path, [&](const CheckpointEntry& entry) { verify(entry.folder); });
}

}  // namespace ds
