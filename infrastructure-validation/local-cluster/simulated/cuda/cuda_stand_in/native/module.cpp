// CUDA devices for the CPU build of torch: the places that libtorch_cuda fills, filled with the host's memory and kernels.
//
// One unit, because torch's headers take 15 s of compiling in each. What Python sees of it is in the package around it.
#include "process_group.h"

namespace stand_in {

py::dict in_python(const c10::CachingAllocator::Stat& stat) {
  py::dict made;
  made["current"] = stat.current, made["peak"] = stat.peak, made["allocated"] = stat.allocated, made["freed"] = stat.freed;
  return made;
}
py::dict in_python(const c10::CachingAllocator::StatArray& stats) {
  py::dict made;
  made["all"] = in_python(stats[0]), made["small_pool"] = in_python(stats[1]), made["large_pool"] = in_python(stats[2]);
  return made;
}
py::dict memory_stats(DeviceIndex device) {
  require_device(device);
  auto s = memory->getDeviceStats(device);
  py::dict made;
  made["num_alloc_retries"] = s.num_alloc_retries, made["num_ooms"] = s.num_ooms;
  made["max_split_size"] = s.max_split_size, made["num_sync_all_streams"] = s.num_sync_all_streams;
  made["num_device_alloc"] = s.num_device_alloc, made["num_device_free"] = s.num_device_free;
  made["allocation"] = in_python(s.allocation), made["segment"] = in_python(s.segment);
  made["active"] = in_python(s.active), made["inactive_split"] = in_python(s.inactive_split);
  made["allocated_bytes"] = in_python(s.allocated_bytes), made["reserved_bytes"] = in_python(s.reserved_bytes);
  made["active_bytes"] = in_python(s.active_bytes), made["inactive_split_bytes"] = in_python(s.inactive_split_bytes);
  made["requested_bytes"] = in_python(s.requested_bytes);
  made["oversize_allocations"] = in_python(s.oversize_allocations);
  made["oversize_segments"] = in_python(s.oversize_segments);
  return made;
}

void begin(std::string state_file, std::vector<int> physical, size_t bytes, double lag) {
  TORCH_CHECK(physical.size() <= MOST, "at most ", MOST, " devices");
  n_devices = physical.size(), total_memory = bytes, lag_s = lag;
  conditions.begin(std::move(state_file), std::move(physical));
  memory = new Memory();
  pinned_memory = new PinnedMemory();
  generators = new std::vector<at::Generator>();
  for (int i = 0; i < n_devices; ++i) generators->push_back(at::make_generator<Random>(i));
  c10::SetAllocator(DeviceType::CUDA, memory, 100);
  guard = new Guard();
  c10::impl::registerDeviceGuard(DeviceType::CUDA, guard);
}

// make_gloo(store, rank, size, timeout): the Python binding knows gloo's devices, which have no header in the wheel.
// connect(store, rank, size, device): raises what NCCL raises when it connects the GPUs of a group.
void process_group(py::module m, py::object make_gloo, py::object connect) {
  auto* of_all = new py::object(connect);  // never freed: a group may end when Python has
  using Options = c10d::Backend::Options;
  py::class_<ProcessGroup, c10d::Backend, c10::intrusive_ptr<ProcessGroup>>(m, "ProcessGroupNCCL")
      .def(py::init([make_gloo, of_all](
                        const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                        c10::intrusive_ptr<Options> options) {
             auto gloo = make_gloo(store, rank, size, options->timeout).cast<c10::intrusive_ptr<c10d::Backend>>();
             auto group = c10::make_intrusive<ProcessGroup>(gloo, options);
             group->connect = [=](int device) {
               py::gil_scoped_acquire gil;
               (*of_all)(store, rank, size, device);
             };
             return group;
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
      .def_property_readonly("options", [](ProcessGroup& of) { return of.getBackendOptions(); })
      .def("_set_sequence_number_for_group", &ProcessGroup::setSequenceNumberForGroup)
      .def("_get_sequence_number_for_group", &ProcessGroup::getSequenceNumberForGroup)
      .def("perform_nocolor_split", [](ProcessGroup&, py::object) {})
      .def("comm_split_count", &ProcessGroup::splits)
      .def("_is_initialized", [](ProcessGroup&) { return true; })
      .def("_group_start", [](ProcessGroup&) {})
      .def("_group_end", [](ProcessGroup&) {})
      .def("_set_default_timeout", &ProcessGroup::setTimeout, py::call_guard<py::gil_scoped_release>());
}

}  // namespace stand_in

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace stand_in;
  auto without_gil = py::call_guard<py::gil_scoped_release>();
  m.def("begin", &stand_in::begin);
  m.def("process_group", &process_group);
  m.def("exchange_device", [](int to) {
    return to < 0 ? -1 : guard->exchangeDevice(Device(DeviceType::CUDA, to)).index();
  });
  m.def("get_device", [] { return (int)current; });
  m.def("synchronize", [] { wait_for_device(current); }, without_gil);
  m.def("get_stream", [](int device) { return guard->getStream(Device(DeviceType::CUDA, device)).id(); });
  m.def("set_stream", [](int64_t id, int device) {
    guard->setDevice(Device(DeviceType::CUDA, device));
    streams[device] = id;
  });
  m.def("elapsed_ms", [](size_t from, size_t to) {
    return guard->elapsedTime(reinterpret_cast<void*>(from), reinterpret_cast<void*>(to), -1);
  });
  m.def("memory_info", [](int device) { return memory->getMemoryInfo(device); });
  m.def("memory_stats", &memory_stats);
  m.def("live_blocks", [] { return memory->live(); });
  m.def("reset_peak", [](int device) { memory->resetPeakStats(device); });
  m.def("reset_accumulated", [](int device) { memory->resetAccumulatedStats(device); });
  m.def("empty_cache", [] { memory->emptyCache(); });
  m.def("set_memory_fraction", [](double fraction, int device) { memory->set_fraction(device, fraction); });
  m.def("memory_fraction", [](int device) { return memory->fraction(device); });
  m.def("resize_storage", &resize_storage);
  m.def("default_generator", [](int device) { return generators->at(device); });
  m.def("set_sync_debug", [](int mode) { sync_debug = mode; });
  m.def("sync_debug", [] { return sync_debug; });
}
