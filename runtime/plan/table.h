// Text in columns. Private to runtime/plan.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace ds {

/// Rows of cells, printed in aligned columns two spaces apart. Numbers stand right, words left; the last cell runs
/// free.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : numeric_(head.size(), true) { rows_.push_back(std::move(head)); }

  void Add(std::vector<std::string> row) {
    for (size_t c = 0; c < row.size(); ++c)
      if (row[c].find_first_not_of("0123456789") != std::string::npos) numeric_[c] = false;
    rows_.push_back(std::move(row));
  }

  std::string str() const {
    std::vector<size_t> width(numeric_.size(), 0);
    for (const auto& row : rows_)
      for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
    std::string text;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t c = 0; c < row.size(); ++c) {
        const std::string pad(width[c] - row[c].size(), ' ');
        line += "  " + (numeric_[c] ? pad + row[c] : row[c] + pad);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> numeric_;  // of a column
};

/// "12.3 ms"
std::string FormatMillis(double seconds);

}  // namespace ds
