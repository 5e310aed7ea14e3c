// Two nodes with a network of their own each, a real sshd on both, and a launcher on a third: whole jobs over ssh, and
// links that fail.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/base/number.h"
#include "test/catch.h"
#include "test/cluster_ssh/namespaces.h"
#include "test/cluster_ssh/sshd.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class Cluster {
 public:
  static std::unique_ptr<Cluster> Make() {
    if (!HasOpenSsh()) return nullptr;
    std::unique_ptr<Namespaces> namespaces = Namespaces::Make();
    return namespaces ? std::unique_ptr<Cluster>(new Cluster(std::move(namespaces))) : nullptr;
  }

  std::unique_ptr<LaunchedJob> Launch(std::vector<std::string> arguments, bool real_worker = false) const {
    LaunchSetting setting;
    setting.arguments = {"--ssh-config", configuration_, "--hostfile", "hosts"};
    setting.arguments.insert(setting.arguments.end(), arguments.begin(), arguments.end());
    setting.hosts = namespaces->Address(0) + " slots=1\n" + namespaces->Address(1) + " slots=1\n";
    setting.shell_prelude = "exec nsenter --net=" + namespaces->Path("launcher") + " \"$@\"";
    if (real_worker) setting.environment["DS_WORKER_PROGRAM"] = std::string(DS_BIN_DIR) + "/ds-worker";
    return std::make_unique<LaunchedJob>(setting);
  }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  std::unique_ptr<Namespaces> namespaces;
  std::vector<std::unique_ptr<Sshd>> servers;

 private:
  explicit Cluster(std::unique_ptr<Namespaces> made) : namespaces(std::move(made)) {
    std::ofstream configuration(configuration_ = path("ssh_config"));
    for (int node = 0; node < 2; ++node) {
      SshdSetting setting;
      setting.net_namespace = namespaces->Path("node" + std::to_string(node));
      setting.known = {namespaces->Address(node)};
      servers.push_back(std::make_unique<Sshd>(setting));
      configuration << "Host " << namespaces->Address(node) << "\n" << ReadText(servers.back()->path("ssh_config"));
    }
  }

  TemporaryFolder folder_;
  std::string configuration_;
};

std::string EventText(const LaunchedJob& job, const std::string& kind) {
  for (const Value& line : job.Lines("events.jsonl")) {
    if (Text(line, "event") == kind) return Text(line, "message");
  }
  return "";
}

}  // namespace

TEST_CASE("Two nodes over ssh: a real job with a checkpoint on a shared folder, over the network that was chosen") {
  const std::unique_ptr<Cluster> cluster = Cluster::Make();
  if (!cluster) return;
  fs::copy_file(fs::path(DS_SOURCE_DIR) / "LICENSE", cluster->path("text.txt"));
  WriteText(cluster->path("job.yaml"),
            "job: {name: small}\nmodel: {preset: gpt2-tiny}\ndata: {train: text.txt, sequence_length: 32}\n"
            "training: {steps: 4}\ncheckpoint: {every: 2}\n"
            "deepspeed:\n  train_batch_size: 4\n  train_micro_batch_size_per_gpu: 2\n"
            "  optimizer: {type: AdamW, params: {lr: 1e-2}}\n  zero_optimization: {stage: 2}\n");
  const std::unique_ptr<LaunchedJob> job = cluster->Launch({cluster->path("job.yaml")}, /*real_worker=*/true);
  REQUIRE(job->Wait(90) == 0);
  const std::string run = job->run_directory();
  CHECK(fs::exists(run + "/checkpoints/step-4"));
  CHECK(EventText(*job, "bootstrap") == "ssh (10.77.0.2 is not this machine)");
  CHECK(EventText(*job, "network") ==
        "control: 10.77.0.1 (the way to 2 hosts); data: 10.77.0.2 (eth0) on 10.77.0.2, 10.77.0.3 (eth0) on 10.77.0.3");
  CHECK(job->output().find("network: control: 10.77.0.1") != std::string::npos);
  CHECK(job->NothingLeft());
  CHECK(fs::exists(run + "/report/10.77.0.3.json"));
}

TEST_CASE("Two nodes over ssh: the network that --interface names carries control and data") {
  const std::unique_ptr<Cluster> cluster = Cluster::Make();
  if (!cluster) return;
  const std::string show = "echo $MASTER_ADDR $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME";
  for (const std::string wanted : {"ib0", "10.78.0.0/16"}) {
    const std::unique_ptr<LaunchedJob> job = cluster->Launch({"--interface", wanted, "--", "sh", "-c", show});
    REQUIRE(job->Wait() == 0);
    CHECK(job->Log(1) == "10.78.0.2 =ib0 ib0\n");
    CHECK(EventText(*job, "network") == "control: 10.78.0.1 (launch.interface is " + wanted +
                                            "); data: 10.78.0.2 (ib0) on 10.77.0.2, 10.78.0.3 (ib0) on 10.77.0.3");
    CHECK(job->NothingLeft());
  }
  const std::unique_ptr<LaunchedJob> job = cluster->Launch({"--interface", "ib7", "--", "true"});
  CHECK(job->Wait() == 3);
  const std::string message = CauseOf(job->Summary(), "message");
  INFO(message);
  CHECK(
      message.find("reachability on 10.77.0.2: 10.77.0.2 has no interface that is up and matches launch.interface ib7; "
                   "it has lo") == 0);
  CHECK(message.find("eth0 10.77.0.2/24") != std::string::npos);
  CHECK(job->NothingLeft());
}

