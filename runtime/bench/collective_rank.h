// The work of a process that RankGroup starts: commands over standard input, until it ends.
#pragma once

namespace ds {

/// The main of `ds-bench rank RANK SIZE DEVICE THREADS`, DEVICE being cpu or the number of a GPU. Commands, and what is
/// answered behind "done":
///   connect STREAM        makes the communicator of that name, over NCCL on GPUs, else over Gloo. BYTES: of device
///                         memory in use before, and after; 0 on CPUs
///   time OP BYTES TIMES   one call of OP after another, behind a barrier. SECONDS of one. OP: all_gather,
///                         reduce_scatter, all_reduce (the one, then the other, as training does it), send_receive
///                         (to the neighbour of the other parity and back; SECONDS of one way). BYTES: of the whole
///                         tensor, a multiple of 4 a rank
///   libraries             what the GPU's libraries take. NAME BYTES each, in the order in which they were loaded;
///   BYTES
///                         of the device in use before
///   end
/// What fails is answered "error" or, where a peer's failure is behind it, "aborted", with the message.
int CollectiveRankMain(int argc, char** argv);

}  // namespace ds
