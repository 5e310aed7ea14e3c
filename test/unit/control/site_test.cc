// The site identity: files that are made, read, and refused where somebody else could have had a hand in them; the
// documentation of their keys; what a daemon's trouble is called.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/bootstrap/daemon_trouble.h"
#include "launcher/control/credentials.h"
#include "launcher/control/site_identity.h"
#include "proto/channel.h"
#include "proto/daemon.grpc.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/socket.h"
#include "runtime/site/private_file.h"
#include "runtime/site/site.h"
#include "test/catch.h"

namespace ds {
namespace {

namespace fs = std::filesystem;
namespace pb = ::deepshard::v1;

class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/ds-site-XXXXXX";
    path_ = ::mkdtemp(pattern);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    std::ofstream(*this / name) << text;
    ::chmod((*this / name).c_str(), mode);
    return *this / name;
  }

 private:
  std::string path_;
};

const std::vector<HostSlots> kHosts = {{"w0", "", {0}}, {"fe80::1", "", {0}}};

template <class Body>
std::string Refused(Body body, ExitCode code = ExitCode::usage) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "nothing was refused";
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  ::stat(path.c_str(), &info);
  return info.st_mode & 07777;
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("A site identity is made once, added to and renewed; its keys are the user's alone") {
  Folder folder;
  const std::string site = folder / "id";
  ::umask(0);
  MakeSiteIdentity(site, {kHosts[0]});
  ::umask(022);
  CHECK(ModeOf(site) == 0700);
  for (const char* key : {"/ca.key", "/launcher.key", "/nodes/w0/node.key"}) CHECK(ModeOf(site + key) == 0600);
  const Identity launcher = LoadIdentity(ReadSiteFile(site + "/site.yaml").files);
  CHECK(launcher.facts.names == std::vector<std::string>{kSiteLauncherName});
  CHECK(ReadDaemonConfig(site + "/nodes/w0/daemon.yaml").port == ReadSiteFile(site + "/site.yaml").port);

  const std::vector<std::string> added = MakeSiteIdentity(site, kHosts);
  REQUIRE(added.size() == 1);
  CHECK(Has(added[0], "nodes/fe80_3a_3a1/node.crt"));
  const Identity again = LoadIdentity(ReadSiteFile(site + "/site.yaml").files);
  CHECK(again.private_key == launcher.private_key);
  CHECK(again.ca_certificate == launcher.ca_certificate);
  CHECK(Has(MakeSiteIdentity(site, kHosts).at(0), "nothing to do"));

  JobAuthority authority(ReadFile(site + "/ca.crt"), ReadFile(site + "/ca.key"));
  const Credentials soon = authority.Issue(kSiteLauncherName, 20);
  std::ofstream(site + "/launcher.crt") << soon.certificate;
  std::ofstream(site + "/launcher.key") << soon.private_key;
  CHECK(Has(MakeSiteIdentity(site, kHosts).at(0), "renewed"));
  CHECK(LoadIdentity(ReadSiteFile(site + "/site.yaml").files).private_key != soon.private_key);

  ::chmod(site.c_str(), 0755);
  CHECK(Has(Refused([&] { MakeSiteIdentity(site, kHosts); }), "chmod 700"));
}

TEST_CASE("Files of an identity that others could have changed, or read, are refused") {
  Folder folder;
  MakeSiteIdentity(folder / "id", {kHosts[0]});
  const std::string node = folder / "id/nodes/w0";
  const auto load = [&] { LoadIdentity(ReadDaemonConfig(node + "/daemon.yaml").files); };
  load();
  SECTION("a key that others may read") {
    ::chmod((node + "/node.key").c_str(), 0640);
    const std::string why = Refused(load);
    CHECK(Has(why, "node.key"));
    CHECK(Has(why, "0640"));
  }
  SECTION("a configuration that others may write") {
    ::chmod((node + "/daemon.yaml").c_str(), 0666);
    CHECK(Has(Refused(load), "daemon.yaml: its mode is 0666"));
  }
  SECTION("a certificate that the group may write") {
    ::chmod((node + "/node.crt").c_str(), 0664);
    CHECK(Has(Refused(load), "node.crt"));
  }
  SECTION("a folder in which others may replace it") {
    ::chmod(node.c_str(), 0777);
    CHECK(Has(Refused(load), "others may replace"));
    ::chmod(node.c_str(), 0700);
  }
  SECTION("another user's file") {
    if (::geteuid() != 0) return;  // only root can give a file away; then root's own files are the other case
    REQUIRE(::chown((node + "/node.key").c_str(), 65534, 65534) == 0);
    const std::string why = Refused(load);
    CHECK(Has(why, "node.key: it belongs to"));
  }
  SECTION("no file") {
    fs::remove(node + "/node.key");
    CHECK(Has(Refused(load), "node.key"));
    REQUIRE(::mkfifo((node + "/node.key").c_str(), 0600) == 0);  // opened without waiting
    CHECK(Has(Refused(load), "not a regular file"));
  }
  SECTION("files of two identities") {
    MakeSiteIdentity(folder / "other", {kHosts[0]});
    fs::copy_file(folder / "other/nodes/w0/node.key", node + "/node.key", fs::copy_options::overwrite_existing);
    CHECK(Has(Refused(load), "not the key of"));
    fs::copy_file(folder / "other/nodes/w0/node.crt", node + "/node.crt", fs::copy_options::overwrite_existing);
    CHECK(Has(Refused(load), "did not sign it"));
  }
  SECTION("no certificate") {
    std::ofstream(node + "/node.crt") << "hello";
    CHECK(Has(Refused(load), "node.crt: not a certificate"));
  }
  SECTION("an expired one: exit code 3, with its date") {
    JobAuthority authority(ReadFile(folder / "id/ca.crt"), ReadFile(folder / "id/ca.key"));
    const Credentials expired = authority.Issue(SiteNodeName("w0"), -1);
    std::ofstream(node + "/node.crt") << expired.certificate;
    std::ofstream(node + "/node.key") << expired.private_key;
    CHECK(Has(Refused(load, ExitCode::preflight), "expired on 20"));
  }
}

