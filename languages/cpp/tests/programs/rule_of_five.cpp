// Resource management: copy and move semantics counted, swap idiom, unwinding, scope guards.
#include <algorithm>
#include <iostream>
#include <stdexcept>
#include <utility>
#include <vector>

class Buffer {
public:
    static inline int copies = 0, moves = 0, alive = 0;

    explicit Buffer(std::size_t n) : size(n), data(new int[n]()) { alive++; }
    Buffer(const Buffer& other) : Buffer(other.size) {
        std::copy_n(other.data, size, data);
        copies++;
    }
    Buffer(Buffer&& other) noexcept : size(std::exchange(other.size, 0)), data(std::exchange(other.data, nullptr)) {
        alive++;
        moves++;
    }
    Buffer& operator=(Buffer other) noexcept {
        std::swap(size, other.size);
        std::swap(data, other.data);
        return *this;
    }
    ~Buffer() {
        delete[] data;
        alive--;
    }

private:
    std::size_t size;
    int* data;
};

template <typename F>
class ScopeGuard {
public:
    explicit ScopeGuard(F f) : action(std::move(f)) {}
    ScopeGuard(const ScopeGuard&) = delete;
    ~ScopeGuard() { action(); }

private:
    F action;
};

void report(const char* label) {
    std::cout << label << ": " << Buffer::copies << " copies, " << Buffer::moves << " moves, " << Buffer::alive << " alive\n";
    Buffer::copies = Buffer::moves = 0;
}

int main() {
    {
        Buffer a(10), b(a), c(std::move(a));
        b = c;
        c = Buffer(5);
        report("assigned");
    }
    std::vector<Buffer> buffers;
    buffers.reserve(4);
    for (std::size_t i = 0; i < 3; i++) buffers.push_back(Buffer(i));
    buffers.emplace_back(3);
    report("pushed");
    buffers.reserve(100);
    report("grown");
    buffers.clear();
    try {
        Buffer local(1);
        ScopeGuard guard([] { std::cout << "guard ran\n"; });
        throw std::runtime_error("unwound");
    } catch (const std::exception& error) {
        report(error.what());
    }
}
