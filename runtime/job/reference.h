// The tables of docs/job-spec.md, made from the tables that the reader uses.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ds {

/// Name and Markdown of each table. In the document a table stands between `<!-- table NAME -->` and `<!-- end -->`.
std::vector<std::pair<std::string, std::string>> ReferenceTables();

/// `document` with the text between each table's markers replaced. Throws UsageError where a marker is absent.
std::string FillInTables(const std::string& document);

}  // namespace ds
