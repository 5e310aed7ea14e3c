#include "runtime/job/filter.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

/// What one flag selects, beside the hostfile's hosts: for each host the slots that it names.
using Selection = std::vector<std::set<int>>;

class FilterReader {
 public:
  FilterReader(std::string flag, const std::string& text, const std::vector<HostSlots>& hosts)
      : flag_(std::move(flag)), text_(text), hosts_(hosts), selection_(hosts.size()) {
    for (size_t i = 0; i < hosts_.size(); ++i) by_name_.emplace(CanonicalHost(hosts_[i].host), i);
  }

  Selection Read() {
    size_t start = 0;
    for (;;) {
      const size_t end = std::min(text_.find('@', start), text_.size());
      ReadPart(start, end);
      if (end == text_.size()) return std::move(selection_);
      start = end + 1;
    }
  }

 private:
  [[noreturn]] void Fail(size_t at, const std::string& what, const std::string& reason) const {
    throw UsageError(flag_ + ":" + std::to_string(at + 1) + ": " + (what.empty() ? "" : Shown(what) + ": ") + reason);
  }

  /// NAME or NAME:SLOT,... in text_[start, end).
  void ReadPart(size_t start, size_t end) {
    if (start == end) Fail(start, "", "an empty part; write NAME[:SLOT[,SLOT...]][@NAME...]");
    size_t colon = std::min(text_.find(':', start), end);
    std::string name = text_.substr(start, colon - start);
    if (text_[start] == '[') {
      const size_t close = text_.find(']', start);
      if (close >= end) Fail(start, text_.substr(start, end - start), "the bracket is not closed; write [ADDRESS]");
      name = text_.substr(start + 1, close - start - 1);
      colon = close + 1;
      if (colon < end && text_[colon] != ':')
        Fail(colon, text_.substr(colon, end - colon), "':' or '@' is wanted after ']'");
    }
    const size_t host = FindHost(start, end, name);
    if (colon >= end) {
      if (selection_[host].size() < hosts_[host].slots.size())
        selection_[host].insert(hosts_[host].slots.begin(), hosts_[host].slots.end());
    } else {
      ReadSlots(host, colon + 1, end);
    }
  }

  size_t FindHost(size_t start, size_t end, const std::string& name) const {
    if (name.empty())
      Fail(start, text_.substr(start, end - start), "a host is wanted; an IPv6 address goes in brackets");
    if (const auto found = by_name_.find(CanonicalHost(name)); found != by_name_.end()) return found->second;
    std::vector<std::string> known;
    for (const HostSlots& host : hosts_) known.push_back(host.host);
    Fail(start, name, "not a host of the hostfile; the nearest is " + Bracketed(Nearest(name, known)));
  }

  void ReadSlots(size_t host, size_t start, size_t end) {
    for (;;) {
      const size_t comma = std::min(text_.find(',', start), end);
      const std::string digits = text_.substr(start, comma - start);
      if (digits.empty()) Fail(start, "", "an empty part; a slot number is wanted");
      if (digits.find_first_not_of("0123456789") != std::string::npos) {
        Fail(start, digits, "not a slot number; write NAME:SLOT[,SLOT...] (an IPv6 address goes in brackets)");
      }
      int slot = 0;
      const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), slot);
      const std::vector<int>& slots = hosts_[host].slots;
      if (result.ec != std::errc() || !std::binary_search(slots.begin(), slots.end(), slot)) {
        Fail(start, digits,
             "not a slot of " + hosts_[host].host + ", which has slots 0 to " + std::to_string(slots.back()));
      }
      selection_[host].insert(slot);
      if (comma == end) return;
      start = comma + 1;
    }
  }

  std::string flag_;
  const std::string& text_;
  const std::vector<HostSlots>& hosts_;
  std::map<std::string, size_t> by_name_;  // canonical names
  Selection selection_;
};

/// Keeps the slots of each host for which `keep` holds, and the hosts that have any left.
template <typename Keep>
std::vector<HostSlots> KeepSlots(std::vector<HostSlots> hosts, Keep keep) {
  for (size_t i = 0; i < hosts.size(); ++i) std::erase_if(hosts[i].slots, [&](int slot) { return !keep(i, slot); });
  std::erase_if(hosts, [](const HostSlots& host) { return host.slots.empty(); });
  return hosts;
}

void CheckCombination(const HostFilter& filter) {
  if (filter.include && filter.exclude)
    throw UsageError("--include and --exclude exclude each other; give one of them");
  if ((filter.include || filter.exclude) && (filter.num_nodes || filter.num_gpus)) {
    throw UsageError(std::string(filter.include ? "--include" : "--exclude") + " and " +
                     (filter.num_nodes ? "--num-nodes" : "--num-gpus") + " exclude each other; give one of them");
  }
}

std::vector<HostSlots> FirstHosts(std::vector<HostSlots> hosts, int count) {
  if (count < 1) throw UsageError("--num-nodes: " + std::to_string(count) + ": not positive; write 1 or more");
  if (static_cast<size_t>(count) > hosts.size()) {
    throw UsageError("--num-nodes: " + std::to_string(count) + ": more nodes than there are, " +
                     std::to_string(hosts.size()) + "; write at most that, or name more in a hostfile (--hostfile)");
  }
  hosts.resize(static_cast<size_t>(count));
  return hosts;
}

std::vector<HostSlots> FirstSlots(std::vector<HostSlots> hosts, int count) {
  if (count < 1) throw UsageError("--num-gpus: " + std::to_string(count) + ": not positive; write 1 or more");
  for (HostSlots& host : hosts) {
    if (static_cast<size_t>(count) > host.slots.size()) {
      throw UsageError("--num-gpus: " + std::to_string(count) + ": more than " + host.host + " has; write at most " +
                       std::to_string(host.slots.size()) + ", the slots of that host");
    }
    host.slots.resize(static_cast<size_t>(count));
  }
  return hosts;
}

}  // namespace

std::vector<HostSlots> ApplyFilters(std::vector<HostSlots> hosts, const HostFilter& filter) {
  CheckCombination(filter);
  if (filter.include) {
    const Selection chosen = FilterReader("--include", *filter.include, hosts).Read();
    return KeepSlots(std::move(hosts), [&](size_t host, int slot) { return chosen[host].count(slot) > 0; });
  }
  if (filter.exclude) {
    const Selection dropped = FilterReader("--exclude", *filter.exclude, hosts).Read();
    hosts = KeepSlots(std::move(hosts), [&](size_t host, int slot) { return dropped[host].count(slot) == 0; });
    if (hosts.empty()) throw UsageError("--exclude: " + Shown(*filter.exclude) + ": nothing is left; exclude less");
    return hosts;
  }
  if (filter.num_nodes) hosts = FirstHosts(std::move(hosts), *filter.num_nodes);
  if (filter.num_gpus) hosts = FirstSlots(std::move(hosts), *filter.num_gpus);
  return hosts;
}

}  // namespace ds
