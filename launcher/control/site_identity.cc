#include "launcher/control/site_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <set>

#include "launcher/control/credentials.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/site/private_file.h"
#include "runtime/site/site.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr int kAuthorityDays = 3650, kCertificateDays = 730;
constexpr int64_t kRenewSeconds = 30 * 86400;

/// A folder of this user that nobody else may enter; made where it is missing.
void MakePrivateFolder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return;
  struct stat info {};
  if (errno != EEXIST || ::lstat(path.c_str(), &info) != 0) {
    throw UsageError("cannot make the folder " + path.string() + ": " + std::strerror(errno));
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) {
    throw UsageError(path.string() + ": exists, and is not a folder of yours: name another");
  }
  if (info.st_mode & 077) {
    throw UsageError(path.string() + ": others may enter it: chmod 700 " + path.string() + ", or name another folder");
  }
}

/// Whole or not at all; an older file is replaced.
void WriteFile(const fs::path& path, const std::string& text, mode_t mode) {
  const std::string temporary = path.string() + ".new";
  ::unlink(temporary.c_str());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  bool good = fd >= 0;
  for (size_t done = 0; good && done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    good = n >= 0;
    if (good) done += static_cast<size_t>(n);
  }
  good = good && ::fsync(fd) == 0;
  good = good && ::rename(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (good) return;
  ::unlink(temporary.c_str());
  throw SystemError("cannot write " + path.string(), error);
}

bool Exists(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

class Maker {
 public:
  explicit Maker(const fs::path& folder) : folder_(folder) {}

  std::vector<std::string> Make(const std::vector<HostSlots>& hosts) {
    MakePrivateFolder(folder_);
    OpenAuthority();
    Issue(folder_, "launcher", kSiteLauncherName);
    WriteOnce(folder_ / "site.yaml",
              "# The launcher's end of a site identity (docs/operations.md, \"Daemon\").\n"
              "ca_certificate: ca.crt\ncertificate: launcher.crt\nprivate_key: launcher.key\n"
              "port: " +
                  std::to_string(kDaemonPort) + "\n");
    MakePrivateFolder(folder_ / "nodes");
    for (const HostSlots& host : hosts) {
      const fs::path node = folder_ / "nodes" / FolderOf(host.host);
      MakePrivateFolder(node);
      if (!Exists(node / "ca.crt")) WriteFile(node / "ca.crt", authority_->certificate(), 0644);
      Issue(node, "node", SiteNodeName(host.host));
      WriteOnce(node / "daemon.yaml", "# ds-agent --daemon on " + host.host +
                                          " (docs/operations.md, \"Daemon\").\n"
                                          "listen: 0.0.0.0\nport: " +
                                          std::to_string(kDaemonPort) +
                                          "\n"
                                          "ca_certificate: ca.crt\ncertificate: node.crt\nprivate_key: node.key\n"
                                          "jobs: 1\nidle_seconds: 0\nlog_level: info\n");
    }
    if (made_.empty()) {
      made_.push_back("nothing to do: the identity in " + folder_.string() + " is complete, and no certificate of it " +
                      "ends within 30 days");
    }
    return made_;
  }

 private:
  void OpenAuthority() {
    const fs::path certificate = folder_ / "ca.crt", key = folder_ / "ca.key";
    if (!Exists(certificate) && !Exists(key)) {
      authority_ = std::make_unique<JobAuthority>("DeepShard site authority", kAuthorityDays);
      WriteFile(key, authority_->private_key(), 0600);
      WriteFile(certificate, authority_->certificate(), 0644);
      made_.push_back("made " + certificate.string() + " and ca.key: the site's authority; keep ca.key to yourself");
      return;
    }
    const std::string pem = ReadGuardedFile(certificate, Guard::unchanged),
                      secret = ReadGuardedFile(key, Guard::secret);
    if (!KeyFits(pem, secret)) throw UsageError(key.string() + ": not the key of " + certificate.string());
    const CertificateFacts facts = ReadCertificate(pem);
    if (facts.not_after < std::time(nullptr)) {
      throw UsageError(certificate.string() + ": the authority expired on " + DateText(facts.not_after) +
                       ": make an identity in another folder, and hand it to every node");
    }
    authority_ = std::make_unique<JobAuthority>(pem, secret);
  }

  /// NAME.crt and NAME.key, unless there is a pair that is still good for a while.
  void Issue(const fs::path& folder, const std::string& file, const std::string& name) {
    const fs::path certificate = folder / (file + ".crt"), key = folder / (file + ".key");
    std::optional<int64_t> ends;
    if (Exists(certificate) && Exists(key)) {
      const std::string pem = ReadGuardedFile(certificate, Guard::unchanged);
      if (!IsIssuedBy(pem, authority_->certificate())) {
        throw UsageError(certificate.string() + ": not of the authority in " + folder_.string() +
                         ": name another folder, or remove it to have it made anew");
      }
      ends = ReadCertificate(pem).not_after;
      if (*ends > std::time(nullptr) + kRenewSeconds) return;
    }
    const Credentials credentials = authority_->Issue(name, kCertificateDays);
    WriteFile(key, credentials.private_key, 0600);
    WriteFile(certificate, credentials.certificate, 0644);
    made_.push_back((ends ? "renewed " : "made ") + certificate.string() + " and " + file + ".key: " + name +
                    ", until " + DateText(ReadCertificate(credentials.certificate).not_after));
  }

  /// As the host's name in its certificate, which has no `/` and nothing else that a shell would mind.
  static std::string FolderOf(const std::string& host) {
    const std::string name = SiteNodeName(host), folder = name.substr(0, name.size() - std::strlen(".node.deepshard"));
    if (folder.find_first_not_of('.') == std::string::npos) throw UsageError("host " + host + " cannot name a folder");
    return folder;
  }

  static void WriteOnce(const fs::path& path, const std::string& text) {
    if (!Exists(path)) WriteFile(path, text, 0644);
  }

  fs::path folder_;
  std::unique_ptr<JobAuthority> authority_;
  std::vector<std::string> made_;
};

}  // namespace

std::vector<std::string> MakeSiteIdentity(const fs::path& folder, const std::vector<HostSlots>& hosts) {
  return Maker(fs::absolute(folder).lexically_normal()).Make(hosts);
}

}  // namespace ds
