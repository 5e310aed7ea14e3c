// Which of its addresses a rank binds for data, where ranks are on several machines and no launcher knows.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/comm/store.h"

namespace ds {

/// Collective. `machines`: the machine of each rank (any text; equal: the same). One machine: 127.0.0.1. Else `wanted`
/// (launch.interface) picks an interface of this machine; with `auto` the machines reach rank 0's addresses one after
/// another, and the way that works is taken. Throws Error(preflight) that names what was tried.
std::string DataAddress(int rank, const std::vector<std::string>& machines, const std::string& wanted, Store& store,
                        std::chrono::milliseconds timeout);

}  // namespace ds
