#include "array.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

namespace hattn_python {
namespace {

// kDLCUDAHost of DLPack: pinned memory of the host, as good as any other.
constexpr int kPinnedHost = nb::device::cuda_host::value;

std::string text(nb::handle object) {
    return nb::str(object).c_str();
}

std::string python_type(nb::handle object) {
    return text(nb::object(object.type().attr("__name__")));
}

// Says why an object could not be imported, in the producer's words where it has any. Never returns.
[[noreturn]] void raise_not_imported(nb::handle object, const char *name) {
    const std::string who = std::string(name) + ": ";
    if (nb::hasattr(object, "dtype")) {
        const nb::object dtype = object.attr("dtype");
        if (text(dtype) == "int4")
            raise(PyExc_TypeError, who + "dtype is int4, one element a byte, but int4 keys and values are uint8 arrays "
                                         "with two elements a byte, the first in the low half");
        if (nb::hasattr(object, "__array_interface__") && is_foreign(dtype))
            raise(PyExc_TypeError, who + "dtype is " + text(dtype) + ", which hattn does not take");
    }
    if (nb::hasattr(object, "__dlpack__")) {
        try {
            object.attr("__dlpack__")();
        } catch (nb::python_error &error) {
            raise(PyExc_ValueError,
                  who + "the " + python_type(object) + " cannot be read through DLPack: " + text(error.value()));
        }
        raise(PyExc_ValueError, who + "the " + python_type(object) + " cannot be read through DLPack");
    }
    raise(PyExc_TypeError, who + "expected a NumPy array or a DLPack tensor, got " + python_type(object));
}

hattn_device library_device(int dlpack_device, const char *name) {
    switch (dlpack_device) {
    case nb::device::cpu::value:
    case kPinnedHost:
        return HATTN_CPU;
    case nb::device::cuda::value:
        return HATTN_CUDA;
    case nb::device::opencl::value:
        return HATTN_OPENCL;
    default:
        raise(PyExc_NotImplementedError, std::string(name) + ": arrays on DLPack device type " +
                                             std::to_string(dlpack_device) + " are not supported");
    }
}

// Producers give any stride to dimensions that are never stepped along, NumPy 0 to all of an empty array. The library
// checks strides of outputs and of the last dimension.
void make_regular(hattn_tensor &tensor) {
    bool empty = false;
    for (const int64_t extent : tensor.extent)
        empty |= extent == 0;
    uint64_t span = 1;  // may wrap: nothing of an empty array is addressed
    for (int i = 3; empty && i >= 0; --i) {
        tensor.stride[i] = static_cast<int64_t>(span);
        span *= static_cast<uint64_t>(std::max<int64_t>(tensor.extent[i], 1));
    }
    if (tensor.extent[3] == 1)
        tensor.stride[3] = 1;
}

// Reads `count` integers of type T with the given stride (in elements) into int32.
template<typename T>
std::vector<int32_t> narrow(const void *data, int64_t count, int64_t stride, const char *name) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        const T value = static_cast<const T *>(data)[i * stride];
        if (!std::in_range<int32_t>(value))
            raise(PyExc_ValueError, std::string(name) + ": entry " + std::to_string(i) + " is " +
                                        std::to_string(value) + ", which does not fit int32");
        values[static_cast<size_t>(i)] = static_cast<int32_t>(value);
    }
    return values;
}

}  // namespace

void raise(PyObject *type, const std::string &message) {
    // A path in it may be no UTF-8.
    const auto text =
        nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
    if (text)
        PyErr_SetObject(type, text.ptr());
    throw nb::python_error();
}

namespace {

nb::handle numpy_dtype(const char *name) {
    return nb::object(nb::module_::import_("numpy").attr("dtype")(name)).release();
}

}  // namespace

nb::object empty_array(const std::vector<int64_t> &shape, hattn_dtype dtype) {
    // Looked up once and kept for the life of the process: the look-ups would cost more than the allocation.
    static const nb::handle empty = nb::getattr(nb::module_::import_("numpy"), "empty").release();
    static const nb::handle float32 = numpy_dtype("float32"), float16 = numpy_dtype("float16"),
                            uint16 = numpy_dtype("uint16");
    nb::list extents;
    for (const int64_t extent : shape)
        extents.append(extent);
    return empty(nb::tuple(extents), dtype == HATTN_FLOAT16 ? float16 : dtype == HATTN_BFLOAT16 ? uint16 : float32);
}

