// One spelling of Catch2 for both of its packages: version 3 (Ubuntu 24.04) and version 2 (Debian 12).
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
