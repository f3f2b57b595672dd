// Files that programs read and write: real ones, in the directory that a place names.
#pragma once
#include <string>
#include <vector>

#include "host/words.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why an actor cannot read or write the files of its loop here; "" if it can.
[[nodiscard]] std::string why_no_file_copy(const Program&, const Actor&, const Move&);

/// Brings a file into the state that the program's copies find, and notes its share of cached pages. Throws
/// Error{unsupported} if a cold file stays in the page cache, or its file system has no reads past it.
void prepare_file(CudaSession&, const Buffer&, const Region&);

/// Prepares the files of an actor's loop: those that its thread reads and writes, its queue of requests, and those that
/// cuFile moves. Throws Error{failed} if the kernel or cuFile refuses.
void prepare_files(const CudaSession&, ActorState&);

/// Moves bytes between a file and GPU memory by cuFile. Throws Error{failed} with the reason of cuFile.
void move_by_cufile(const CudaSession&, const ActorState&, const Move&);
/// Whether a move is between a file and GPU memory, past the page cache: cuFile carries it out.
[[nodiscard]] bool is_by_cufile(const Program&, const Move&);

/// Whether a move is between GPU memory and a file in the page cache, which is mapped and registered.
[[nodiscard]] bool is_by_mapping(const Program&, const Move&);
/// Copies a file from the page cache to GPU memory: each of the move's windows (blocks of its shape) is mapped,
/// registered, copied and released by one of its threads. Throws Error{unsupported} if the driver refuses a window.
void move_by_mapping(const CudaSession&, const ActorState&, const Move&);

}  // namespace linkscope
