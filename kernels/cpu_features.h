// Whether this CPU has the instructions that the kernels were compiled for.
#pragma once

namespace ds {

/// Names the first instruction set ("AVX2", ...) that the CPU kernels were compiled for and this CPU lacks; null when
/// there is none. Safe to call on any CPU of the architecture, before any other kernel.
const char* MissingCpuFeature();

/// Whether this CPU has AVX2, with FMA, F16C and BMI2 beside it.
bool HasAvx2();

/// Whether this CPU has the AVX-512 that some kernels have code for beside: F, BW, DQ and VL.
bool HasAvx512();

}  // namespace ds
