#include "transfer/tuning.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "host/own_memory.hpp"
#include "transfer/blocks.hpp"
#include "transfer/device_code.hpp"
#include "transfer/methods.hpp"

namespace linkscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* first_line = "linkscope transfer tuning, format 1";
constexpr const char *fingerprint_word = "fingerprint: ", *made_word = "made: ", *last_line = "end";
// Raise it when a method changes so that its best knobs change. The kernel's hash is beside it.
constexpr const char* methods_version = "7";
constexpr std::array tuned_methods{MethodId::ring_to_gpu,  MethodId::ring_to_host,  MethodId::ring_to_fresh,
                                   MethodId::relay_to_gpu, MethodId::relay_to_host, MethodId::between_gpus,
                                   MethodId::within_gpu,   MethodId::between_peers};
constexpr std::array directions{Towards::gpu, Towards::host};
constexpr u64 most_bytes = u64{1} << 20;  // of a file, which has a few KiB

const char* name_of(MethodId id) { return copy_methods()[static_cast<std::size_t>(id)].name; }
const char* name_of(Towards towards) { return towards == Towards::gpu ? "to_gpu" : "from_gpu"; }

std::string cpu_model() {
  std::ifstream info{"/proc/cpuinfo"};
  for (std::string line; std::getline(info, line);)
    for (const char* key : {"model name", "cpu\t", "CPU part"})  // x86, POWER, Arm
      if (line.starts_with(key) && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown CPU";
}

u64 hash_of(const std::string& text) {  // FNV-1a
  u64 hash = 14695981039346656037ull;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
  return hash;
}

std::string hexadecimal(u64 number) {
  std::ostringstream text;
  text << std::hex << number;
  return text.str();
}

[[noreturn]] void refuse(const std::string& problem) { throw Error{ErrorKind::usage, problem}; }

/// The words of one line, read one by one. Each function throws Error{usage}, the problem.
class Words {
 public:
  explicit Words(const std::string& line) : line_{line} {}
  std::string next() {
    std::string word;
    if (!(line_ >> word)) refuse("the line is too short");
    return word;
  }
  u64 number(const std::string& name) {
    if (next() != name) refuse("'" + name + "' is missing");
    return number();
  }
  u64 number() {
    const std::string word = next();
    constexpr std::size_t most_digits = 18;
    if (word.empty() || word.size() > most_digits ||
        !std::all_of(word.begin(), word.end(), [](char letter) { return letter >= '0' && letter <= '9'; }))
      refuse("'" + word + "' is not a number");
    return std::stoull(word);
  }
  u32 small(const std::string& name) {
    const u64 wide = number(name);
    if (wide > ~u32{0}) refuse("'" + name + "' is too large");
    return static_cast<u32>(wide);
  }
  void end() {
    std::string word;
    if (line_ >> word) refuse("'" + word + "' is too much");
  }

 private:
  std::istringstream line_;
};

u64 class_start(std::span<const u64> starts, u64 bytes) {
  if (std::find(starts.begin(), starts.end(), bytes) == starts.end())
    refuse(std::to_string(bytes) + " is not the first size of a class");
  return bytes;
}

template <class T, std::size_t count>
T named(const std::array<T, count>& all, const std::string& name, const char* what) {
  const auto found = std::find_if(all.begin(), all.end(), [&](T one) { return name == name_of(one); });
  if (found == all.end()) refuse("'" + name + "' is not " + what);
  return *found;
}

Knobs& class_named(Options& options, const std::string& name, u64 start) {
  for (const auto work : staged_works)
    if (name == name_of(work)) return options.of(work, class_start(classes_of(work), start));
  return options.of(named(tuned_methods, name, "a method"), class_start(size_classes, start));
}

void read_copies(Words& words, Options& options) {
  const std::string name = words.next();
  Knobs& knobs = class_named(options, name, words.number("from"));
  const std::string method = words.next();
  constexpr std::array words_of_methods{"plain", "ring", "cufile", "mapped", "sm", "tma"};
  if (std::find(words_of_methods.begin(), words_of_methods.end(), method) == words_of_methods.end())
    refuse("'" + method + "' is not plain, ring, cufile, mapped, sm or tma");
  knobs = {method == "plain",          words.small("threads"), words.number("chunk"),    words.small("depth"),
           words.small("chunks_each"), words.number("piece"),  words.small("sm_blocks"), words.number("sm_chunk"),
           words.small("links"),       method == "cufile",     method == "tma",          words.small("uring"),
           method == "mapped"};
  check(knobs);
}

void read_blocks(Words& words, Options& options) {
  const Towards towards = named(directions, words.next(), "a direction");
  BlockKnobs& knobs = options.of(towards, class_start(block_classes, words.number("from")));
  const auto method = block_method_named(words.next());
  knobs = {method, words.small("sm_blocks")};
  check(knobs);
}

/// The rest of a line after its first word.
std::string after(const std::string& line, const char* word) {
  if (!line.starts_with(word)) refuse(std::string{"'"} + word + "' is missing");
  return line.substr(std::string_view{word}.size());
}

/// Changes the options and returns when and by what the file was made. Throws Error{usage}, the problem.
std::string read_lines(std::istream& file, Options& options, const std::string& expected, u64& number) {
  const auto next = [&] {
    std::string line;
    ++number;
    if (!std::getline(file, line)) refuse("the file ends too early");
    return line;
  };
  if (const auto line = next(); line != first_line)
    refuse(line.starts_with("linkscope transfer tuning") ? "another format than this version's" : "not a tuning file");
  if (const auto found = after(next(), fingerprint_word); found != expected)
    refuse("made for another machine or version (" + found + ")");
  const std::string made = after(next(), made_word);
  for (auto line = next(); line != last_line; line = next()) {
    Words words{line};
    const std::string kind = words.next();
    if (kind == "copies") read_copies(words, options);
    else if (kind == "blocks") read_blocks(words, options);
    else refuse("'" + kind + "' is not copies or blocks");
    words.end();
  }
  return made;
}

std::string ignored(const std::string& path, u64 line, const std::string& problem) {
  return path + ":" + std::to_string(line) + ": " + problem + "; the file is ignored: run `linkscope tune`";
}

Tuning load_file(Options& options, const std::string& path, const std::string& expected) {
  std::error_code failure;
  if (!fs::is_regular_file(path, failure) || fs::file_size(path, failure) > most_bytes || failure)
    return {"", path + " is not a tuning file; it is ignored: run `linkscope tune`"};
  std::ifstream file{path};
  if (!file) return {"", path + " cannot be read; it is ignored: correct its permissions or run `linkscope tune`"};
  Options changed = options;
  u64 line = 0;
  try {
    const std::string made = read_lines(file, changed, expected, line);
    options = std::move(changed);
    return {path, "made " + made};
  } catch (const Error& problem) {
    return {"", ignored(path, line, problem.what())};
  }
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text.data();
}

bool is_by_kernel(MethodId id) { return id == MethodId::within_gpu || id == MethodId::between_peers; }

/// How the file names the method of copies.
const char* word_of(const Knobs& knobs, bool by_kernel) {
  if (knobs.plain) return "plain";
  if (knobs.cufile) return "cufile";
  if (knobs.mapped) return "mapped";
  if (knobs.tma) return "tma";
  return by_kernel ? "sm" : "ring";
}

std::string text_of(const Options& options, const std::string& fingerprint, const std::string& version) {
  std::ostringstream text;
  text << first_line << '\n' << fingerprint_word << fingerprint << '\n';
  text << made_word << now() << " by linkscope " << version << '\n';
  const auto copies = [&](const char* name, u64 start, const Knobs& knobs, bool by_kernel = false) {
    const auto& [plain, threads, chunk, depth, chunks_each, piece, sm_blocks, sm_chunk, links, cufile, tma, uring,
                 mapped] = knobs;
    text << "copies " << name << " from " << start << ' ' << word_of(knobs, by_kernel) << " threads " << threads
         << " chunk " << chunk << " depth " << depth << " chunks_each " << chunks_each << " piece " << piece
         << " sm_blocks " << sm_blocks << " sm_chunk " << sm_chunk << " links " << links << " uring " << uring << '\n';
  };
  for (const auto id : tuned_methods)
    for (const u64 start : size_classes) copies(name_of(id), start, options.of(id, start), is_by_kernel(id));
  for (const auto work : staged_works)
    for (const u64 start : classes_of(work)) copies(name_of(work), start, options.of(work, start));
  for (const auto towards : directions)
    for (const u64 start : block_classes) {
      const auto& [method, sm_blocks] = options.of(towards, start);
      text << "blocks " << name_of(towards) << " from " << start << ' ' << to_string(method) << " sm_blocks "
           << sm_blocks << '\n';
    }
  text << last_line << '\n';
  return text.str();
}

}  // namespace

