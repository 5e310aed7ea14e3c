// Run directories are made only where nobody else could have put something in their stead. "Another user" is played by
// looking at this user's own files as somebody else.
#include "runtime/run/output_folder.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/run/run_directory.h"
#include "test/catch.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

class Place {
 public:
  Place() {
    char pattern[] = "/tmp/ds-output-XXXXXX";
    path_ = ::mkdtemp(pattern);
  }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  fs::path Folder(const std::string& name, mode_t mode) const {
    fs::create_directories(path_ / name);
    ::chmod((path_ / name).c_str(), mode);
    return path_ / name;
  }

 private:
  fs::path path_;
};

std::string Refusal(const fs::path& output, const std::string& name, uid_t user = ::geteuid()) {
  try {
    PrepareOutputFolder(output, name, user);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Whose files here are neither this user's nor root's.
struct Other {
  uid_t me = 4242;       ///< who looks
  bool possible = true;  ///< root's files are trusted by all: as root, another's are made by chown
  void Own(const fs::path& path) const {
    if (::geteuid() == 0) REQUIRE(::lchown(path.c_str(), 4343, 4343) == 0);
  }
};

}  // namespace

TEST_CASE("OUTPUT/NAME is made, found again, and never open to everybody") {
  Place place;
  ::umask(0);
  const fs::path made = PrepareOutputFolder(place / "a/b/../runs", "job");
  ::umask(022);
  CHECK(made == place / "a/runs/job");
  for (const fs::path& folder : {place / "a", place / "a/runs", made}) {
    CHECK((fs::status(folder).permissions() & fs::perms::others_write) == fs::perms::none);
  }
  CHECK(PrepareOutputFolder(place / "a/runs", "job") == made);
}

TEST_CASE("The user's own symbolic links are followed") {
  Place place;
  place.Folder("disk", 0755);
  fs::create_directory_symlink(place / "disk", place / "runs");
  CHECK(Refusal(place / "runs", "job") == "");
  place.Folder("elsewhere", 0755);
  fs::create_directory_symlink(place / "elsewhere", place / "disk/linked");
  CHECK(Refusal(place / "runs", "linked") == "");
}

TEST_CASE("OUTPUT/NAME that another user made a symbolic link is refused") {
  Place place;
  Other other;
  const fs::path output = place.Folder("runs", 01777);
  place.Folder("target", 0755);
  fs::create_directory_symlink(place / "target", output / "job");
  other.Own(output / "job");
  if (::geteuid() != 0) return;  // a sticky folder of somebody else's is refused first
  CHECK(Has(Refusal(output, "job", other.me), "a symbolic link of"));
  CHECK(fs::is_empty(place / "target"));
}

TEST_CASE("A symbolic link of another user on the way to OUTPUT is refused") {
  Place place;
  Other other;
  const fs::path shared = place.Folder("shared", 01777);
  place.Folder("target", 0755);
  fs::create_directory_symlink(place / "target", shared / "link");
  other.Own(shared / "link");
  CHECK(Has(Refusal(shared / "link/runs", "job", other.me), "a symbolic link of"));
  CHECK(fs::is_empty(place / "target"));
}

TEST_CASE("OUTPUT that everybody may write is refused, unless it is sticky and root's or the user's") {
  Place place;
  CHECK(Has(Refusal(place.Folder("open", 0777), "job"), "everybody may write it"));
  CHECK(Refusal(place.Folder("sticky", 01777), "job") == "");
  Other other;
  other.Own(place.Folder("theirs", 01777));
  CHECK(Has(Refusal(place / "theirs", "job", other.me), "its owner may replace"));
}

TEST_CASE("OUTPUT/NAME that another user made, or that everybody may write, is refused") {
  Place place;
  Other other;
  CHECK(Has(Refusal(place.Folder("runs/job", 0777).parent_path(), "job"), "everybody may write it"));
  place.Folder("team", 0775);
  other.Own(place.Folder("team/job", 0775));
  CHECK(Refusal(place / "team", "job", other.me) == "");  // whoever may write there is trusted by whoever set it up
  if (::geteuid() != 0) return;
  place.Folder("tmp", 01777);
  other.Own(place.Folder("tmp/job", 0775));
  CHECK(Has(Refusal(place / "tmp", "job", other.me), "who may replace runs in it"));
}

TEST_CASE("NAME/latest that is a folder or a file is refused before anything is made") {
  Place place;
  const fs::path name = place.Folder("runs/job", 0755);
  SECTION("a folder") { fs::create_directory(name / "latest"); }
  SECTION("a file") { std::ofstream(name / "latest") << "mine"; }
  CHECK_THROWS_AS(RunDirectory(place / "runs", "job"), UsageError);
  CHECK(Has(Refusal(place / "runs", "job"), "latest: exists and is no symbolic link"));
  CHECK(std::distance(fs::directory_iterator(name), fs::directory_iterator()) == 1);
}

TEST_CASE("OUTPUT or NAME that is no folder is refused") {
  Place place;
  std::ofstream(place / "file") << "";
  CHECK(Refusal(place / "file", "job") != "");
  place.Folder("runs", 0755);
  std::ofstream(place / "runs/job") << "";
  CHECK(Has(Refusal(place / "runs", "job"), "not a folder"));
}

TEST_CASE("Files of a run that became symbolic links are not written through") {
  Place place;
  RunDirectory directory(place / "runs", "job");
  std::ofstream(place / "victim") << "precious\n";
  const fs::path log = directory.path() / "logs/rank-0.log";
  fs::create_symlink(place / "victim", log);
  CHECK_THROWS_AS(directory.Log(0, "a line"), RuntimeError);
  fs::create_symlink(place / "victim", directory.path() / "summary.json");
  fs::create_symlink(place / "victim", directory.path() / ("summary.json.tmp." + std::to_string(::getpid())));
  directory.Write("summary.json", "{}\n");  // takes the link's place
  CHECK(!fs::is_symlink(directory.path() / "summary.json"));
  CHECK(ReadFile(place / "victim") == "precious\n");
  fs::remove(directory.path() / "metrics.jsonl");
  fs::create_symlink(place / "victim", directory.path() / "metrics.jsonl");
  directory.Metric("{}");  // to the file that was opened
  CHECK(ReadFile(place / "victim") == "precious\n");
}

TEST_CASE("A run directory that is moved away and replaced keeps its open files") {
  Place place;
  RunDirectory directory(place / "runs", "job");
  fs::rename(directory.path(), place / "moved");
  place.Folder("theirs", 0755);
  fs::create_directory_symlink(place / "theirs", directory.path());
  directory.Metric("{\"step\":1}");
  CHECK(!fs::exists(place / "theirs/metrics.jsonl"));
  CHECK(ReadFile(place / "moved/metrics.jsonl") == "{\"step\":1}\n");
}

}  // namespace ds
