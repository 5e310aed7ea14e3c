// Walks over a DeepSpeed configuration and gives every key to its row of the table.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/job/deepspeed.h"

namespace ds {

/// Reads one configuration, but for `optimizer` and `scheduler` (runtime/job/optimizers.h). Problems are added, not
/// thrown; what a user should know is added to the draft's notes.
class DeepSpeedReader {
 public:
  DeepSpeedReader(DeepSpeedDraft& draft, Problems& problems) : draft_(draft), problems_(problems) {}

  void Read(const Value& section);

 private:
  /// `prefix`: of the table's path; `shown`: of the path as it was written. Both end with a dot.
  void ReadSection(const Value& section, const std::string& prefix, const std::string& shown);
  void ReadField(const std::string& prefix, const std::string& shown, const std::string& name, const Value& value);
  void ReadZeroSwitch(const std::string& shown, const Value& value);
  void ReadKey(const DeepSpeedKey& key, const std::string& shown, const Value& value);
  void ReadInside(const std::string& path, const std::string& shown, const Value& value);
  void ReadAuto(const DeepSpeedKey& key, const std::string& shown);
  void Accept(const DeepSpeedKey& key, const std::string& shown, const Value& value);
  void NoteIdle();
  void Note(const std::string& text) { draft_.spec.notes.push_back(OneLine(text)); }

  DeepSpeedDraft& draft_;
  Problems& problems_;
  std::set<std::string> seen_;
  std::vector<std::pair<std::string, std::vector<std::string>>> idle_;  // what is off, and keys that hang on it
};

}  // namespace ds
