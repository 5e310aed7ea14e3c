// Algorithms of GPU products in a program without GPU code.
#include "kernels/matmul_choice.h"

#include "test/catch.h"

namespace ds::test {
namespace {

TEST_CASE("a program without GPU code has no library whose algorithms it could choose") {
  CHECK(MatMulLibraryVersion() == 0);
  CHECK_NOTHROW(SetMatMulChoices(130000, {}));
  CHECK_THROWS_AS(SetMatMulChoices(130000, {{MatMulKey{}, MatMulAlgorithm{}}}), std::invalid_argument);
  CHECK_THROWS_AS(TimeMatMulCandidates({}, {1, 1, 1}), std::runtime_error);
}

}  // namespace
}  // namespace ds::test