namespace {

// NumPy mostly has one object for each of these, which says enough: its name takes it microseconds to make.
bool is_usual_dtype(nb::handle dtype) {
    static const nb::handle usual[] = {numpy_dtype("float32"), numpy_dtype("float16"), numpy_dtype("int8"),
                                       numpy_dtype("uint8"),   numpy_dtype("int32"),   numpy_dtype("int64"),
                                       numpy_dtype("uint16"),  numpy_dtype("bool")};
    return std::any_of(std::begin(usual), std::end(usual), [&](nb::handle known) { return known.is(dtype); });
}

// NumPy knows bfloat16 through the package ml_dtypes, and exports no such array. Its bits it does. Its dtype mostly is
// one object too, which is kept once its name is known.
bool is_numpy_bfloat16(nb::handle object) {
    static nb::handle known;
    const nb::object dtype = nb::getattr(object, "dtype", nb::none());
    if (dtype.is_none() || is_usual_dtype(dtype))
        return false;
    if (known.is_valid() && dtype.is(known))
        return true;
    const bool is_bfloat16 =
        nb::hasattr(object, "view") && nb::hasattr(object, "__array_interface__") && text(dtype) == "bfloat16";
    if (is_bfloat16 && !known.is_valid())
        known = nb::borrow(dtype).release();
    return is_bfloat16;
}

nb::object bits_of(nb::handle object) {
    static const nb::handle uint16 = numpy_dtype("uint16");
    return nb::object(object.attr("view")(uint16));
}

// A tensor of PyTorch in host memory as a DLPack capsule, which its C++ makes; of anything else, and of what that does
// not take, no object. A tensor's __dlpack__() is code in Python that takes ten times as long: it looks at streams, and
// at whether a gradient is wanted, which was looked at before.
nb::object capsule_of(nb::handle object) {
    static const nb::handle torch_name = nb::str("torch").release();
    static const nb::handle dlpack_name = nb::str("torch.utils.dlpack").release();
    static nb::handle tensor, to_dlpack;
    if (!tensor.is_valid()) {
        // As sys.modules has it: PyImport_GetModule() would wait for a thread that imports it.
        PyObject *const modules = PyImport_GetModuleDict();
        PyObject *const torch = PyDict_GetItemWithError(modules, torch_name.ptr());
        PyObject *const dlpack = torch ? PyDict_GetItemWithError(modules, dlpack_name.ptr()) : nullptr;
        if (!dlpack)
            return nb::object();
        nb::object type = nb::getattr(torch, "Tensor", nb::none());
        nb::object function = nb::getattr(dlpack, "to_dlpack", nb::none());
        if (type.is_none() || function.is_none())
            return nb::object();
        tensor = type.release();
        to_dlpack = function.release();
    }
    if (!object.type().is(tensor) || !nb::getattr(object, "is_cpu").is(nb::handle(Py_True)))
        return nb::object();
    auto capsule = nb::steal(PyObject_CallOneArg(to_dlpack.ptr(), object.ptr()));
    if (!capsule.is_valid())
        PyErr_Clear();
    return capsule;
}

// What nanobind makes a view of.
struct Source {
    explicit Source(nb::handle object) : array(capsule_of(object)) {
        if (array.is_valid())
            return;
        is_bfloat16 = is_numpy_bfloat16(object);
        array = is_bfloat16 ? bits_of(object) : nb::borrow(object);
    }

    nb::object array;
    bool is_bfloat16 = false;  // of NumPy
};

}  // namespace

// PyTorch has tensors that have given their memory back, or never had any.
Array::Array(View view, const char *name, bool is_bfloat16)
    : view_(std::move(view)), name_(name), is_bfloat16_(is_bfloat16) {
    if (!view_.data() && view_.size() > 0)
        raise(PyExc_ValueError, std::string(name) + ": data is null");
}

Array Array::readable(nb::handle object, const char *name) {
    View view;
    const Source source(object);
    if (!nb::try_cast(source.array, view))
        raise_not_imported(object, name);
    return Array(std::move(view), name, source.is_bfloat16);
}

Array Array::writable(nb::handle object, const char *name, bool bits) {
    nb::ndarray<> view;
    const Source source(object);
    if (nb::try_cast(source.array, view))
        return Array(View(view), name, bits || source.is_bfloat16);
    readable(object, name);
    raise(PyExc_ValueError, std::string(name) + ": the array is read-only");
}

hattn_dtype Array::dtype(const Dtypes &allowed) const {
    const std::optional<hattn_dtype> known = is_bfloat16_ ? HATTN_BFLOAT16 : library_dtype(view_.dtype());
    if (!known || !(allowed.bits >> *known & 1))
        raise(PyExc_TypeError, std::string(name_) + ": dtype is " +
                                   (is_bfloat16_ ? "bfloat16" : dtype_text(view_.dtype())) + ", but must be " +
                                   allowed.names);
    return *known;
}

hattn_tensor Array::describe(hattn_dtype dtype) const {
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    // The C structure serves inputs and outputs alike; the library writes outputs only.
    tensor.data = const_cast<void *>(view_.data());
    tensor.dtype = dtype;
    tensor.device = library_device(view_.device_type(), name_);
    tensor.device_id = view_.device_id();
    if (tensor.device == HATTN_OPENCL) {
        // A cl_mem, which is no address.
        tensor.byte_offset = view_.byte_offset();
        tensor.data = static_cast<char *>(tensor.data) - tensor.byte_offset;
    }
    return tensor;
}

void Array::require_rank(size_t rank, const char *dimensions) const {
    if (view_.ndim() != rank)
        raise(PyExc_ValueError, std::string(name_) + ": rank is " + std::to_string(view_.ndim()) + ", but must be " +
                                    std::to_string(rank) + " " + dimensions);
}

