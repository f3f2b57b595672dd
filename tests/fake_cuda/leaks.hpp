// Resources that a process still holds at its end: one line per kind in the file that FAKE_CUDA_LOG names.
#pragma once
#include <map>
#include <string>

namespace fake {

using LeakCounts = std::map<std::string, unsigned long long>;  // number by kind of resource

/// Registers the report for the end of the process.
void report_leaks_at_exit();

// Counts of the resources that each file keeps.
void count_memory(LeakCounts&);
void count_granted(LeakCounts&);
void count_opened(LeakCounts&);
void count_contexts(LeakCounts&);
void count_streams(LeakCounts&);
void count_events(LeakCounts&);
void count_graphs(LeakCounts&);
void count_modules(LeakCounts&);
void count_green_contexts(LeakCounts&);

}  // namespace fake
