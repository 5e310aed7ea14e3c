// The command lines of ssh: one that starts an agent, one that asks an agent its version.
#pragma once

#include <string>
#include <vector>

#include "launcher/bootstrap/bootstrap.h"

namespace ds {

/// `text` as one word of the shell that sshd gives it to, byte for byte (sh, bash, zsh, csh, fish).
std::string ShellWord(const std::string& text);

/// How long ssh may take to connect and to agree on keys, of all the time that there is.
int ConnectSeconds(double join_seconds);

/// argv of an ssh that runs `AGENT ARGUMENT` on the host and nothing else. The user's own configuration holds but for
/// what a program cannot have: no questions, no terminal, no forwardings, no connection that stays behind (one that
/// the user already shares is used). The host comes after `--`.
std::vector<std::string> SshCommand(const BootstrapSettings& settings, const HostSlots& host,
                                    const std::string& argument);

/// The host as the resolver knows it: itself, or the HostName that ssh's configuration gives a name that it does not.
std::string SshHostName(const BootstrapSettings& settings, const HostSlots& host);

}  // namespace ds