hattn_tensor Array::tensor(Layout layout, const Dtypes &allowed) const {
    return arranged(layout, dtype(allowed));
}

hattn_tensor Array::arranged(Layout layout, hattn_dtype dtype) const {
    const bool swapped = layout == Layout::kBshd;
    require_rank(4, swapped ? "[batch, sequence, heads, head dimension]" : "[batch, heads, sequence, head dimension]");
    hattn_tensor tensor = describe(dtype);
    for (size_t i = 0; i < 4; ++i) {
        const size_t from = swapped && (i == 1 || i == 2) ? 3 - i : i;
        tensor.extent[i] = static_cast<int64_t>(view_.shape(from));
        tensor.stride[i] = view_.stride(from);
    }
    make_regular(tensor);
    return tensor;
}

hattn_tensor Array::stored_tensor(Layout layout) const {
    if (view_.dtype() != nb::dtype<uint8_t>())
        return tensor(layout, kKept);
    hattn_tensor tensor = arranged(layout, HATTN_INT4);
    tensor.extent[3] *= 2;
    for (int i = 0; i < 3; ++i)
        tensor.stride[i] *= 2;
    return tensor;
}

hattn_tensor Array::broadcast_tensor(const Dtypes &allowed) const {
    const size_t rank = view_.ndim();
    if (rank > 4)
        raise(PyExc_ValueError, std::string(name_) + ": rank is " + std::to_string(rank) +
                                    ", but must be at most 4 [batch, query heads, query length, key length]");
    hattn_tensor tensor = describe(dtype(allowed));
    for (size_t i = 0; i < 4; ++i) {
        const bool given = i + rank >= 4;
        tensor.extent[i] = given ? static_cast<int64_t>(view_.shape(i + rank - 4)) : 1;
        tensor.stride[i] = given && tensor.extent[i] != 1 ? view_.stride(i + rank - 4) : 0;
    }
    return tensor;
}

hattn_tensor Array::row_tensor() const {
    require_rank(3, "[batch, heads, sequence]");
    hattn_tensor tensor = describe(dtype(kFloat32));
    for (size_t i = 0; i < 3; ++i) {
        tensor.extent[i] = static_cast<int64_t>(view_.shape(i));
        tensor.stride[i] = view_.stride(i);
    }
    tensor.extent[3] = 1;
    make_regular(tensor);
    return tensor;
}

void Array::require_vector() const {
    require_rank(1, "[entries]");
    if (library_device(view_.device_type(), name_) != HATTN_CPU)
        raise(PyExc_NotImplementedError, std::string(name_) + ": only arrays on the CPU are supported");
}

void Array::require_count(int64_t count, const char *of_what) const {
    require_vector();
    if (static_cast<int64_t>(view_.shape(0)) != count)
        raise(PyExc_ValueError, std::string(name_) + ": has " + std::to_string(view_.shape(0)) + " entries, but " +
                                    of_what + " is " + std::to_string(count));
}

std::vector<float> Array::floats(int64_t count, const char *of_what) const {
    require_count(count, of_what);
    if (view_.dtype() != nb::dtype<float>())
        raise(PyExc_TypeError,
              std::string(name_) + ": dtype is " + dtype_text(view_.dtype()) + ", but must be float32");
    std::vector<float> values(static_cast<size_t>(count));
    const auto *data = static_cast<const float *>(view_.data());
    for (int64_t i = 0; i < count; ++i)
        values[static_cast<size_t>(i)] = data[i * view_.stride(0)];
    return values;
}

std::vector<int32_t> Array::integers(int64_t count, const char *of_what) const {
    require_count(count, of_what);
    return integers();
}

std::vector<int32_t> Array::integers() const {
    require_vector();
    const auto count = static_cast<int64_t>(view_.shape(0));
    const nb::dlpack::dtype type = view_.dtype();
    const auto read = [&]<typename T>(std::type_identity<T>) {
        return narrow<T>(view_.data(), count, view_.stride(0), name_);
    };
    if (type == nb::dtype<int32_t>())
        return read(std::type_identity<int32_t>{});
    if (type == nb::dtype<int64_t>())
        return read(std::type_identity<int64_t>{});
    if (type == nb::dtype<int16_t>())
        return read(std::type_identity<int16_t>{});
    if (type == nb::dtype<int8_t>())
        return read(std::type_identity<int8_t>{});
    if (type == nb::dtype<uint8_t>())
        return read(std::type_identity<uint8_t>{});
    if (type == nb::dtype<uint16_t>())
        return read(std::type_identity<uint16_t>{});
    if (type == nb::dtype<uint32_t>())
        return read(std::type_identity<uint32_t>{});
    if (type == nb::dtype<uint64_t>())
        return read(std::type_identity<uint64_t>{});
    raise(PyExc_TypeError, std::string(name_) + ": dtype is " + dtype_text(type) + ", but must be an integer type");
}

}  // namespace hattn_python
