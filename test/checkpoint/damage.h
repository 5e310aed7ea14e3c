// Every way in which a checkpoint can be damaged, as a table: for each kind of file and each class of bytes, what is
// done, which file must be named and why.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ds::checkpoint_test {

struct Damage {
  std::string name;
  /// `root`: a RUN/checkpoints with step-10, step-20 and latest, of WriteRun's; step-20 or latest is damaged.
  std::function<void(const std::filesystem::path& root)> apply;
  std::string file;    ///< below root: what must be named
  std::string reason;  ///< a part of the message
};

/// Writes RUN/checkpoints with step-10 and step-20 of two ranks, three states of two parameters each.
void WriteRun(const std::filesystem::path& run);

/// Damages of step-20's files, given those files as they were.
std::vector<Damage> DamagesOfShards(const std::filesystem::path& root);
std::vector<Damage> DamagesOfManifests(const std::filesystem::path& root);
/// Of step-20 as a whole.
std::vector<Damage> DamagesOfFolders();
/// Of `latest`: what stays behind of a newest checkpoint that is gone.
std::vector<Damage> DamagesOfLatest();

/// The text of a manifest with its checksum made right again.
std::string Sealed(std::string text);

}  // namespace ds::checkpoint_test
