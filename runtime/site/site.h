// A user's site identity: the certificates by which the user's launchers and resident agents (ds-agent --daemon) know
// each other, and the files that they are written in. `ds-launch --make-identity DIR` makes them:
//
//     DIR/site.yaml, ca.crt, launcher.crt, launcher.key    the launcher's end
//     DIR/ca.key                                           makes more of them; needed by nobody else
//     DIR/nodes/HOST/daemon.yaml, ca.crt, node.crt, node.key   for one node: copied there
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/site/certificate.h"
#include "runtime/site/settings_file.h"

namespace ds {

constexpr uint16_t kDaemonPort = 7438;

/// Names that a site's certificates carry.
inline constexpr char kSiteLauncherName[] = "launcher.deepshard";
inline constexpr char kSiteNodeNames[] = "*.node.deepshard";  ///< those of all nodes, as FrontDoor takes them
/// Of the node that hostfiles call `host`: one spelling, and nothing in it that a certificate could misread.
std::string SiteNodeName(const std::string& host);

/// Paths, absolute.
struct IdentityFiles {
  std::string ca_certificate, certificate, private_key;
};

/// PEM, and what the certificate says.
struct Identity {
  std::string ca_certificate, certificate, private_key;
  CertificateFacts facts, ca_facts;
};

/// Reads the three (ReadGuardedFile) and checks that they belong together. Throws UsageError naming the file;
/// Error(ExitCode::preflight) where the certificate is not valid now.
Identity LoadIdentity(const IdentityFiles& files);

/// site.yaml
struct SiteFile {
  IdentityFiles files;
  uint16_t port = kDaemonPort;
};

/// daemon.yaml
struct DaemonConfig {
  std::string listen = "0.0.0.0";
  uint16_t port = kDaemonPort;
  IdentityFiles files;
  int jobs = 1;
  double idle_seconds = 0;
  LogLevel log_level = LogLevel::info;
};

/// The keys of each, read into `out`; paths are relative to `folder`. SettingsTable makes the documentation of them.
std::vector<Setting> SiteSettings(SiteFile& out, const std::filesystem::path& folder);
std::vector<Setting> DaemonSettings(DaemonConfig& out, const std::filesystem::path& folder);

/// Throw UsageError naming file, line and key.
SiteFile ReadSiteFile(const std::filesystem::path& path);
DaemonConfig ReadDaemonConfig(const std::filesystem::path& path);

/// $XDG_CONFIG_HOME/deepshard, else ~/.config/deepshard. Throws UsageError where there is no home.
std::filesystem::path SiteFolder();

}  // namespace ds
