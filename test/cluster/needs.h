// Tests of real programs of other packages: skipped with a message where one is not installed, failed under CI=true.
#pragma once

#include <string>

namespace ds::test {

/// Whether `program` is in PATH. Where it is not, the test that asks fails if the environment has CI=true; otherwise it
/// is to return.
bool Installed(const std::string& program);

}  // namespace ds::test
