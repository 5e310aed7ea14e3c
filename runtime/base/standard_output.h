// What a program prints is its result: it has not succeeded where that was lost.
#pragma once

namespace ds {

/// Writes out what stdio holds for standard output. Throws RuntimeError with the reason where some of it, or of what
/// went before, could not be written (a full disk, say). A reader that went away (`| head`) has what it wanted: no
/// error.
void FlushStandardOutput();

}  // namespace ds
