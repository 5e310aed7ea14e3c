#include "test/unit/comm/world.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <thread>

namespace ds::test {
namespace {

std::vector<Outcome> RunThreads(int size, const Body& body, const std::function<CommunicatorFactory(int)>& make) {
  std::vector<Outcome> outcomes(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { outcomes[rank] = RunBody(rank, body, [&] { return make(rank); }); });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// Strings over a socket: length, bytes. False: the other end is gone.
bool Write(int fd, const void* data, size_t size) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    size -= n;
  }
  return true;
}
bool Read(int fd, void* data, size_t size) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const ssize_t n = recv(fd, at, size, 0);
    if (n <= 0) return false;
    at += n;
    size -= n;
  }
  return true;
}
bool Put(int fd, const std::string& text) {
  const uint64_t size = text.size();
  return Write(fd, &size, sizeof size) && Write(fd, text.data(), size);
}
bool Take(int fd, std::string& text) {
  uint64_t size = 0;
  if (!Read(fd, &size, sizeof size)) return false;
  text.resize(size);
  return Read(fd, text.data(), size);
}

/// A process' end of the store that its parent keeps.
class SocketStore : public Store {
 public:
  explicit SocketStore(int fd) : fd_(fd) {}
  void Set(const std::string& key, const std::string& value) override {
    if (!Put(fd_, "set") || !Put(fd_, key) || !Put(fd_, value)) throw RuntimeError("the store is gone");
  }
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::string status, value;
    if (!Put(fd_, "get") || !Put(fd_, key) || !Put(fd_, std::to_string(timeout.count())) || !Take(fd_, status) ||
        !Take(fd_, value))
      throw RuntimeError("the store is gone");
    if (status != "value") throw RuntimeError(value);
    return value;
  }

 private:
  int fd_;
};

/// The parent's end: serves the store until the child reports its outcome or is gone.
void Serve(int fd, Store& store, Outcome& outcome) {
  std::string what, key, value;
  while (Take(fd, what)) {
    if (what == "outcome") {
      std::string aborted;
      Take(fd, outcome.value) && Take(fd, outcome.error) && Take(fd, aborted);
      outcome.aborted = aborted == "yes";
      return;
    }
    if (!Take(fd, key) || !Take(fd, value)) return;
    if (what == "set") {
      store.Set(key, value);
      continue;
    }
    try {
      value = store.Get(key, std::chrono::milliseconds(std::stoll(value)));
      Put(fd, "value");
    } catch (const std::exception& error) {
      value = error.what();
      Put(fd, "error");
    }
    Put(fd, value);
  }
}

std::vector<Outcome> RunProcesses(int size, const Body& body, std::chrono::milliseconds timeout) {
  std::vector<int> ends(size);
  std::vector<pid_t> children(size);
  for (int rank = 0; rank < size; ++rank) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("socketpair");
    children[rank] = fork();
    if (children[rank] < 0) throw std::runtime_error("fork");
    if (children[rank] == 0) {
      close(pair[0]);
      for (int other = 0; other < rank; ++other) close(ends[other]);
      SocketStore store(pair[1]);
      const Outcome outcome =
          RunBody(rank, body, [&] { return GlooFactory({.rank = rank, .size = size, .timeout = timeout}, store); });
      Put(pair[1], "outcome") && Put(pair[1], outcome.value) && Put(pair[1], outcome.error) &&
          Put(pair[1], outcome.aborted ? "yes" : "no");
      _exit(0);
    }
    close(pair[1]);
    ends[rank] = pair[0];
  }
  MemoryStore store;
  std::vector<Outcome> outcomes(size);
  std::vector<std::thread> servers;
  for (int rank = 0; rank < size; ++rank) servers.emplace_back([&, rank] { Serve(ends[rank], store, outcomes[rank]); });
  for (int rank = 0; rank < size; ++rank) {
    servers[rank].join();
    close(ends[rank]);
    int status = 0;
    waitpid(children[rank], &status, 0);
    if (WIFSIGNALED(status)) outcomes[rank].signal = WTERMSIG(status);
  }
  return outcomes;
}

}  // namespace

std::function<std::vector<Outcome>(int size, const Body&, std::chrono::milliseconds)> other_processes;

Outcome RunBody(int rank, const Body& body, const std::function<CommunicatorFactory()>& make) {
  Outcome outcome;
  try {
    outcome.value = body(rank, make());
  } catch (const CommunicatorAborted& error) {
    outcome.error = error.what();
    outcome.aborted = true;
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

const char* NameOf(Backend backend) {
  switch (backend) {
    case Backend::threads:
      return "threads";
    case Backend::gloo_threads:
      return "gloo among threads";
    case Backend::gloo_processes:
      return "gloo among processes";
  }
  return "?";
}

std::vector<Outcome> RunRanks(Backend backend, int size, const Body& body, std::chrono::milliseconds timeout) {
  if (backend == Backend::gloo_processes && other_processes) return other_processes(size, body, timeout);
  if (backend == Backend::gloo_processes) return RunProcesses(size, body, timeout);
  if (backend == Backend::threads) {
    ThreadWorld world(size, timeout);
    return RunThreads(size, body, [&](int rank) { return world.Factory(rank); });
  }
  MemoryStore store;
  return RunThreads(size, body,
                    [&](int rank) { return GlooFactory({.rank = rank, .size = size, .timeout = timeout}, store); });
}

}  // namespace ds::test