TEST_CASE("A daemon's configuration: every wrong thing is told with its line, unknown keys with the nearest") {
  Folder folder;
  const auto read = [&](const std::string& text) {
    const std::string path = folder.Write("daemon.yaml", text);
    return Refused([&] { ReadDaemonConfig(path); });
  };
  const std::string identity = "ca_certificate: a\ncertificate: b\nprivate_key: c\n";
  const std::string text =
      read(identity + "prot: 1\njobs: 0\nidle_seconds: soon\nlog_level: loud\nport: 70000\nlisten: ''\n");
  CHECK(Has(text, "daemon.yaml:4:1: prot: unknown key; the nearest is port"));
  CHECK(Has(text, "daemon.yaml:5:7: jobs: 0: too small"));
  CHECK(Has(text, "daemon.yaml:6:15: idle_seconds: soon"));
  CHECK(Has(text, "daemon.yaml:7:12: log_level: loud: not one of the choices; write one of debug, info"));
  CHECK(Has(text, "daemon.yaml:8:7: port: 70000: too large"));
  CHECK(Has(text, "daemon.yaml:9:9: listen"));
  CHECK(Has(read("port: 1\n"), "private_key: absent"));
  CHECK(Has(read(""), "ca_certificate: absent"));
  CHECK(Has(read("- port\n"), "write keys and values here"));
  CHECK(Has(read(identity + "port: 1\nport: 2\n"), "daemon.yaml:5"));
  CHECK(Has(read("port: [\n"), "daemon.yaml:"));
  const std::string path =
      folder.Write("daemon.yaml", identity + "_note: mine\nport: 2e3\njobs: 3\nidle_seconds: 0.5\n");
  const DaemonConfig config = ReadDaemonConfig(path);
  CHECK(config.port == 2000);
  CHECK(config.jobs == 3);
  CHECK(config.idle_seconds == 0.5);
  CHECK(config.files.private_key == folder / "c");
}

TEST_CASE("The documentation lists every key of a daemon and of a site, as the code has them") {
  const std::string path = std::string(DS_SOURCE_DIR) + "/docs/operations.md";
  const std::string text = ReadFile(path);
  DaemonConfig daemon;
  SiteFile site;
  for (const std::string& table :
       {SettingsTable(DaemonSettings(daemon, "/")), SettingsTable(SiteSettings(site, "/"))}) {
    INFO(table);
    CHECK(Has(text, table));
  }
}

TEST_CASE("Names of hosts in certificates are of one spelling, and no two are the same") {
  CHECK(SiteNodeName("W0.Example") == "w0.example.node.deepshard");
  CHECK(SiteNodeName("FE80:0::1") == SiteNodeName("fe80::1"));
  CHECK(SiteNodeName("a,DNS:b") != SiteNodeName("a"));
  CHECK(SiteNodeName("a,DNS:b").find(',') == std::string::npos);
  CHECK(SiteNodeName("a_2c") != SiteNodeName("a,"));
}

TEST_CASE("The folder of an agent's socket is its user's alone") {
  ::umask(0);
  SocketFolder folder, another;
  ::umask(022);
  CHECK(ModeOf(folder.path().string()) == 0700);
  CHECK(folder.path() != another.path());
}

TEST_CASE("A daemon that cannot be reached is told by what is there instead", "[refused-tls]") {
  Folder folder;
  MakeSiteIdentity(folder / "id", {{"127.0.0.1", "", {0}}});
  const Identity own = LoadIdentity(ReadSiteFile(folder / "id/site.yaml").files);
  JobAuthority authority(ReadFile(folder / "id/ca.crt"), ReadFile(folder / "id/ca.key"));
  struct Nothing final : pb::Daemon::Service {
  } service;
  const auto serve = [&](const Credentials* credentials) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0",
                             credentials
                                 ? MutualTls({own.ca_certificate, credentials->certificate, credentials->private_key})
                                 : grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    const std::string text = DaemonTrouble("127.0.0.1", static_cast<uint16_t>(port), own, "gRPC's words");
    server->Shutdown(Deadline(0.1));
    return text;
  };
  const Credentials expired = authority.Issue(SiteNodeName("127.0.0.1"), -1),
                    good = authority.Issue(SiteNodeName("127.0.0.1")), other = authority.Issue(SiteNodeName("w7")),
                    stranger = JobAuthority().Issue(SiteNodeName("127.0.0.1"));
  CHECK(Has(serve(&expired), "expired on 20"));
  CHECK(Has(serve(&other), "w7.node.deepshard, not 127.0.0.1.node.deepshard"));
  CHECK(Has(serve(&stranger), "another site identity"));
  CHECK(Has(serve(&good), "gRPC's words"));
  CHECK(Has(serve(nullptr), "no DeepShard daemon"));
  CHECK(Has(DaemonTrouble("no-such-host.invalid", 1, own, ""), "cannot be resolved"));
}

}  // namespace ds
