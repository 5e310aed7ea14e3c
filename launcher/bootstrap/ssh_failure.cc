#include "launcher/bootstrap/ssh_failure.h"

#include <algorithm>
#include <vector>

#include "proto/version.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr int kSshItself = 255;  // the exit code of ssh's own failures
constexpr size_t kLastLines = 3, kLongestLine = 200;

/// Words that ssh says, what they mean, and what to do. The first that is found holds.
struct Saying {
  std::vector<std::string> words;  ///< any of them
  SshFailure::Next next;
  /// With HOST for the host and its user, NAME without the user, KNOWN as known_hosts calls it, WAY for ssh's flags,
  /// PORT for that one.
  std::string meaning;
};

const std::vector<Saying>& Sayings() {
  using Next = SshFailure::Next;
  static const std::vector<Saying> sayings = {
      {{"REMOTE HOST IDENTIFICATION HAS CHANGED", "Offending "},
       Next::fail,
       "the host key of HOST is another than the one known here. If the host was installed anew, remove the old key "
       "with "
       "`ssh-keygen -R KNOWN` and log in once with `sshWAY HOST`; if not, somebody may be in between"},
      {{"Host key verification failed", "host key is known for"},
       Next::fail,
       "the host key of HOST is not known here, and nobody can be asked. Log in once with `sshWAY HOST`, or add its "
       "key to ~/.ssh/known_hosts (`ssh-keyscanPORT NAME`, checked)"},
      {{"Permission denied", "Too many authentication failures", "No supported authentication methods"},
       Next::fail,
       "HOST lets this user in with no key that ssh has. Passwords cannot be asked for: put a public key there with "
       "`ssh-copy-idWAY HOST`, load one with a passphrase into ssh-agent, or write user@HOST in the hostfile"},
      {{"Temporary failure in name resolution"},
       Next::retry_a_few,
       "the name HOST could not be looked up. Check the resolver, or write an address in the hostfile or as HostName "
       "in "
       "~/.ssh/config"},
      {{"Could not resolve hostname"},
       Next::fail,
       "there is no host of the name HOST. Correct the hostfile, or give the name an address in /etc/hosts, DNS, or as "
       "HostName in ~/.ssh/config"},
      {{"Connection refused"},
       Next::fail,
       "no sshd listens on HOST at that port. Start it, or give its port with --ssh-port or in ~/.ssh/config"},
      {{"during banner exchange", "kex_exchange_identification", "ssh_exchange_identification", "Connection reset by",
        "Connection closed by", "Not allowed at this time", "Exceeded MaxStartups", "Broken pipe"},
       Next::retry,
       "sshd on HOST turned logins away. Raise MaxStartups in its sshd_config, or the time with launch.join_seconds"},
      {{"Connection timed out", "Operation timed out"},
       Next::fail,
       "HOST did not answer. Is it up, and does a firewall between let ssh through?"},
      {{" timed out"},  // "Connection to HOST port 22 timed out": connected, and then nothing
       Next::retry,
       "sshd on HOST accepted a connection and then said nothing. Is the host overloaded?"},
      {{"No route to host", "Network is unreachable"},
       Next::fail,
       "there is no way to HOST through the network. Is it up, is the address right, and is the interface up?"},
      {{"Bad configuration option", "user config file", "bad configuration options"},
       Next::fail,
       "ssh cannot use its configuration. Correct the file that it names (--ssh-config, ~/.ssh/config)"},
  };
  return sayings;
}

void Replace(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

/// " -F FILE -p PORT", as far as they were given.
std::string Flags(const SshWay& way) {
  std::string config;  // so that a shell reads it back
  for (const char c : way.config) config += c == '\'' ? std::string("'\\''") : std::string(1, c);
  if (config.find_first_of(" '\"\\$`*?&;<>()|~#") != std::string::npos) config = "'" + config + "'";
  return (config.empty() ? "" : " -F " + config) + (way.port == 0 ? "" : " -p " + std::to_string(way.port));
}

/// A meaning about this host, reached this way. `name`: with its user.
std::string Told(std::string text, const std::string& name, const std::string& host, const SshWay& way) {
  const std::string port = way.port == 0 ? "" : std::to_string(way.port);
  Replace(text, "KNOWN", port.empty() ? host : "'[" + host + "]:" + port + "'");
  Replace(text, "PORT", port.empty() ? "" : " -p " + port);
  Replace(text, "NAME", host);
  Replace(text, "HOST", name);
  Replace(text, "WAY", Flags(way));
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string LastWords(const std::string& text) {
  const std::vector<std::string> lines = Lines(text);
  std::vector<std::string> last;
  for (size_t i = lines.size() > kLastLines ? lines.size() - kLastLines : 0; i < lines.size(); ++i) {
    last.push_back(Shown(lines[i], kLongestLine));
  }
  return Join(last, " / ");
}

SshFailure ReadSshFailure(const HostSlots& host, const std::string& agent, const ProcessEnd& end,
                          const std::string& errors, const SshWay& way) {
  const std::string name = host.user.empty() ? host.host : host.user + "@" + host.host;
  const std::string words = LastWords(errors);
  const std::string said = words.empty() ? "" : " (ssh said: " + words + ")";
  if (end.signal != 0) return {SshFailure::Next::fail, "ssh to " + name + " was " + EndText(end) + said};
  if (end.code != kSshItself) {
    const bool absent = end.code == 127 || end.code == 126 || words.find("ot found") != std::string::npos ||
                        words.find("No such file") != std::string::npos;
    if (absent) {
      return {SshFailure::Next::fail, "there is no ds-agent that runs at " + Shown(agent, 300) + " on " + name +
                                          ": install this build there, or name its place with --agent PATH or "
                                          "launch.agent" +
                                          said};
    }
    return {SshFailure::Next::ask_version,
            "the ds-agent on " + name + " (" + Shown(agent, 300) + ") ended at once: " + EndText(end) + said};
  }
  // Its own words are the last ones: before them come a banner and what start-up files wrote.
  for (const Saying& saying : Sayings()) {
    for (const std::string& word : saying.words) {
      const std::string& where = word.starts_with("REMOTE") || word.starts_with("Offending") ? errors : words;
      if (where.find(word) != std::string::npos)
        return {saying.next, Told(saying.meaning, name, host.host, way) + said};
    }
  }
  return {SshFailure::Next::fail, "ssh cannot log in to " + name + (said.empty() ? ": exit code 255" : said) +
                                      "; try `ssh" + Flags(way) + " -o BatchMode=yes " + name + " true` by hand"};
}

std::string AgentVersion(const std::string& output) {
  for (const std::string& line : Lines(output)) {
    if (const size_t at = line.find("ds-agent "); at != std::string::npos) return Shown(line.substr(at + 9), 100);
  }
  return "";
}

std::string VersionsDiffer(const std::string& host, const std::string& agent, const std::string& theirs) {
  return "versions differ: the ds-agent on " + host + " (" + Shown(agent, 300) + ") is build " + theirs +
         ", ds-launch is build " + BuildVersion() + " (protocol " + std::to_string(kProtocolVersion) +
         "): install the same build on every node, or name another ds-agent with --agent";
}

}  // namespace ds
