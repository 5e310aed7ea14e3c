// A ds-agent --daemon that a fault test started, with a site identity of its own.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "test/fault/launched_job.h"

namespace ds::test {

struct DaemonSetting {
  std::string host = "127.0.0.1";  ///< as hostfiles name the node
  std::string more{};              ///< lines for daemon.yaml
  std::string program = "ds-agent";
  std::string identity_of{};  ///< the node whose certificate it takes; empty: host's
  bool start = true;
  std::string net_namespace{};  ///< a file of /run/netns that it enters; empty: this process's
};

/// A site identity in a folder, for 127.0.0.1, 127.0.0.2 and 10.98.0.2.
class TestSite {
 public:
  TestSite();
  std::string file(const std::string& path) const { return folder_.path() + "/id/" + path; }
  std::string SiteFile() const { return file("site.yaml"); }
  /// Makes the certificate of a node, or launcher, anew with `days` to live.
  void Reissue(const std::string& pair, const std::string& name, int days) const;

 private:
  TemporaryFolder folder_;
};

class TestDaemon {
 public:
  explicit TestDaemon(const TestSite& site, DaemonSetting setting = {});
  ~TestDaemon();  ///< kills it

  pid_t pid() const { return pid_; }
  int port() const { return port_; }
  void Start(int port = 0);
  void Signal(int signal) const;
  int Wait(double seconds = 10);  ///< its exit code
  std::string log() const;

  /// What its jobs left: processes but the daemon itself, files below its TMPDIR.
  std::vector<std::string> Leftovers() const;
  bool NothingLeft(double seconds = 4) const {
    return Eventually(seconds, [&] { return Leftovers().empty(); });
  }

  /// A job `fake` of two workers on its host.
  LaunchSetting Job(std::vector<std::string> more = {}) const;

 private:
  const TestSite& site_;
  DaemonSetting setting_;
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace ds::test
