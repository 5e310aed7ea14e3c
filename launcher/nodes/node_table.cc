// ds-report's table.
#include <algorithm>
#include <cstdio>
#include <map>

#include "launcher/nodes/node_report.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

/// One row of the table: its name, a cell a group of nodes, and whether nodes differ in it.
struct Row {
  std::string name;
  std::vector<std::string> cells;
  bool differs = false;
  bool bad = false;  ///< a check that did not pass
};

/// Nodes that are alike in everything that does not vary from moment to moment.
struct Group {
  std::vector<const NodeReport*> nodes;
  std::string hosts;
};

std::string Milliseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.1f ms" : "%.0f ms", value);
  return text;
}

std::vector<Group> GroupsOf(const std::vector<NodeReport>& reports) {
  std::map<std::string, size_t> place;
  std::vector<Group> groups;
  for (const NodeReport& report : reports) {
    std::string key;
    for (const NodeFact& fact : FactsOf(report))
      if (!fact.varies) key += fact.value + '\0';
    for (const CheckResult& check : report.checks) key += CheckStatusName(check.status) + std::string(1, '\0');
    const auto [it, is_new] = place.emplace(key, groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].nodes.push_back(&report);
  }
  for (Group& group : groups) {
    std::vector<std::string> hosts;
    for (const NodeReport* report : group.nodes) hosts.push_back(report->host);
    group.hosts = GroupHosts(hosts);
  }
  return groups;
}

bool AllEqual(const std::vector<std::string>& cells) {
  return std::all_of(cells.begin(), cells.end(), [&](const std::string& cell) { return cell == cells[0]; });
}

/// What varies is told of a node alone: of several it would be one node's.
std::vector<Row> FactRows(const std::vector<Group>& groups) {
  std::vector<Row> rows;
  for (const NodeFact& fact : FactsOf(*groups[0].nodes[0])) {
    Row row{fact.name, {}};
    const size_t index = rows.size();
    for (const Group& group : groups) {
      const std::string value = FactsOf(*group.nodes[0])[index].value;
      row.cells.push_back(fact.varies && group.nodes.size() > 1 ? "" : value);
    }
    row.differs = !fact.varies && !AllEqual(row.cells);
    rows.push_back(row);
  }
  std::erase_if(rows, [](const Row& row) {
    return std::all_of(row.cells.begin(), row.cells.end(), [](const std::string& cell) { return cell.empty(); });
  });
  return rows;
}

std::vector<Row> CheckRows(const std::vector<Group>& groups) {
  std::vector<Row> rows;
  for (size_t i = 0; i < groups[0].nodes[0]->checks.size(); ++i) {
    Row row{groups[0].nodes[0]->checks[i].name, {}};
    std::vector<std::string> statuses;
    for (const Group& group : groups) {
      const CheckResult& first = group.nodes[0]->checks[i];
      double longest = 0;
      for (const NodeReport* node : group.nodes) longest = std::max(longest, node->checks[i].milliseconds);
      statuses.push_back(CheckStatusName(first.status));
      row.bad = row.bad || first.status == CheckStatus::failed || first.status == CheckStatus::warning;
      std::string cell = statuses.back();
      if (first.status != CheckStatus::skipped && longest > 0) cell += "  " + Milliseconds(longest);
      // Why it did not pass is told below the table.
      if (groups.size() == 1 && group.nodes.size() == 1 && first.status == CheckStatus::passed && !first.text.empty())
        cell += std::string(cell.size() < 18 ? 18 - cell.size() : 2, ' ') + first.text;
      row.cells.push_back(cell);
    }
    row.differs = !AllEqual(statuses);
    rows.push_back(row);
  }
  return rows;
}

std::string Padded(const std::string& text, size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 0, ' ');
}

class Table {
 public:
  Table(std::vector<Group> groups, bool color) : groups_(std::move(groups)), color_(color) {
    facts_ = FactRows(groups_);
    checks_ = CheckRows(groups_);
    for (const std::vector<Row>* rows : {&facts_, &checks_})
      for (const Row& row : *rows) name_width_ = std::max(name_width_, row.name.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      widths_.push_back(groups_[g].hosts.size());
      for (const std::vector<Row>* rows : {&facts_, &checks_})
        for (const Row& row : *rows) widths_[g] = std::max(widths_[g], row.cells[g].size());
    }
  }

  size_t Width() const {
    size_t width = 2 + name_width_;
    for (size_t cell : widths_) width += 2 + cell;
    return width;
  }

  /// A column a group.
  std::string Columns() const {
    std::vector<std::string> heads;
    for (const Group& group : groups_) heads.push_back(group.hosts);
    std::string text = Line({"", heads});
    for (const Row& row : facts_) text += Line(row);
    if (!checks_.empty()) text += "\n" + Line({"checks", {}});
    for (const Row& row : checks_) text += Line(row);
    return text;
  }

  /// What all share, then a row a group with what differs.
  std::string Rows() const {
    std::string text = "  all nodes\n";
    std::vector<const Row*> different;
    for (const std::vector<Row>* rows : {&facts_, &checks_}) {
      for (const Row& row : *rows) {
        if (row.differs) different.push_back(&row);
        if (!row.differs && !row.cells[0].empty())
          text += "  " + Padded(row.name, name_width_) + "  " + row.cells[0] + "\n";
      }
    }
    std::vector<std::vector<std::string>> lines(groups_.size() + 1);
    lines[0].push_back("nodes");
    for (size_t g = 0; g < groups_.size(); ++g) lines[g + 1].push_back(groups_[g].hosts);
    for (const Row* row : different) {
      lines[0].push_back("* " + row->name);
      for (size_t g = 0; g < groups_.size(); ++g) lines[g + 1].push_back(row->cells[g]);
    }
    text += "\n";
    for (size_t l = 0; l < lines.size(); ++l) {
      std::string line = " ";
      for (size_t c = 0; c < lines[l].size(); ++c) {
        size_t width = 0;
        for (const std::vector<std::string>& other : lines) width = std::max(width, other[c].size());
        line += " " + Padded(lines[l][c], width + 1);
      }
      text += Paint(Trimmed(line), l == 0 ? "1" : "") + "\n";
    }
    return text;
  }

 private:
  static std::string Trimmed(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }
  std::string Paint(const std::string& line, const char* code) const {
    return color_ && *code ? std::string("\x1b[") + code + "m" + line + "\x1b[0m" : line;
  }
  std::string Line(const Row& row) const {
    std::string line = (row.differs ? "* " : "  ") + Padded(row.name, name_width_);
    for (size_t g = 0; g < row.cells.size(); ++g) line += "  " + Padded(row.cells[g], widths_[g]);
    return Paint(Trimmed(line), row.bad                                 ? "31"
                                : row.differs                           ? "33"
                                : row.name.empty() || row.cells.empty() ? "1"
                                                                        : "") +
           "\n";
  }

  std::vector<Group> groups_;
  bool color_;
  std::vector<Row> facts_, checks_;
  size_t name_width_ = 0;
  std::vector<size_t> widths_;
};

}  // namespace

std::string ToTable(const std::vector<NodeReport>& reports, size_t columns, bool color) {
  if (reports.empty()) return "";
  const Table table(GroupsOf(reports), color);
  return table.Width() <= columns || GroupsOf(reports).size() == 1 ? table.Columns() : table.Rows();
}

}  // namespace ds
