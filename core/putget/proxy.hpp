// Threads that carry out what posters ask for by rings.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace linkscope {

/// A ring as its proxy sees it. Its calls throw nothing.
class ServedRing {
 public:
  virtual ~ServedRing() = default;
  /// Carries out what is there, at most half a ring. False: nothing was there.
  virtual bool serve() = 0;
  /// The ring has been empty for long: looks whether the other side still lives.
  virtual void look_after() = 0;
};

/// A thread that looks at its rings in turn. None of them waits longer than half of each other ring takes.
class Proxy {
 public:
  Proxy();
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void add(ServedRing&);
  /// The thread does not use the ring any longer.
  void remove(ServedRing&);

 private:
  void run();
  std::atomic<unsigned> changing_{0};
  std::atomic<bool> stops_{false};
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<ServedRing*> rings_;
  std::thread thread_;
};

}  // namespace linkscope
