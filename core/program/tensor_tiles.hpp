// How products of matrices on tensor cores divide their work. Device code and the code that launches it must agree. Device
// code is compiled by NVRTC, so nothing but the language is used here.
#pragma once

/// Rows and columns of C that a block computes, and its threads.
constexpr unsigned tensor_tile = 128, tensor_threads = 256;
