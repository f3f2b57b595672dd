// How a proxy thread performs operations between two regions: by CPU, by copy engines, or over TCP.
#pragma once
#include <memory>
#include <string>

#include "base/ring.hpp"
#include "putget/queue_pair.hpp"
#include "putget/region.hpp"

namespace linkscope {

class Carrier {
 public:
  virtual ~Carrier() = default;
  /// Starts an operation, which takes effect behind those before it. Throws Error.
  virtual void perform(const Operation&) = 0;
  /// Waits until all operations so far are done. Throws Error.
  virtual void finish() = 0;
  /// "", or that the other side has ended.
  [[nodiscard]] virtual std::string why_gone() const { return ""; }
  /// "CPU", "copy engine", "TCP" or "network card".
  [[nodiscard]] virtual std::string name() const = 0;
};

/// The carrier for two regions. `patience`: of each wait for a TCP server.
[[nodiscard]] std::unique_ptr<Carrier> make_carrier(PutGet&, const PutRegion& local, const PutRegion& remote,
                                                    Seconds patience);
/// The same for a remote region behind a network card.
[[nodiscard]] std::unique_ptr<Carrier> make_card_carrier(PutGet&, const QueuePair&, const PutRegion& local,
                                                         const PutRegion& remote, Seconds patience);

}  // namespace linkscope
