// What a test in the same process calls: settings come from the environment, which a process reads once.
#pragma once

// The symbol's calls return `error` after `after` calls that succeeded, `times` times. Null: no call fails.
extern "C" void fake_cuda_fail(const char* symbol, unsigned long long after, unsigned long long times, int error);

// The number of resources that the process holds: memory, contexts, streams, events, graphs, modules.
extern "C" unsigned long long fake_cuda_held();

// The number of uses of what has ended, since the process began: a released context that is current, streams and events
// of it, memory of another process that was closed. A real driver may crash at each.
extern "C" unsigned long long fake_cuda_misuses();

// The name of one of the symbols that were called since the latest fake_cuda_fail, in alphabetical order; null after the
// last one.
extern "C" const char* fake_cuda_called(unsigned long long number);

// The number of calls of a symbol since the latest fake_cuda_fail.
extern "C" unsigned long long fake_cuda_calls(const char* symbol);
