#include <luge/luge.h>
#include <memory>
#include <stdexcept>
#include <utility>

namespace sled {

struct error : std::runtime_error {
    luge_status code;
    error(luge_status c, const char *text) : std::runtime_error(text), code(c) {}
};

inline void check() {                     // the standing error becomes an exception
    if (luge_ok()) return;
    error e(luge_error(), luge_error_text());
    luge_error_clear();
    throw e;
}

template <auto destroy> struct closer {
    template <class T> void operator()(T *object) const noexcept { destroy(object); }
};
using module = std::unique_ptr<luge_module, closer<luge_module_destroy>>;
using optim = std::unique_ptr<luge_optim, closer<luge_optim_destroy>>;

class tensor {                          // holds a reference of its own: may outlive any scope
    luge_tensor *t_ = nullptr;
public:
    tensor(luge_tensor *borrowed) : t_(luge_retain(borrowed)) {}
    tensor(const tensor &o) : tensor(o.t_) {}
    tensor(tensor &&o) noexcept : t_(std::exchange(o.t_, nullptr)) {}
    tensor &operator=(tensor o) noexcept { std::swap(t_, o.t_); return *this; }
    ~tensor() { luge_release(t_); }
    operator luge_tensor *() const { return t_; }
    friend tensor operator-(const tensor &a, const tensor &b) { return luge_sub(a, b); }
    friend tensor operator*(const tensor &a, const tensor &b) { return luge_mul(a, b); }
};

} // namespace sled

int main() try {
    sled::module net(luge_nn_sequential(luge_nn_linear(2, 16, nullptr), luge_nn_relu(),
                                        luge_nn_linear(16, 1, nullptr)));
    luge_sgd_options sgd = LUGE_DEFAULTS;
    sgd.momentum = 0.9;
    sled::optim opt(luge_sgd_create(net.get(), 0.1, &sgd));
    for (int step = 0; step < 200; ++step) {
        LUGE_SCOPE("step");             // closes when check() throws, too
        sled::tensor x = luge_randn(LUGE_SHAPE(64, 2), nullptr);
        sled::tensor y = luge_sum(x * x, LUGE_AXES_KEEPDIM(1));
        sled::tensor d = sled::tensor(luge_forward(net.get(), x)) - y;
        luge_optim_zero_grad(opt.get());
        luge_backward(luge_mean(d * d, LUGE_ALL_AXES));
        luge_optim_step(opt.get());
        sled::check();
    }
} catch (const sled::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
