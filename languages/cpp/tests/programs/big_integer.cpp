// Operator overloading: big integers with comparison, streaming and implicit conversion.
#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <utility>
#include <vector>

class Big {
public:
    Big(std::uint64_t n = 0) {
        for (; n > 0; n /= base) limbs.push_back(n % base);
    }

    friend Big operator+(Big a, const Big& b) {
        a.limbs.resize(std::max(a.limbs.size(), b.limbs.size()) + 1);
        std::uint64_t carry = 0;
        for (std::size_t i = 0; i < a.limbs.size(); i++) {
            carry += a.limbs[i] + (i < b.limbs.size() ? b.limbs[i] : 0);
            a.limbs[i] = carry % base;
            carry /= base;
        }
        return a.trim();
    }

    friend Big operator*(const Big& a, const Big& b) {
        Big out;
        out.limbs.resize(a.limbs.size() + b.limbs.size() + 1);
        for (std::size_t i = 0; i < a.limbs.size(); i++) {
            std::uint64_t carry = 0;
            for (std::size_t j = 0; j < b.limbs.size() || carry; j++) {
                carry += out.limbs[i + j] + a.limbs[i] * (j < b.limbs.size() ? b.limbs[j] : 0);
                out.limbs[i + j] = carry % base;
                carry /= base;
            }
        }
        return out.trim();
    }

    friend bool operator==(const Big& a, const Big& b) { return a.limbs == b.limbs; }

    friend std::ostream& operator<<(std::ostream& out, const Big& n) {
        out << (n.limbs.empty() ? 0 : n.limbs.back()) << std::setfill('0');
        for (std::size_t i = n.limbs.size(); i > 1; i--) out << std::setw(9) << n.limbs[i - 2];
        return out;
    }

private:
    Big& trim() {
        while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
        return *this;
    }

    static constexpr std::uint64_t base = 1'000'000'000;
    std::vector<std::uint64_t> limbs;
};

Big power(Big base, unsigned exponent) {
    Big result = 1;
    for (; exponent; exponent >>= 1, base = base * base)
        if (exponent & 1) result = result * base;
    return result;
}

int digitSum(const Big& n) {
    std::ostringstream out;
    out << n;
    int sum = 0;
    for (char digit : out.str()) sum += digit - '0';
    return sum;
}

int main() {
    Big factorial = 1, a = 0, b = 1;
    for (int n = 1; n <= 100; n++) factorial = factorial * n;
    for (int i = 0; i < 300; i++) a = std::exchange(b, a + b);
    std::cout << digitSum(factorial) << ' ' << digitSum(power(2, 1000)) << '\n' << a << '\n';
    std::cout << power(2, 127) + 0 << ' ' << (power(10, 40) == power(100, 20)) << ' ' << Big(0) * 5 << '\n';
}
