#include "launcher/bootstrap/ssh_command.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/process.h"

namespace ds {

std::string ShellWord(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) {
    // Out of the quotes: a quote ends them, and fish reads a backslash inside them.
    if (c == '\'' || c == '\\') {
      word += std::string("'\\") + c + "'";
    } else {
      word += c;
    }
  }
  return word + "'";
}

int ConnectSeconds(double join_seconds) { return static_cast<int>(std::clamp(std::ceil(join_seconds / 3), 1.0, 15.0)); }

std::vector<std::string> SshCommand(const BootstrapSettings& settings, const HostSlots& host,
                                    const std::string& argument) {
  std::vector<std::string> argv = {"ssh"};
  if (settings.ssh_config != "auto") argv.insert(argv.end(), {"-F", settings.ssh_config});
  // A link that is down for less than the lease must not end the job: ssh waits for at least twice as long.
  constexpr int kAliveSeconds = 15;
  const int alive_count = std::max(4, static_cast<int>(std::ceil(2 * settings.lease_seconds / kAliveSeconds)));
  const std::vector<std::pair<std::string, std::string>> options = {
      {"BatchMode", "yes"},
      {"ConnectTimeout", std::to_string(ConnectSeconds(settings.join_seconds))},
      {"ServerAliveInterval", std::to_string(kAliveSeconds)},
      {"ServerAliveCountMax", std::to_string(alive_count)},
      {"ControlMaster", "no"},
      {"ControlPersist", "no"},
      {"ClearAllForwardings", "yes"},
      {"ForwardAgent", "no"},
      {"ForwardX11", "no"},
      {"RequestTTY", "no"},
      {"RemoteCommand", "none"},
      {"PermitLocalCommand", "no"},
      {"LogLevel", "ERROR"},
  };
  for (const auto& [name, value] : options) argv.insert(argv.end(), {"-o", name + "=" + value});
  if (settings.ssh_port != 0) argv.insert(argv.end(), {"-p", std::to_string(settings.ssh_port)});
  if (!host.user.empty()) argv.insert(argv.end(), {"-l", host.user});
  argv.insert(argv.end(), {"--", host.host, "exec " + ShellWord(settings.AgentProgram()) + " " + argument});
  return argv;
}

std::string SshHostName(const BootstrapSettings& settings, const HostSlots& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.host.c_str(), nullptr, &hints, &found) == 0) {
    ::freeaddrinfo(found);
    return host.host;
  }
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return host.host;
  std::string text;
  try {
    SpawnOptions options;
    options.argv = {"ssh", "-G"};  // prints what the configuration says of the host; connects to nobody
    if (settings.ssh_config != "auto") options.argv.insert(options.argv.end(), {"-F", settings.ssh_config});
    options.argv.insert(options.argv.end(), {"--", host.host});
    options.environment = InheritedEnvironment();
    options.stdout_fd = pipe[1];
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    options.stderr_fd = null;
    const pid_t pid = Spawn(options);
    ::close(null);
    ::close(std::exchange(pipe[1], -1));
    char block[4096];
    for (ssize_t n; (n = ::read(pipe[0], block, sizeof block)) > 0;) text.append(block, static_cast<size_t>(n));
    ::waitpid(pid, nullptr, 0);
  } catch (const Error&) {  // no ssh: bringing up says so
  }
  for (const int fd : pipe) {
    if (fd >= 0) ::close(fd);
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("hostname ")) return line.substr(9);
  }
  return host.host;
}

}  // namespace ds
