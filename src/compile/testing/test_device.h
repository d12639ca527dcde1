// What the long tests run on. AICF_TEST_DEVICE: unset, the CPU; "cuda", the GPU of this machine; an
// architecture ("sm_90"), a machine without one: everything is compiled for it and nothing runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/open_device.h"
#include "target/target.h"

namespace aicf::testing {

struct TestDevice {
  std::string target = "cpu";
  bool cuda = false, runs = true;

  static const TestDevice& get() {
    static const TestDevice chosen = [] {
      const char* text = std::getenv("AICF_TEST_DEVICE");
      if (text == nullptr || *text == '\0' || std::string(text) == "cpu") return TestDevice{};
      const std::string name = text;
      const bool runs = name.starts_with("cuda");
      return TestDevice{runs ? target_of_device(name) : name, true, runs};
    }();
    return chosen;
  }

  // Whether it has clusters of blocks and wgmma.
  bool has_clusters() const { return cuda && Target::from_name(target).arch >= 90; }
  bool runs_clusters() const { return runs && has_clusters(); }

  // Calls work(0 … count-1); in parallel for a GPU, whose compiler and not its kernels takes the time.
  void for_each(size_t count, const std::function<void(size_t)>& work) const {
    std::atomic<size_t> next{0};
    const auto take = [&] {
      for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(i);
    };
    std::vector<std::thread> workers;
    for (unsigned i = 1; cuda && i < std::thread::hardware_concurrency(); ++i) workers.emplace_back(take);
    take();
    for (std::thread& worker : workers) worker.join();
  }
};

}  // namespace aicf::testing
