// What an ssh that did not get an agent going means: whether to try again, and what to tell the user.
#pragma once

#include <string>

#include "runtime/base/process.h"
#include "runtime/job/hostfile.h"

namespace ds {

struct SshFailure {
  enum class Next {
    fail,         ///< trying again would end the same way
    retry,        ///< sshd is busy: again, later, until the time is over
    retry_a_few,  ///< perhaps for a moment only: a few times
    ask_version,  ///< a ds-agent answered, and does not know what it was asked: another build?
  };
  Next next = Next::fail;
  std::string message;  ///< what happened on which host, ssh's own words, and what to do
};

/// What else ssh was told, so that advice can be followed as it stands.
struct SshWay {
  std::string config;  ///< of -F; empty: ssh's own
  int port = 0;        ///< of -p; 0: as configured
};

/// `end`: of ssh; `errors`: what it and the far side wrote to standard error; `agent`: the program that it was to
/// start.
SshFailure ReadSshFailure(const HostSlots& host, const std::string& agent, const ProcessEnd& end,
                          const std::string& errors, const SshWay& way = {});

/// The last lines of `text` that say something, as one line of at most some 300 bytes.
std::string LastWords(const std::string& text);

/// "ds-agent 0.1.0 (protocol 1)" among `output` of `ds-agent --version`, without "ds-agent "; empty: not there.
std::string AgentVersion(const std::string& output);

/// That versions differ, both named.
std::string VersionsDiffer(const std::string& host, const std::string& agent, const std::string& theirs);

}  // namespace ds
