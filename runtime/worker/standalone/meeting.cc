#include "runtime/worker/standalone/meeting.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "proto/deepshard.pb.h"
#include "proto/version.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/nvml.h"
#include "runtime/job/data_paths.h"
#include "runtime/run/prepare.h"
#include "runtime/run/resume_check.h"
#include "runtime/worker/messages.h"
#include "runtime/worker/standalone/address.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

constexpr auto kMeet = std::chrono::milliseconds(60'000);

std::string Key(const char* what, size_t rank) { return std::string(what) + "/" + std::to_string(rank); }

std::string ToText(const RankFacts& facts) {
  pb::JoinRequest message;
  message.set_protocol(kProtocolVersion);
  message.set_build(facts.build);
  message.mutable_facts()->set_hostname(facts.host);
  message.mutable_facts()->set_boot_id(facts.machine);
  message.mutable_facts()->set_cores(static_cast<uint32_t>(facts.core_count));
  pb::NodeFacts::Check* cores = message.mutable_facts()->add_checks();
  cores->set_name("cores");
  cores->set_text(facts.cores);
  for (const std::string& uuid : facts.gpus) message.mutable_facts()->add_gpus()->set_uuid(uuid);
  return message.SerializeAsString();
}

RankFacts FromText(const std::string& text, size_t rank) {
  pb::JoinRequest message;
  if (!message.ParseFromString(text) || message.facts().checks_size() != 1)
    throw RuntimeError("rank " + std::to_string(rank) + " says what this build does not understand: its build differs");
  RankFacts facts;
  facts.build = message.build();
  facts.host = message.facts().hostname();
  facts.machine = message.facts().boot_id();
  facts.core_count = static_cast<int>(message.facts().cores());
  facts.cores = message.facts().checks(0).text();
  for (const auto& gpu : message.facts().gpus()) facts.gpus.push_back(gpu.uuid());
  return facts;
}

[[noreturn]] void FailPreflight(const std::string& message) { throw Error(ExitCode::preflight, message); }

std::string Who(size_t rank, const RankFacts& facts) { return "rank " + std::to_string(rank) + " on " + facts.host; }

void CheckRanks(const std::vector<RankFacts>& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].build != ranks[0].build)
      FailPreflight("versions differ: " + Who(0, ranks[0]) + " is build " + ranks[0].build + ", " + Who(r, ranks[r]) +
                    " is build " + ranks[r].build);
  }
}

/// Whether the ranks compute on GPUs: all or none.
bool OnGpus(const JobSpec& spec, const std::vector<RankFacts>& ranks) {
  if (spec.training.device == DeviceChoice::cpu) return false;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].gpus.empty() == ranks[0].gpus.empty()) continue;
    FailPreflight("nodes with and without GPUs: " + Who(0, ranks[0]) + " sees " + std::to_string(ranks[0].gpus.size()) +
                  ", " + Who(r, ranks[r]) + " " + std::to_string(ranks[r].gpus.size()) +
                  "; write training.device: cpu, or leave those nodes out");
  }
  if (ranks[0].gpus.empty() && spec.training.device == DeviceChoice::gpu)
    FailPreflight("training.device is gpu, and " + Who(0, ranks[0]) + " sees none");
  return !ranks[0].gpus.empty();
}

int LocalRankOf(size_t rank, const std::vector<RankFacts>& ranks) {
  int local = 0;
  for (size_t r = 0; r < rank; ++r) local += ranks[r].machine == ranks[rank].machine;
  return local;
}

int64_t MemoryForOne(const std::vector<RankFacts>& ranks) {
  const auto here =
      std::count_if(ranks.begin(), ranks.end(), [&](const auto& r) { return r.machine == ranks[0].machine; });
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) / std::max<int64_t>(here, 1);
}

/// Rank 0's part: the files are read, the run directory is made.
pb::Assignment Settle(const StandaloneOptions& options, Meeting& meeting) {
  const int world = static_cast<int>(meeting.ranks.size());
  CheckRanks(meeting.ranks);
  JobSpec spec = LoadJobSpec(options.job_file, options.overrides, world);
  CheckDataPaths(spec, options.job_file, options.overrides);
  CheckJobName(spec.name);
  ResumeChoice resume = ChooseResume(options.resume, options.output, spec.name);
  if (!resume.checkpoint.empty()) CheckResume(spec, world, resume.checkpoint);
  MachineChoice machine = ChooseMachine(options.machine, resume.checkpoint, resume.parent);
  const bool gpus = OnGpus(spec, meeting.ranks);
  for (size_t r = 0; gpus && r < meeting.ranks.size(); ++r)
    GpuOf(static_cast<int>(r), LocalRankOf(r, meeting.ranks), meeting.ranks);
  const int64_t memory = MemoryForOne(meeting.ranks);
  const PlannedJob planned =
      PlanJob(spec, world, machine.machine, machine.from, gpus ? TierRoom(0, memory) : TierRoom(memory),
              gpus ? DeviceKind::cuda : DeviceKind::cpu);
  spec = planned.spec;
  try {
    meeting.directory.emplace(options.output, spec.name);
  } catch (const std::exception& error) {
    throw UsageError("--output " + options.output + ": " + error.what() + "; choose a folder that can be written");
  }
  RunDirectory& directory = *meeting.directory;
  WriteSpec(directory, spec, machine.machine);
  for (const auto& [rank, plan] : planned.plans) directory.Write("plan/rank-" + std::to_string(rank) + ".txt", plan);
  const auto event = [&](const std::string& kind, const std::string& text) {
    directory.Event(UnixNanoseconds(), "", -1, 1, kind, text);
  };
  for (const std::string& why : resume.fallbacks) event("resume_fallback", why);
  if (!machine.changed.empty()) event("machine", machine.changed);
  for (const std::string& why : planned.placement) event("placement", why);
  meeting.parent = resume.parent;

  pb::Assignment assignment;
  assignment.set_world_size(static_cast<uint32_t>(world));
  assignment.set_attempt(1);
  assignment.set_job_id(directory.run_id());
  assignment.set_run_directory(directory.path().string());
  assignment.set_resume(resume.checkpoint);
  assignment.set_spec(ToYaml(spec));
  if (machine.machine) assignment.set_machine(ToYaml(*machine.machine));
  if (gpus) assignment.set_gpu(0);  // each rank's own is a matter of its place
  return assignment;
}

