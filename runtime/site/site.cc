#include "runtime/site/site.h"

#include <pwd.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "runtime/base/error.h"
#include "runtime/job/hostfile.h"
#include "runtime/job/read_value.h"
#include "runtime/site/private_file.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

const Names<LogLevel> kLogLevels = {
    {"debug", LogLevel::debug}, {"info", LogLevel::info}, {"warning", LogLevel::warning}, {"error", LogLevel::error}};

Setting Path(const char* key, const char* meaning, std::string& out, const fs::path& folder) {
  return {key, "path", "-", meaning, [&out, folder](const Value& value) {
            if (AsString(value).empty()) throw ValueError(value, "an empty path; write a file's");
            out = fs::absolute(folder / value.text).lexically_normal().string();
          }};
}

Setting Port(uint16_t& out, int64_t low, const char* meaning) {
  return {"port", "whole number", "`" + std::to_string(kDaemonPort) + "`", meaning,
          [&out, low](const Value& value) { out = static_cast<uint16_t>(ReadInteger(value, low, 65535)); }};
}

void AddIdentity(std::vector<Setting>& settings, IdentityFiles& files, const fs::path& folder, const char* whose) {
  settings.push_back(Path("ca_certificate", "the certificate of the site's authority", files.ca_certificate, folder));
  const bool node = std::string(whose) == "node";
  settings.push_back(
      Path("certificate", node ? "the node's certificate" : "the launcher's certificate", files.certificate, folder));
  settings.push_back(Path("private_key", "its key; nobody else may read the file", files.private_key, folder));
}

template <class Out, class Settings>
Out Read(const fs::path& path, Settings settings) {
  const std::string text = ReadGuardedFile(path, Guard::unchanged);
  Out out;
  ReadSettings(text, path.string(), settings(out, fs::absolute(path).parent_path()));
  return out;
}

}  // namespace

std::string SiteNodeName(const std::string& host) {
  std::string name;
  for (const char c : CanonicalHost(host)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
    char code[8];
    std::snprintf(code, sizeof code, "_%02x", static_cast<unsigned char>(c));
    plain ? name += c : name += code;
  }
  return name + ".node.deepshard";
}

Identity LoadIdentity(const IdentityFiles& files) {
  Identity identity;
  identity.ca_certificate = ReadGuardedFile(files.ca_certificate, Guard::unchanged);
  identity.certificate = ReadGuardedFile(files.certificate, Guard::unchanged);
  identity.private_key = ReadGuardedFile(files.private_key, Guard::secret);
  const auto facts = [](const std::string& pem, const std::string& path) {
    try {
      return ReadCertificate(pem);
    } catch (const UsageError& error) {
      throw UsageError(path + ": " + error.what());
    }
  };
  identity.ca_facts = facts(identity.ca_certificate, files.ca_certificate);
  identity.facts = facts(identity.certificate, files.certificate);
  if (!IsIssuedBy(identity.certificate, identity.ca_certificate)) {
    throw UsageError(files.certificate + ": the authority of " + files.ca_certificate +
                     " did not sign it: files of two identities; take all of them from one");
  }
  if (!KeyFits(identity.certificate, identity.private_key)) {
    throw UsageError(files.private_key + ": not the key of " + files.certificate);
  }
  const int64_t now = std::time(nullptr);
  for (const auto& [path, dates] :
       {std::pair(files.certificate, identity.facts), std::pair(files.ca_certificate, identity.ca_facts)}) {
    if (now > dates.not_after) {
      throw Error(ExitCode::preflight, path + ": expired on " + DateText(dates.not_after) +
                                           "; renew it: ds-launch --make-identity DIR, with the identity's folder");
    }
    if (now < dates.not_before) {
      throw Error(ExitCode::preflight, path + ": not valid before " + DateText(dates.not_before) + ", and here it is " +
                                           DateText(now) + ": is this machine's clock right?");
    }
  }
  return identity;
}

std::vector<Setting> SiteSettings(SiteFile& out, const fs::path& folder) {
  std::vector<Setting> settings;
  AddIdentity(settings, out.files, folder, "launcher");
  settings.push_back(Port(out.port, 1, "where daemons listen; `launch.daemon_port` wins"));
  return settings;
}

std::vector<Setting> DaemonSettings(DaemonConfig& out, const fs::path& folder) {
  std::vector<Setting> settings;
  settings.push_back({"listen", "address", "`0.0.0.0`", "the address that it listens on: of one network, or of all",
                      [&out](const Value& value) {
                        if (AsString(value).empty()) throw ValueError(value, "empty; write an address, as 10.0.0.7");
                        out.listen = value.text;
                      }});
  settings.push_back(
      Port(out.port, 0, "the port that it listens on; 0: one that the system chooses, and the log tells"));
  AddIdentity(settings, out.files, folder, "node");
  settings.push_back({"jobs", "whole number, 1 or more", "`1`", "jobs at once; more are refused as busy",
                      [&out](const Value& value) { out.jobs = static_cast<int>(ReadInteger(value, 1, 1024)); }});
  settings.push_back({"idle_seconds", "number, 0 or more", "`0`", "it ends after so long without a job; 0: it stays",
                      [&out](const Value& value) { out.idle_seconds = ReadNumber(value, 0, 1e9); }});
  settings.push_back({"log_level", "debug, info, warning, error", "`info`", "the least level of its log lines",
                      [&out](const Value& value) { out.log_level = ReadName(value, kLogLevels); }});
  return settings;
}

SiteFile ReadSiteFile(const fs::path& path) { return Read<SiteFile>(path, SiteSettings); }

DaemonConfig ReadDaemonConfig(const fs::path& path) { return Read<DaemonConfig>(path, DaemonSettings); }

fs::path SiteFolder() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config && *config == '/') return fs::path(config) / "deepshard";
  const char* home = std::getenv("HOME");
  const passwd* entry = home && *home == '/' ? nullptr : ::getpwuid(::getuid());
  if (entry) home = entry->pw_dir;
  if (!home || *home != '/') {
    throw UsageError("no home folder is known, so there is no default place for a site identity: name its file");
  }
  return fs::path(home) / ".config" / "deepshard";
}

}  // namespace ds
