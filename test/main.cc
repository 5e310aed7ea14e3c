// The tests' main, compiled once.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <cstdio>
#include <string>

namespace ds::test {

/// Why this machine cannot run the tests; empty where it can. Kinds of tests that need what not every machine has
/// define it.
[[gnu::weak]] std::string WhyNot();

}  // namespace ds::test

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE
  if (ds::test::WhyNot) {
    const std::string why = ds::test::WhyNot();
    if (!why.empty()) {
      std::printf("skipped: %s\n", why.c_str());
      return kSkipped;
    }
  }
  return Catch::Session().run(argc, argv);
}
