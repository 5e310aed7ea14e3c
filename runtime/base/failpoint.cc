#include "runtime/base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/error.h"

namespace ds {
namespace {

enum class Effect { kill, raise, hang, nan, inf, enospc, eio, unsupported, slow, cut };

bool IsNumber(Effect effect) { return effect == Effect::nan || effect == Effect::inf; }

/// Effects that come at every match unless one is named: what they stand for lasts.
bool Lasts(Effect effect) {
  return IsNumber(effect) || effect == Effect::unsupported || effect == Effect::slow || effect == Effect::cut;
}

struct Entry {
  std::string name;
  int64_t rank = -1, attempt = -1;  // -1: any
  int64_t hit = 0;                  // 0: every one
  Effect effect = Effect::kill;
  int64_t milliseconds = 0;  // of slow
  int64_t matches = 0;
};

thread_local int64_t scope_rank = -1;
thread_local int64_t scope_attempt = -1;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

UsageError BadEntry(const std::string& entry, const std::string& why) {
  return UsageError("DS_FAILPOINT: " + entry + ": " + why +
                    "; want NAME[,rank=R][,attempt=A][,hit=N],"
                    "kill|throw|hang|nan|inf|enospc|eio|unsupported|slow=MS|short");
}

Entry Parse(const std::string& text) {
  std::vector<std::string> parts = Split(text, ',');
  Entry entry;
  entry.name = parts.front();
  bool has_effect = false;
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      if (part == "kill")
        entry.effect = Effect::kill;
      else if (part == "throw")
        entry.effect = Effect::raise;
      else if (part == "hang")
        entry.effect = Effect::hang;
      else if (part == "nan")
        entry.effect = Effect::nan;
      else if (part == "inf")
        entry.effect = Effect::inf;
      else if (part == "enospc")
        entry.effect = Effect::enospc;
      else if (part == "eio")
        entry.effect = Effect::eio;
      else if (part == "unsupported")
        entry.effect = Effect::unsupported;
      else if (part == "short")
        entry.effect = Effect::cut;
      else
        throw BadEntry(text, "unknown effect " + part);
      has_effect = true;
      continue;
    }
    int64_t value = 0;
    const char* end = part.data() + part.size();
    auto [stop, error] = std::from_chars(part.data() + equals + 1, end, value);
    const std::string key = part.substr(0, equals);
    if (error != std::errc() || stop != end || value < (key == "hit" ? 1 : 0))
      throw BadEntry(text, "not a number in " + part);
    if (key == "rank")
      entry.rank = value;
    else if (key == "attempt")
      entry.attempt = value;
    else if (key == "hit")
      entry.hit = value;
    else if (key == "slow")
      entry.effect = Effect::slow, entry.milliseconds = value, has_effect = true;
    else
      throw BadEntry(text, "unknown key " + key);
  }
  if (entry.name.empty() || !has_effect) throw BadEntry(text, "a name and an effect are needed");
  if (entry.hit == 0 && !Lasts(entry.effect)) entry.hit = 1;
  return entry;
}

std::vector<Entry> ParseAll(const std::string& text) {
  std::vector<Entry> entries;
  for (const std::string& part : Split(text, ';'))
    if (!part.empty()) entries.push_back(Parse(part));
  return entries;
}

struct Registry {
  std::mutex mutex;
  std::vector<Entry> entries;
  std::atomic<bool> set{false};

  Registry() {
    const char* value = std::getenv("DS_FAILPOINT");
    if (value) entries = ParseAll(value);
    set = !entries.empty();
  }
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

/// Whether `pattern`, in which '*' stands for any run of characters, covers all of `text`.
bool Matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern.front() == '*') {
    for (size_t skip = 0; skip <= text.size(); ++skip)
      if (Matches(pattern.substr(1), text.substr(skip))) return true;
    return false;
  }
  return !text.empty() && text.front() == pattern.front() && Matches(pattern.substr(1), text.substr(1));
}

/// Whether `entry` fires at `name` on the calling thread; counts the match.
bool Fires(Entry& entry, const std::string& name) {
  if (entry.rank >= 0 && entry.rank != scope_rank) return false;
  if (entry.attempt >= 0 && entry.attempt != scope_attempt) return false;
  if (!Matches(entry.name, name)) return false;
  ++entry.matches;
  return entry.hit == 0 || entry.matches == entry.hit;
}

}  // namespace

bool FailpointsSet() { return TheRegistry().set.load(std::memory_order_relaxed); }

void SetFailpointScope(int rank, int64_t attempt) {
  scope_rank = rank;
  scope_attempt = attempt;
}

void SetFailpoints(const std::string& entries) {
  std::vector<Entry> parsed = ParseAll(entries);
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  registry.entries = std::move(parsed);
  registry.set = !registry.entries.empty();
}

void Failpoint(const std::string& name) {
  if (const int error = FailpointError(name)) throw SystemError("failpoint " + name, error);
}

int FailpointError(const std::string& name) {
  const FailpointOutcome outcome = FailpointAt(name);
  if (outcome.delay > 0) std::this_thread::sleep_for(std::chrono::milliseconds(outcome.delay));
  return outcome.error;
}

FailpointOutcome FailpointAt(const std::string& name) {
  FailpointOutcome outcome;
  if (!FailpointsSet()) return outcome;
  Registry& registry = TheRegistry();
  std::unique_lock lock(registry.mutex);
  for (Entry& entry : registry.entries) {
    if (IsNumber(entry.effect) || !Fires(entry, name)) continue;
    switch (entry.effect) {
      case Effect::kill:
        ::kill(::getpid(), SIGKILL);
        [[fallthrough]];
      case Effect::hang:
        lock.unlock();
        for (;;) ::pause();
      case Effect::raise:
        throw RuntimeError("failpoint " + name);
      case Effect::enospc:
        outcome.error = ENOSPC;
        return outcome;
      case Effect::eio:
        outcome.error = EIO;
        return outcome;
      case Effect::unsupported:
        outcome.error = EOPNOTSUPP;
        return outcome;
      case Effect::slow:
        outcome.delay += entry.milliseconds;
        break;
      case Effect::cut:
        outcome.cut = true;
        break;
      default:
        break;
    }
  }
  return outcome;
}

std::optional<double> FailpointNumber(const std::string& name) {
  if (!FailpointsSet()) return std::nullopt;
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  for (Entry& entry : registry.entries) {
    if (!IsNumber(entry.effect) || !Fires(entry, name)) continue;
    return entry.effect == Effect::nan ? std::numeric_limits<double>::quiet_NaN()
                                       : std::numeric_limits<double>::infinity();
  }
  return std::nullopt;
}

}  // namespace ds
