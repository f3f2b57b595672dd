// How the threads of a warp or a block copy one range, as device code.
#pragma once

/// Moves words at neighbouring addresses by neighbouring lanes, with eight loads of each lane in flight.
template <class Word>
static __device__ __forceinline__ void copy_words(char* to, const char* from, unsigned long long words, unsigned lane,
                                                  unsigned lanes) {
  constexpr unsigned in_flight = 8;
  const Word* source = reinterpret_cast<const Word*>(from);
  Word* target = reinterpret_cast<Word*>(to);
  unsigned long long i = lane;
  for (; i + (in_flight - 1) * lanes < words; i += in_flight * lanes) {
    Word held[in_flight];
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) held[k] = source[i + k * lanes];
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) target[i + k * lanes] = held[k];
  }
  for (; i < words; i += lanes) target[i] = source[i];
}

/// Moves a range whose ends have the same offset within a word: bytes up to the first whole word, words, bytes.
template <class Word>
static __device__ __forceinline__ void copy_range(char* to, const char* from, unsigned long long bytes, unsigned lane,
                                                  unsigned lanes) {
  const unsigned long long before =
                               (sizeof(Word) - reinterpret_cast<unsigned long long>(to) % sizeof(Word)) % sizeof(Word),
                           head = before < bytes ? before : bytes, words = (bytes - head) / sizeof(Word),
                           done = head + words * sizeof(Word);
  copy_words<char>(to, from, head, lane, lanes);
  copy_words<Word>(to + head, from + head, words, lane, lanes);
  copy_words<char>(to + done, from + done, bytes - done, lane, lanes);
}

/// Moves a range whose ends have different offsets within a word of 4 bytes: each stored word comes from two words of the
/// source.
static __device__ __forceinline__ void copy_shifted(char* to, const char* from, unsigned long long bytes, unsigned lane,
                                                    unsigned lanes) {
  constexpr unsigned word = sizeof(unsigned), in_flight = 4, bits = 8;
  unsigned long long head = (word - reinterpret_cast<unsigned long long>(to) % word) % word;
  const unsigned skew = (reinterpret_cast<unsigned long long>(from) + head) % word;
  if (head < skew) head += word;  // no word that is read begins before the range
  if (skew == 0 || bytes < head + word) {
    copy_words<char>(to, from, bytes, lane, lanes);
    return;
  }
  // The last word that is read ends within the range.
  const unsigned long long words = (bytes - head - word + skew) / word, done = head + words * word;
  const unsigned* source = reinterpret_cast<const unsigned*>(from + head - skew);
  unsigned* target = reinterpret_cast<unsigned*>(to + head);
  const unsigned low = bits * skew, high = bits * (word - skew);
  copy_words<char>(to, from, head, lane, lanes);
  unsigned long long i = lane;
  for (; i + (in_flight - 1) * lanes < words; i += in_flight * lanes) {
    unsigned held[in_flight];
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) held[k] = source[i + k * lanes] >> low | source[i + k * lanes + 1] << high;
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) target[i + k * lanes] = held[k];
  }
  for (; i < words; i += lanes) target[i] = source[i] >> low | source[i + 1] << high;
  copy_words<char>(to + done, from + done, bytes - done, lane, lanes);
}
