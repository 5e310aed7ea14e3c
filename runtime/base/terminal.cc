#include "runtime/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace ds {
namespace {

winsize Size(int fd) {
  winsize size{};
  ::ioctl(fd, TIOCGWINSZ, &size);
  return size;
}

}  // namespace

bool IsTerminal(int fd) { return ::isatty(fd) == 1; }

int TerminalColumns(int fd) {
  int columns = Size(fd).ws_col;
  return columns > 0 ? columns : 80;
}

int TerminalRows(int fd) {
  int rows = Size(fd).ws_row;
  return rows > 0 ? rows : 24;
}

}  // namespace ds