/// Checkpoints need one folder for all.
void CheckShared(const WorkerAssignment& assignment, const JobSpec& spec, const std::string& host) {
  if (spec.checkpoint.every < 0 || std::filesystem::exists(assignment.run_directory + "/job.yaml")) return;
  FailPreflight("node " + host + " does not see the run directory " + assignment.run_directory +
                ", which checkpoints need: put --output on a file system that all nodes share, or set "
                "checkpoint.every: -1");
}

}  // namespace

RankFacts OwnFacts() {
  RankFacts facts;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  facts.host = host;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> facts.machine;
  facts.build = BuildVersion();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    facts.core_count = std::max(1, CPU_COUNT(&set));
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) facts.cores += (facts.cores.empty() ? "" : ",") + std::to_string(cpu);
    }
  }
  for (const GpuFacts& gpu : VisibleGpus()) facts.gpus.push_back(gpu.uuid);
  return facts;
}

int ThreadsOf(int rank, const std::vector<RankFacts>& ranks) {
  const RankFacts& own = ranks[static_cast<size_t>(rank)];
  const auto sharing = std::count_if(ranks.begin(), ranks.end(), [&](const RankFacts& other) {
    return other.machine == own.machine && other.cores == own.cores;
  });
  return std::max(1, own.core_count / static_cast<int>(sharing));
}

int GpuOf(int rank, int local_rank, const std::vector<RankFacts>& ranks) {
  const RankFacts& own = ranks[static_cast<size_t>(rank)];
  const int seen = static_cast<int>(own.gpus.size());
  const int gpu = seen == 1 ? 0 : local_rank;
  std::string uuid = gpu < seen ? own.gpus[static_cast<size_t>(gpu)] : "";
  for (size_t r = 0; !uuid.empty() && seen == 1 && r < static_cast<size_t>(rank); ++r) {
    if (ranks[r].machine == own.machine && ranks[r].gpus == own.gpus) uuid.clear();
  }
  if (!uuid.empty()) return gpu;
  FailPreflight(Who(static_cast<size_t>(rank), own) + " is rank " + std::to_string(local_rank) +
                " of its node, and sees " + std::to_string(seen) + (seen == 1 ? " GPU" : " GPUs") +
                ": start no more ranks than GPUs on a node, or set training.device: cpu");
}

Meeting Meet(const StandaloneOptions& options, const Place& place, Store& store) {
  Meeting meeting;
  const size_t own = static_cast<size_t>(place.rank);
  store.Set(Key("rank", own), ToText(OwnFacts()));
  for (size_t r = 0; r < static_cast<size_t>(place.size); ++r)
    meeting.ranks.push_back(FromText(store.Get(Key("rank", r), kMeet), r));

  pb::Assignment message;
  if (place.rank == 0) {
    try {
      message = Settle(options, meeting);
    } catch (const Error& error) {
      store.Set("job", "!" + std::to_string(static_cast<int>(error.code())) + " " + error.what());
      throw;
    }
    store.Set("job", message.SerializeAsString());
  } else {
    const std::string text = store.Get("job", kMeet);
    if (text.starts_with("!")) throw Told(static_cast<ExitCode>(std::stoi(text.substr(1))), text.substr(1));
    if (!message.ParseFromString(text)) throw RuntimeError("rank 0's assignment is broken");
  }
  message.set_rank(static_cast<uint32_t>(place.rank));
  message.set_local_rank(static_cast<uint32_t>(place.local_rank));
  if (message.has_gpu())
    message.set_gpu(static_cast<uint32_t>(GpuOf(place.rank, LocalRankOf(own, meeting.ranks), meeting.ranks)));
  message.set_threads(static_cast<uint32_t>(ThreadsOf(place.rank, meeting.ranks)));
  meeting.assignment = FromMessage(message);

  // Whatever stands against a rank, all ranks learn of it.
  std::string trouble;
  try {
    const JobSpec spec =
        ParseJobSpec(meeting.assignment.spec, "job.yaml", meeting.assignment.run_directory, {}, place.size);
    CheckShared(meeting.assignment, spec, meeting.ranks[own].host);
    std::vector<std::string> machines;
    for (const RankFacts& facts : meeting.ranks) machines.push_back(facts.machine);
    meeting.assignment.interface_address = DataAddress(place.rank, machines, spec.launch.interface, store, kMeet);
  } catch (const Error& error) {
    trouble = Who(own, meeting.ranks[own]) + ": " + error.what();
  }
  store.Set(Key("ready", own), trouble);
  for (size_t r = 0; r < meeting.ranks.size(); ++r) {
    const std::string theirs = store.Get(Key("ready", r), kMeet);
    if (theirs.empty()) continue;
    if (place.rank == 0) throw Error(ExitCode::preflight, theirs);
    throw Told(ExitCode::preflight, theirs);
  }
  return meeting;
}

}  // namespace ds