std::string fingerprint(const Driver& driver, const std::vector<DeviceFacts>& gpus) {
  std::set<std::string> names;  // how many of a kind this process sees does not matter
  for (const auto& gpu : gpus) names.insert(gpu.name);
  std::string text;
  for (const auto& name : names) text += name + ", ";
  text += "driver " + std::to_string(driver.version()) + ", " + cpu_model() + ", " + std::to_string(usable_cpus()) +
          " CPUs, methods " + methods_version + "-" + hexadecimal(hash_of(transfer_device_code_hash()));
  std::replace_if(text.begin(), text.end(), [](char letter) { return letter >= 0 && letter < ' '; }, ' ');
  return text;
}

std::string tuning_path(const std::string& fingerprint) {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    return value && *value == '/' ? fs::path{value} : fs::path{};
  };
  fs::path cache = folder("XDG_CACHE_HOME");
  if (cache.empty() && !folder("HOME").empty()) cache = folder("HOME") / ".cache";
  if (cache.empty())
    throw Error{ErrorKind::failed, "neither XDG_CACHE_HOME nor HOME names a folder; name a file for the tuning"};
  return cache / "linkscope" / ("transfer-" + hexadecimal(hash_of(fingerprint)) + ".tuning");
}

Tuning load_tuning(Options& options, const std::string& fingerprint) {
  if (options.tuning == "none") return {"", "no tuning was asked for"};
  if (options.tuning != "auto") {
    std::error_code failure;
    if (fs::exists(options.tuning, failure)) return load_file(options, options.tuning, fingerprint);
    return {"", options.tuning + " does not exist; correct LINKSCOPE_TRANSFER_TUNING or unset it"};
  }
  try {
    const std::string path = tuning_path(fingerprint);
    std::error_code failure;
    if (!fs::exists(path, failure))
      return {"", "this machine has no tuning; `linkscope tune` makes one (" + fingerprint + ")"};
    return load_file(options, path, fingerprint);
  } catch (const Error& error) {
    return {"", error.what()};
  }
}

void write_tuning(const Options& options, const std::string& path, const std::string& fingerprint,
                  const std::string& version) {
  std::error_code failure;
  const fs::path target{path}, part{path + "." + std::to_string(getpid()) + ".part"};
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), failure);
  std::ofstream file{part};
  file << text_of(options, fingerprint, version);
  file.close();
  if (file) fs::rename(part, target, failure);
  if (file && !failure) return;
  fs::remove(part, failure);
  throw Error{ErrorKind::failed, path + " cannot be written; name a file in a folder that you may write"};
}

}  // namespace linkscope
