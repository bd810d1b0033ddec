// Templates: variadics, if constexpr, CRTP, type traits, fold expressions, compile-time arithmetic.
#include <array>
#include <iostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

constexpr unsigned long long fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

template <std::size_t N>
constexpr auto sieve() {
    std::array<bool, N> prime{};
    for (std::size_t i = 2; i < N; i++) prime[i] = true;
    for (std::size_t i = 2; i * i < N; i++)
        for (std::size_t j = i * i; prime[i] && j < N; j += i) prime[j] = false;
    int count = 0;
    for (bool p : prime) count += p;
    return count;
}

template <typename... Ts>
auto sum(Ts... values) { return (... + values); }

template <typename T, typename = void>
struct is_container : std::false_type {};
template <typename T>
struct is_container<T, std::void_t<typename T::value_type, decltype(std::declval<T>().begin())>> : std::true_type {};

template <typename T>
std::string show(const T& value) {
    std::ostringstream out;
    if constexpr (std::is_same_v<T, std::string>) {
        out << '"' << value << '"';
    } else if constexpr (std::is_same_v<T, bool>) {
        out << std::boolalpha << value;
    } else if constexpr (is_container<T>::value) {
        out << '[';
        const char* separator = "";
        for (const auto& item : value) out << std::exchange(separator, ", ") << show(item);
        out << ']';
    } else {
        out << value;
    }
    return out.str();
}

template <typename Derived>
struct Shape {
    double twice() const { return 2 * static_cast<const Derived&>(*this).area(); }
};
struct Square : Shape<Square> {
    double side;
    explicit Square(double s) : side(s) {}
    double area() const { return side * side; }
};

template <typename T, int Rows, int Columns>
struct Matrix {
    std::array<std::array<T, Columns>, Rows> cells{};

    template <int Other>
    constexpr auto operator*(const Matrix<T, Columns, Other>& right) const {
        Matrix<T, Rows, Other> out;
        for (int i = 0; i < Rows; i++)
            for (int j = 0; j < Other; j++)
                for (int k = 0; k < Columns; k++) out.cells[i][j] += cells[i][k] * right.cells[k][j];
        return out;
    }
};

int main() {
    static_assert(fibonacci(20) == 6765 && sieve<1000>() == 168);
    std::cout << sieve<10000>() << ' ' << sum(1, 2.5, 3L) << ' ' << sum(std::string("a"), "b", "c") << '\n';
    std::cout << show(std::vector<std::vector<int>>{{1, 2}, {}, {3}}) << show(std::vector<std::string>{"x"}) << show(true) << '\n';
    std::cout << Square(3).twice() << ' ' << is_container<int>::value << is_container<std::vector<int>>::value << '\n';
    constexpr auto product = Matrix<int, 2, 3>{{{{1, 2, 3}, {4, 5, 6}}}} * Matrix<int, 3, 1>{{{{7}, {8}, {9}}}};
    std::cout << product.cells[0][0] << ' ' << product.cells[1][0] << '\n';
}
