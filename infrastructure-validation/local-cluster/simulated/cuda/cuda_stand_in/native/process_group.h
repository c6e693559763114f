// The process group named nccl: gloo, on the same memory. A collective has ended when its call returns.
#pragma once
#include "kernels.h"

namespace c10d {
// DDP asks for it by the type of the device.
struct DeviceTimer final : Timer {
  explicit DeviceTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    int64_t begun = getTimeRef(start), ended = getTimeRef(end);
    if (begun == kUnsetTime || ended == kUnsetTime) return std::nullopt;
    return ended - begun;
  }
};
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, DeviceTimer)
}  // namespace c10d

namespace stand_in {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct Done final : c10d::Work {
  Done(int rank, c10d::OpType type, Tensors result) : c10d::Work(rank, type), result_(std::move(result)) {
    std::vector<Device> devices;
    if (!result_.empty() && result_[0].is_cuda()) devices.push_back(result_[0].device());
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
    future_->markCompleted(c10::IValue(result_));
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  Tensors result() override { return result_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Tensors result_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Send and receive: two ranks that both send first must not wait for one another.
struct Pending final : c10d::Work {
  Pending(int rank, c10d::OpType type, WorkPtr inner, at::Tensor keep)
      : c10d::Work(rank, type), inner_(std::move(inner)), keep_(std::move(keep)) {}
  bool isCompleted() override { return inner_->isCompleted(); }
  bool wait(std::chrono::milliseconds timeout) override { return inner_->wait(timeout); }

 private:
  WorkPtr inner_;
  at::Tensor keep_;
};

class ProcessGroup final : public c10d::Backend {
 public:
  ProcessGroup(c10::intrusive_ptr<c10d::Backend> gloo, c10::intrusive_ptr<Options> options)
      : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), options_(std::move(options)) {}

  const std::string getBackendName() const override { return "nccl"; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  bool supportsTimeEstimation() const override { return true; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  std::function<void(int)> connect;
  void eagerConnectSingleDevice(at::Device device) override {
    if (connect) connect(device.index());
  }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void abort() override { gloo_->abort(); }
  void shutdown() override { gloo_->shutdown(); }
  int splits() const { return splits_; }

  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& options) override {
    auto own = gloo_->getBackendOptions();  // gloo takes what a part differs in from its own options
    auto keep = std::make_tuple(own->timeout, own->group_name, own->global_ranks_in_group);
    own->timeout = options->timeout, own->group_name = options->group_name;
    own->global_ranks_in_group = options->global_ranks_in_group;
    auto part = gloo_->split(store, ranks, own);
    std::tie(own->timeout, own->group_name, own->global_ranks_in_group) = keep;
    if (!part) return nullptr;
    ++splits_;
    return c10::make_intrusive<ProcessGroup>(part, options);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Aliases aliases;
    auto hosts = on_host(aliases, tensors);
    gloo_->broadcast(hosts, options)->wait();
    return done(c10d::OpType::BROADCAST, tensors);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Aliases aliases;
    auto hosts = on_host(aliases, tensors);
    sum(hosts, options);
    return done(c10d::OpType::ALLREDUCE, tensors);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    c10d::AllreduceOptions of_each;
    of_each.reduceOp = options.reduceOp;
    for (auto& tensor : tensors) {
      Tensors one{tensor};
      allreduce(one, of_each);
    }
    return done(c10d::OpType::COALESCED, tensors);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    Aliases aliases;
    auto hosts = on_host(aliases, tensors);
    auto plain = options;
    plain.reduceOp = without_factor(options.reduceOp);
    gloo_->reduce(hosts, plain)->wait();
    if (rank_ == options.rootRank) multiply(hosts, options.reduceOp);
    return done(c10d::OpType::REDUCE, tensors);
  }
  WorkPtr allgather(std::vector<Tensors>& results, Tensors& tensors, const c10d::AllgatherOptions& options) override {
    Aliases aliases;
    auto to = on_host(aliases, results);
    auto from = on_host(aliases, tensors);
    gloo_->allgather(to, from, options)->wait();
    return done(c10d::OpType::ALLGATHER, results[0]);
  }
  WorkPtr _allgather_base(at::Tensor& result, at::Tensor& tensor, const c10d::AllgatherOptions& options) override {
    TORCH_CHECK(result.numel() == tensor.numel() * size_, "output tensor size must be equal to world_size times input tensor size");
    Aliases aliases;
    auto to = on_host(aliases, result), from = on_host(aliases, tensor);
    gloo_->_allgather_base(to, from, options)->wait();
    return done(c10d::OpType::_ALLGATHER_BASE, {result});
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& results, Tensors& tensors, const c10d::AllgatherOptions& options) override {
    for (size_t i = 0; i < results.size(); ++i) _allgather_base(results[i], tensors[i], options);
    return done(c10d::OpType::COALESCED, results);
  }
  WorkPtr gather(std::vector<Tensors>& results, Tensors& tensors, const c10d::GatherOptions& options) override {
    Aliases aliases;
    auto to = on_host(aliases, results);
    auto from = on_host(aliases, tensors);
    gloo_->gather(to, from, options)->wait();
    return done(c10d::OpType::GATHER, results.empty() ? Tensors{} : results[0]);
  }
  WorkPtr scatter(Tensors& results, std::vector<Tensors>& tensors, const c10d::ScatterOptions& options) override {
    Aliases aliases;
    auto to = on_host(aliases, results);
    auto from = on_host(aliases, tensors);
    gloo_->scatter(to, from, options)->wait();
    return done(c10d::OpType::SCATTER, results);
  }
  WorkPtr reduce_scatter(Tensors& results, std::vector<Tensors>& tensors, const c10d::ReduceScatterOptions& options) override {
    Aliases aliases;
    Tensors flat;
    for (auto& each : tensors[0]) flat.push_back(on_host(aliases, each).reshape(-1));
    part_of_sum(on_host(aliases, results[0]), at::cat(flat), options.reduceOp);
    return done(c10d::OpType::REDUCE_SCATTER, results);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& result, at::Tensor& tensor, const c10d::ReduceScatterOptions& options) override {
    TORCH_CHECK(tensor.numel() == result.numel() * size_, "input tensor must be the same size as output size times world size");
    Aliases aliases;
    part_of_sum(on_host(aliases, result), on_host(aliases, tensor).clone(), options.reduceOp);
    return done(c10d::OpType::_REDUCE_SCATTER_BASE, {result});
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& results, Tensors& tensors, const c10d::ReduceScatterOptions& options) override {
    for (size_t i = 0; i < results.size(); ++i) _reduce_scatter_base(results[i], tensors[i], options);
    return done(c10d::OpType::COALESCED, results);
  }
  WorkPtr alltoall_base(
      at::Tensor& result, at::Tensor& tensor, std::vector<int64_t>& to_sizes, std::vector<int64_t>& from_sizes,
      const c10d::AllToAllOptions& options) override {
    Aliases aliases;
    auto to = on_host(aliases, result), from = on_host(aliases, tensor);
    gloo_->alltoall_base(to, from, to_sizes, from_sizes, options)->wait();
    return done(c10d::OpType::ALLTOALL_BASE, {result});
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return begin(tensors, c10d::OpType::SEND, [&](Tensors& host) { return gloo_->send(host, to, tag); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return begin(tensors, c10d::OpType::RECV, [&](Tensors& host) { return gloo_->recv(host, from, tag); });
  }
  void startCoalescing() override {
    coalescing_ = true;
    begun_.clear(), begun_tensors_.clear();
  }
  WorkPtr endCoalescing() override {
    coalescing_ = false;
    for (auto& each : begun_) each->wait();
    begun_.clear();
    return done(c10d::OpType::COALESCED, std::move(begun_tensors_));
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    require_answer(current);
    auto plain = options;
    plain.device = std::nullopt;
    plain.device_ids.clear();
    gloo_->barrier(plain)->wait();
    return done(c10d::OpType::BARRIER, {});
  }

 private:
  // A device that hangs keeps every rank waiting that meets it in a collective.
  static void require_answer(DeviceIndex device) {
    require_alive(device);
    wait_while_it_hangs(device);
  }
  static at::Tensor on_host(Aliases& aliases, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.is_cuda() && !tensor.is_sparse(), "Tensors must be CUDA and dense");
    TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "Tensors must be contiguous");
    require_answer(tensor.device().index());
    return aliases.on_host(tensor);
  }
  static Tensors on_host(Aliases& aliases, const Tensors& tensors) {
    Tensors made;
    for (auto& tensor : tensors) made.push_back(on_host(aliases, tensor));
    return made;
  }
  static std::vector<Tensors> on_host(Aliases& aliases, const std::vector<Tensors>& several) {
    std::vector<Tensors> made;
    for (auto& tensors : several) made.push_back(on_host(aliases, tensors));
    return made;
  }
  WorkPtr done(c10d::OpType type, Tensors result) {
    ++sequence_;
    return c10::make_intrusive<Done>(rank_, type, std::move(result));
  }

  // gloo has neither AVG nor PREMUL_SUM: they are sums with a factor.
  double factor(const c10d::ReduceOp& op) const {
    if (op == c10d::ReduceOp::AVG) return 1.0 / size_;
    if (op == c10d::ReduceOp::PREMUL_SUM)
      if (auto* given = dynamic_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get()))
        return given->tensor_factor.defined() ? given->tensor_factor.cpu().item<double>() : given->double_factor;
    return 1;
  }
  static c10d::ReduceOp without_factor(const c10d::ReduceOp& op) {
    bool has_one = op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM;
    return has_one ? c10d::ReduceOp(c10d::ReduceOp::SUM) : op;
  }
  void multiply(Tensors& hosts, const c10d::ReduceOp& op) const {
    if (double by = factor(op); by != 1)
      for (auto& host : hosts) host.mul_(by);
  }
  void sum(Tensors& hosts, const c10d::AllreduceOptions& options) {
    auto plain = options;
    plain.reduceOp = without_factor(options.reduceOp);
    gloo_->allreduce(hosts, plain)->wait();
    multiply(hosts, options.reduceOp);
  }
  // reduce_scatter as a sum of all, of which each rank keeps its part: gloo's own differs between versions of torch.
  void part_of_sum(at::Tensor result, at::Tensor whole, const c10d::ReduceOp& op) {
    Tensors hosts{whole};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    sum(hosts, options);
    result.copy_(whole.view(-1).narrow(0, rank_ * result.numel(), result.numel()).view_as(result));
  }
  template <class F>
  WorkPtr begin(Tensors& tensors, c10d::OpType type, F call) {
    Aliases aliases;
    auto hosts = on_host(aliases, tensors);
    WorkPtr work = c10::make_intrusive<Pending>(rank_, type, call(hosts), hosts[0]);
    if (coalescing_) {
      begun_.push_back(work);
      begun_tensors_.push_back(tensors[0]);
    }
    return work;
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  c10::intrusive_ptr<Options> options_;
  uint64_t sequence_ = 0;
  int splits_ = 0;
  bool coalescing_ = false;
  std::vector<WorkPtr> begun_;
  Tensors begun_tensors_;
};

}  // namespace stand_in
