// A real sshd for a test: its own host key, user key, port and log in a folder that goes away, and the configuration
// with which ssh reaches it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "test/fault/launched_job.h"

namespace ds::test {

/// Whether OpenSSH's client, server and ssh-keygen are here; if not, the test says so and ends (with CI=true: fails).
bool HasOpenSsh();

/// Runs `argv` to its end; its exit code. `output`: of both streams.
int RunProgram(const std::vector<std::string>& argv, std::string* output = nullptr);

void WriteText(const std::string& path, const std::string& text);
std::string ReadText(const std::string& path);

struct SshdSetting {
  std::string options{};                                        ///< lines of sshd_config
  std::string net_namespace{};                                  ///< a file of /run/netns to enter; empty: this one
  std::string address = "0.0.0.0";                              ///< that it listens on
  std::vector<std::string> known = {"127.0.0.1", "127.0.0.2"};  ///< hosts whose key ssh knows
};

class Sshd {
 public:
  explicit Sshd(SshdSetting setting = {});
  ~Sshd();  ///< ends it and the sessions that are left
  Sshd(const Sshd&) = delete;
  Sshd& operator=(const Sshd&) = delete;

  /// Options of ds-launch that reach it.
  std::vector<std::string> Options() const;
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  /// The home folder of who logs in (not the user's own).
  std::string home() const { return path("home"); }
  int port() const { return port_; }
  /// The line of known_hosts for `host`.
  std::string KnownHost(const std::string& host) const;
  std::string Log() const { return ReadText(path("sshd.log")); }
  const std::string& user_key() const { return user_key_; }

  /// A line more of the client's configuration.
  void Configure(const std::string& line);
  /// Lets the user key of another server in, so that one configuration reaches both.
  void Admit(const Sshd& other);

 private:
  TemporaryFolder folder_;
  std::string user_key_;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace ds::test
