// Places where processes of one user meet: ports and private folders for Unix sockets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ds {

/// A TCP port that nobody listens on at this moment, from 20000..31999: outside Linux's ephemeral range, so that no
/// outgoing connection takes it before its user does. Throws RuntimeError when there is none.
uint16_t FreeTcpPort();

/// The address that this machine would reach HOST:PORT (IPv6: [HOST]:PORT) from; nothing is sent. Empty: there is no
/// way to it, or its name is unknown.
std::string AddressTowards(const std::string& host_port);

/// A folder for sockets that only this user may enter, removed at the end. Its name tells which process owns it, and a
/// lock whether that lives where the number says nothing (another process namespace), so that what a killed process
/// left behind is recognised and removed by the next.
class SocketFolder {
 public:
  SocketFolder();  ///< in $TMPDIR, else /tmp; removes leftovers of dead processes of this user first
  ~SocketFolder();
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

  /// Removes the folders of this user whose owners are dead.
  static void RemoveLeftovers() noexcept;

 private:
  std::filesystem::path path_;
  int lock_fd_ = -1;
};

}  // namespace ds
