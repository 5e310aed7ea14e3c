// What the standard streams are connected to.
#pragma once

namespace ds {

bool IsTerminal(int fd);

/// Columns and rows of the terminal at `fd`; 80 and 24 where it does not say.
int TerminalColumns(int fd);
int TerminalRows(int fd);

}  // namespace ds
