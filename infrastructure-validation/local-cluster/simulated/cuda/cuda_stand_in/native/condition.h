// What the node's state file says of each GPU, as far as CUDA would show it. healthy.conf lists the keys.
//
// The file is looked at every LOOK_S while a device is used, so that a GPU can fail in the middle of a step.
#pragma once
#include "parts.h"

#include <sys/stat.h>

namespace stand_in {

constexpr double LOOK_S = 0.02;
constexpr double THROTTLED = 4;  // times that an operation takes while the driver slows the GPU down

struct Condition {
  bool lost = false;
  double hang_s = 0;        // that a wait lasts, unless the GPU is repaired before
  double slow = 1;          // times that an operation takes
  double copy_slow = 1;     // times that a copy between host and GPU takes
  double memory_slow = 1;   // times that everything but products and copies takes
  double used = 0;          // share of its memory that others hold
  bool wrong_product = false;
  bool wrong_copy = false;  // from the host
};

class Conditions {
 public:
  void begin(std::string file, std::vector<int> physical) {
    std::lock_guard<std::mutex> hold(lock_);
    file_ = std::move(file), physical_ = std::move(physical);
    now_.assign(physical_.size(), Condition());
    looked_ = 0, stamp_ = Stamp();
  }

  Condition of(DeviceIndex device) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!file_.empty() && now_s() - looked_ > LOOK_S) {
      looked_ = now_s();
      read_where_changed();
    }
    return now_.at(device);
  }

 private:
  struct Stamp {
    ino_t file = 0;
    long s = 0, ns = 0;
    bool operator==(const Stamp& o) const { return file == o.file && s == o.s && ns == o.ns; }
  };

  void read_where_changed() {
    struct stat seen;
    if (::stat(file_.c_str(), &seen) != 0) return;  // being replaced: the next look finds it
    Stamp stamp{seen.st_ino, seen.st_mtim.tv_sec, seen.st_mtim.tv_nsec};
    if (stamp == stamp_) return;
    std::ifstream lines(file_);
    std::map<std::string, std::string> values;  // of several lines with one key the last one counts
    for (std::string line; std::getline(lines, line);) {
      auto equals = line.find('=');
      if (equals != std::string::npos && line[0] != '#') values[line.substr(0, equals)] = line.substr(equals + 1);
    }
    for (size_t i = 0; i < physical_.size(); ++i) now_[i] = read(values, physical_[i]);
    stamp_ = stamp;
  }

  static Condition read(const std::map<std::string, std::string>& values, int gpu) {
    auto say = [&](const std::string& key) {
      for (auto& name : {"gpu" + std::to_string(gpu) + "." + key, "gpu." + key}) {
        auto found = values.find(name);
        if (found != values.end()) return found->second;
      }
      return std::string();
    };
    auto number = [&](const std::string& key, double otherwise) {
      std::string text = say(key);
      char* end;
      double value = std::strtod(text.c_str(), &end);
      return text.empty() || *end ? otherwise : value;  // error:N is NVML's answer, and none of CUDA
    };
    Condition now;
    now.lost = number("lost", 0) != 0;
    now.hang_s = number("hang", 0);
    std::string throttle = say("throttle");
    bool slowed = throttle.rfind("hw_", 0) == 0 || throttle == "sw_power_cap";
    now.slow = std::max(number("cuda.slow", 1), slowed ? THROTTLED : 1.0);
    now.copy_slow = number("cuda.copy_slow", 1);
    now.memory_slow = number("cuda.memory_slow", 1);
    double memory = number("memory", 0);
    now.used = memory > 0 ? std::min(1.0, number("memory_used", 0) / memory) : 0;
    now.wrong_product = say("cuda.product") == "wrong";
    now.wrong_copy = say("cuda.copy") == "wrong";
    return now;
  }

  std::mutex lock_;
  std::string file_;
  std::vector<int> physical_;  // number of each device among the node's GPUs
  std::vector<Condition> now_;
  double looked_ = 0;
  Stamp stamp_;
};
inline Conditions& conditions = *new Conditions();  // never destroyed: threads may outlive the end of main

// Every launch and every wait asks this first.
inline void require_alive(DeviceIndex device) {
  if (!conditions.of(device).lost) return;
  constexpr int LAUNCH_FAILURE = 719;  // cudaErrorLaunchFailure
  throw c10::AcceleratorError(
      {__func__, __FILE__, __LINE__}, LAUNCH_FAILURE,
      "CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
      "stacktrace below might be incorrect.");
}

// Whoever waits for a device that hangs waits with it.
inline void wait_while_it_hangs(DeviceIndex device) {
  for (double begun = now_s(); now_s() - begun < conditions.of(device).hang_s;)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  require_alive(device);
}

// A slow device takes `factor` times what the host took.
inline void take_longer(double factor, double begun) {
  if (factor > 1) std::this_thread::sleep_for(std::chrono::duration<double>((factor - 1) * (now_s() - begun)));
}

}  // namespace stand_in
