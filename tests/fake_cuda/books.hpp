// What has not been given back when the process ends: lines in the file that FAKE_CUDA_LOG names.
#pragma once
#include <map>
#include <string>

namespace fake {

using Books = std::map<std::string, unsigned long long>;  // how many, by what they are

/// From now on the books are closed when the process ends.
void open_books();

// What each file keeps.
void count_memory(Books&);
void count_granted(Books&);
void count_opened(Books&);
void count_contexts(Books&);
void count_streams(Books&);
void count_events(Books&);
void count_graphs(Books&);
void count_modules(Books&);

}  // namespace fake
