#include "launcher/bootstrap/ssh_command.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

}  // namespace ds
