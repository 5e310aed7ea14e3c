// The communicators' tests (test/unit/comm), with ranks that are processes of one mpirun and communicators over MPI:
// every process runs every test, and learns what became of all ranks.
#define CATCH_CONFIG_RUNNER
#include <cstdio>

#include "runtime/comm/mpi/mpi_world.h"
#include "test/catch.h"
#include "test/unit/comm/world.h"

namespace {

/// The keys of one run apart from those of others.
class Part final : public ds::Store {
 public:
  Part(ds::Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}
  void Set(const std::string& key, const std::string& value) override { store_.Set(prefix_ + key, value); }
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_.Get(prefix_ + key, timeout);
  }

 private:
  ds::Store& store_;
  const std::string prefix_;
};

}  // namespace

int main(int argc, char** argv) {
  using ds::test::Outcome;
  ds::MpiWorld world(ds::OpenMpi());
  int failures = 0;
  {
    ds::MpiStore store(world);
    int runs = 0;
    ds::test::other_processes = [&](int size, const ds::test::Body& body, std::chrono::milliseconds timeout) {
      Part part(store, "run " + std::to_string(runs++) + "/");
      if (world.rank() < size) {
        const Outcome own = ds::test::RunBody(world.rank(), body, [&] {
          return ds::MpiFactory({.rank = world.rank(), .size = size, .timeout = timeout}, world, part);
        });
        part.Set("outcome of " + std::to_string(world.rank()),
                 std::string(own.aborted ? "a" : "-") + own.error + '\0' + own.value);
      }
      std::vector<Outcome> outcomes(size);
      for (int r = 0; r < size; ++r) {
        const std::string text = part.Get("outcome of " + std::to_string(r), std::chrono::seconds(60));
        const size_t end = text.find('\0');
        outcomes[r] = {.value = text.substr(end + 1), .error = text.substr(1, end - 1), .aborted = text[0] == 'a'};
      }
      return outcomes;
    };
    failures = Catch::Session().run(argc, argv);
    // Who still waits for this rank has its last words.
    store.Set("end of " + std::to_string(world.rank()), "");
    for (int r = 0; r < world.size(); ++r) store.Get("end of " + std::to_string(r), std::chrono::seconds(60));
  }
  if (world.rank() == 0) std::printf("%d ranks over %s\n", world.size(), world.version().c_str());
  world.Finalize();
  return failures == 0 ? 0 : 1;
}
