// What measuring tells: a line a measurement, what was achieved beside the limit.
#pragma once

#include <cstdio>
#include <string>

namespace ds {

enum class RateUnit { flops, bytes, seconds };

/// "412 GFLOP/s", "3.84 TB/s", "12.4 us": three digits, powers of 1000.
std::string RateText(double value, RateUnit unit);

struct BenchLine {
  std::string what, shape;
  double achieved = 0;  ///< 0: not measured, and `note` says why
  double limit = 0;     ///< 0: not known
  RateUnit unit = RateUnit::bytes;
  std::string note;  ///< behind the line
};

/// One line of the table: "what  shape  achieved  limit  percent  note".
std::string LineText(const BenchLine& line);

/// Writes lines as they are measured, under a title each section; what is at work meanwhile goes to a terminal alone.
class BenchTable {
 public:
  /// `out`: the table. Progress is shown on standard error where that is a terminal.
  explicit BenchTable(std::FILE* out);
  ~BenchTable();
  BenchTable(const BenchTable&) = delete;
  BenchTable& operator=(const BenchTable&) = delete;

  /// A title line, and the names of the columns.
  void Section(const std::string& title);
  /// A line of text.
  void Say(const std::string& text);
  void Add(const BenchLine& line);
  /// Shows what is measured now, until something else is shown.
  void Progress(const std::string& what);

 private:
  void Clear();

  std::FILE* const out_;
  const bool live_;
  bool shown_ = false, first_ = true;
};

}  // namespace ds
