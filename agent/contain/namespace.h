// A process namespace with a /proc of its own (pid_namespaces(7), user_namespaces(7)).
#pragma once

#include <string>

namespace ds {

/// Lets children of this process begin a process namespace: its next child is process 1 of it. Without root the process
/// moves into a user namespace first, in which it has its own user and group. Empty, or what the node does not allow.
/// Call while there is one thread.
std::string BeginNamespace();

/// In that child: mounts a /proc that shows the namespace, seen by the child and its own children only. Empty, or what
/// the node does not allow.
std::string EnterNamespace();

/// Tries both in a child that ends at once.
std::string TryNamespace();

}  // namespace ds
