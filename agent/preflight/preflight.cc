#include "agent/preflight/preflight.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/base/clock.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Clock = std::chrono::steady_clock;

/// What the threads write to: it outlives one that never ends.
struct Board {
  struct Place {
    pb::NodeFacts found;
    pb::NodeFacts::Check check;
    bool done = false;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Place> places;
};

double Milliseconds(Clock::duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

void Look(const NodeCheck& check, const pb::Bootstrap& bootstrap, const std::shared_ptr<Board>& board, size_t place) {
  const Clock::time_point begin = Clock::now();
  pb::NodeFacts found;
  pb::NodeFacts::Check result;
  result.set_passed(true);
  try {
    check.look(bootstrap, found, result);
  } catch (const std::exception& error) {
    result.set_passed(false);
    result.set_text(error.what());
  }
  result.set_name(check.name);
  result.set_milliseconds(Milliseconds(Clock::now() - begin));
  std::lock_guard lock(board->mutex);
  board->places[place] = {std::move(found), std::move(result), true};
  board->changed.notify_all();
}

}  // namespace

void RunNodeChecks(const std::vector<NodeCheck>& checks, const pb::Bootstrap& bootstrap, double seconds,
                   pb::NodeFacts& facts) {
  const auto& skipped = bootstrap.skip_checks();
  std::vector<NodeCheck> made;
  for (const NodeCheck& check : checks)
    if (check.always || std::find(skipped.begin(), skipped.end(), check.name) == skipped.end()) made.push_back(check);
  auto board = std::make_shared<Board>();
  board->places.resize(made.size());
  const Clock::time_point begin = Clock::now();
  const auto until = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (size_t i = 0; i < made.size(); ++i)
    std::thread([check = made[i], bootstrap, board, i] { Look(check, bootstrap, board, i); }).detach();
  std::unique_lock lock(board->mutex);
  for (size_t i = 0; i < made.size(); ++i) {
    Board::Place& place = board->places[i];
    board->changed.wait_until(lock, until, [&] { return place.done; });
    if (!place.done) {
      pb::NodeFacts::Check* late = facts.add_checks();
      late->set_name(made[i].name);
      late->set_text("no answer within " + DurationText(seconds) + ": the device or file system behind it hangs");
      late->set_milliseconds(Milliseconds(Clock::now() - begin));
      continue;
    }
    facts.MergeFrom(place.found);
    *facts.add_checks() = place.check;
  }
}

void RunNodeChecks(const pb::Bootstrap& bootstrap, pb::NodeFacts& facts) {
  static const std::vector<NodeCheck> checks = {{"disk", LookAtDisks},
                                                {"shared-output", LookAtSharedOutput},
                                                {"open-files", LookAtOpenFiles, true},
                                                {"locked-memory", LookAtLockedMemory, true},
                                                {"processes", LookAtProcesses},
                                                {"shm", LookAtShm},
                                                {"slots", LookAtSlots, true},
                                                {"containment", LookAtContainment, true},
                                                {"gpu-state", LookAtGpuState},
                                                {"worker", LookAtWorker}};
  RunNodeChecks(checks, bootstrap, kNodeCheckSeconds, facts);
}

}  // namespace ds