TEST_CASE("Two nodes over ssh that do not reach each other: said at preflight, not in a collective that hangs") {
  const std::unique_ptr<Cluster> cluster = Cluster::Make();
  if (!cluster) return;
  REQUIRE(std::system(("nsenter --net=" + cluster->namespaces->Path("node0") + " ip route add unreachable 10.77.0.3/32")
                          .c_str()) == 0);
  const std::unique_ptr<LaunchedJob> job = cluster->Launch({"--", "true"});
  const Clock::time_point begin = Clock::now();
  CHECK(job->Wait() == 3);
  CHECK(Clock::now() - begin < std::chrono::seconds(15));  // logins, then 5 s at most
  INFO(job->output());
  CHECK(job->output().find("preflight: reachability on 10.77.0.2: it does not reach 10.77.0.3 at 10.77.0.3 (") !=
        std::string::npos);
  // No way there is none back either: what node 0 answers is lost.
  CHECK(job->output().find("preflight: reachability on 10.77.0.3: it does not reach 10.77.0.2 at 10.77.0.2 (no answer "
                           "within 5 s)") != std::string::npos);
  CHECK(CauseOf(job->Summary(), "kind") == "preflight");
  CHECK(job->NothingLeft(10));
}

TEST_CASE("Two nodes over ssh: a link that is down for a second is nothing") {
  const std::unique_ptr<Cluster> cluster = Cluster::Make();
  if (!cluster) return;
  const std::unique_ptr<LaunchedJob> job = cluster->Launch({"fake.yaml"});
  REQUIRE(job->WaitForStep(2));
  cluster->namespaces->SetLink(1, false);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  cluster->namespaces->SetLink(1, true);
  const int step = static_cast<int>(job->Lines("metrics.jsonl").size());
  CHECK(job->WaitForStep(step + 5));
  CHECK_FALSE(job->HasEvent("node_lost"));
  job->Signal(SIGTERM);
  CHECK(job->Wait() == 143);
  CHECK(job->NothingLeft());
}

TEST_CASE("Two nodes over ssh: a link that fails for good loses the node, and its agent ends by itself") {
  const std::unique_ptr<Cluster> cluster = Cluster::Make();
  if (!cluster) return;
  const std::vector<std::string> quick = {"fake.yaml", "--set", "launch.lease_seconds=4", "--set",
                                          "launch.suspect_seconds=2"};
  const std::unique_ptr<LaunchedJob> job = cluster->Launch(quick);
  REQUIRE(job->WaitForStep(2));
  const pid_t agent = job->Agent("10.77.0.3");
  const auto gone = [&] { return !fs::exists("/proc/" + std::to_string(agent)); };
  const Clock::time_point cut = Clock::now();
  SECTION("both ways") { cluster->namespaces->SetLink(1, false); }
  SECTION("one way: what the launcher says is lost") { cluster->namespaces->SwallowTowards(1); }
  SECTION("one way: what the node says is lost") { cluster->namespaces->SwallowFrom(1); }
  CHECK(job->Wait(30) == 4);
  CHECK(CauseOf(job->Summary(), "kind") == "node_lost");
  CHECK(CauseOf(job->Summary(), "host") == "10.77.0.3");
  CHECK(Eventually(15, gone));
  const double seconds = std::chrono::duration<double>(Clock::now() - cut).count();
  CHECK(seconds < 25);  // lease 4 s, then its ending; the launcher's own waits at most 10 s for what it cannot reach
  CHECK(job->NothingLeft(10));
}

TEST_CASE("Two nodes over ssh: a link that is down for 5 s loses the node; healed, it cannot act for the job again") {
  const std::unique_ptr<Cluster> cluster = Cluster::Make();
  if (!cluster) return;
  const std::unique_ptr<LaunchedJob> job = cluster->Launch({"fake.yaml"});  // a lease of 30 s
  REQUIRE(job->WaitForStep(2));
  const pid_t agent = job->Agent("10.77.0.3");
  const Clock::time_point cut = Clock::now();
  cluster->namespaces->SetLink(1, false);
  CHECK(Eventually(8, [&] { return job->HasEvent("node_lost"); }));  // stated: 3 to 4 s
  std::this_thread::sleep_until(cut + std::chrono::seconds(5));
  cluster->namespaces->SetLink(1, true);
  CHECK(job->Wait(20) == 4);
  CHECK(CauseOf(job->Summary(), "host") == "10.77.0.3");
  // It is told as soon as packets come through again, long before the lease.
  CHECK(Eventually(15, [&] { return !fs::exists("/proc/" + std::to_string(agent)); }));
  CHECK(job->NothingLeft(5));
}

}  // namespace ds::test
