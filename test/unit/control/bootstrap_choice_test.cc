// How agents are brought up where the user says `auto`.
#include <unistd.h>

#include <map>
#include <string>

#include "launcher/bootstrap/choose.h"
#include "launcher/bootstrap/this_machine.h"
#include "test/catch.h"

using ds::BootstrapChoice;
using ds::ChooseBootstrap;
using ds::HostSlots;

namespace {

BootstrapChoice Choose(const std::vector<std::string>& hosts,
                       const std::map<std::string, std::string>& environment = {}, const std::string& asked = "auto") {
  std::vector<HostSlots> list;
  for (const std::string& host : hosts) list.push_back({host, "", {0}});
  return ChooseBootstrap(asked, list, [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

std::string OwnName() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

TEST_CASE("auto: this machine by whatever name is local, others are ssh, an allocation is slurm") {
  CHECK(Choose({"localhost"}).kind == "local");
  CHECK(Choose({"127.0.0.1", "127.0.0.2", "::1"}).kind == "local");
  CHECK(Choose({OwnName()}).kind == "local");
  CHECK(Choose({OwnName()}).reason == "the only host is this machine");
  // 198.51.100.0/24 is for documentation: nobody's.
  const BootstrapChoice ssh = Choose({"127.0.0.1", "198.51.100.7"});
  CHECK(ssh.kind == "ssh");
  CHECK(ssh.reason == "198.51.100.7 is not this machine");
  const BootstrapChoice slurm = Choose({"198.51.100.7"}, {{"SLURM_JOB_ID", "42"}, {"SLURM_JOB_NODELIST", "n1"}});
  CHECK(slurm.kind == "slurm");
  CHECK(Choose({"198.51.100.7"}, {{"SLURM_JOB_ID", "42"}}).kind == "ssh");  // a variable that was left behind
  CHECK(slurm.Text() == "slurm (inside SLURM's allocation 42)");
  CHECK(Choose({"127.0.0.1", "127.0.0.2"}, {{"SLURM_JOB_ID", "42"}, {"SLURM_JOB_NODELIST", "n1"}}).kind == "local");
}

TEST_CASE("A bootstrap that was asked for is taken as it is") {
  CHECK(Choose({"127.0.0.1"}, {{"SLURM_JOB_ID", "42"}}, "ssh").kind == "ssh");
  CHECK(Choose({"198.51.100.7"}, {}, "local").kind == "local");
  CHECK(Choose({"198.51.100.7"}, {}, "mpi").reason == "as asked");
}

TEST_CASE("An unknown name is not this machine, nor an address of nobody's") {
  CHECK_FALSE(ds::IsThisMachine("no-such-host.invalid"));
  CHECK_FALSE(ds::IsThisMachine("198.51.100.7"));
  CHECK_FALSE(ds::IsThisMachine("2001:db8::7"));
  CHECK(ds::IsThisMachine("::1"));
}
