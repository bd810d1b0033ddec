// Hashing and encoding: CRC-32 with a constexpr table, FNV-1a, MD5, base64, hex, bitset.
#include <array>
#include <bitset>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

constexpr auto CRC_TABLE = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t n = 0; n < 256; n++) {
        std::uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
        table[n] = crc;
    }
    return table;
}();

constexpr std::uint32_t crc32(std::string_view text) {
    std::uint32_t crc = ~0u;
    for (unsigned char byte : text) crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xff];
    return ~crc;
}

constexpr std::uint64_t fnv1a(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
    return hash;
}

std::string md5(std::string message) {
    constexpr int shifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    std::array<std::uint32_t, 4> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    std::uint64_t bits = message.size() * 8;
    message += '\x80';
    while (message.size() % 64 != 56) message += '\0';
    for (int i = 0; i < 8; i++) message += static_cast<char>(bits >> 8 * i);
    for (std::size_t block = 0; block < message.size(); block += 64) {
        auto [a, b, c, d] = state;
        for (int i = 0; i < 64; i++) {
            int round = i / 16;
            std::uint32_t f = round == 0 ? (b & c) | (~b & d) : round == 1 ? (d & b) | (~d & c) : round == 2 ? b ^ c ^ d : c ^ (b | ~d);
            int at = (std::array{1, 5, 3, 7}[round] * i + std::array{0, 1, 5, 0}[round]) % 16;
            std::uint32_t word = 0;
            for (int byte = 3; byte >= 0; byte--) word = word << 8 | static_cast<unsigned char>(message[block + 4 * at + byte]);
            f += a + static_cast<std::uint32_t>(std::floor(std::fabs(std::sin(i + 1)) * 4294967296.0)) + word;
            int shift = shifts[round][i % 4];
            a = d, d = c, c = b;
            b += f << shift | f >> (32 - shift);
        }
        state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
    }
    std::ostringstream out;
    for (auto word : state)
        for (int i = 0; i < 4; i++) out << std::hex << std::setw(2) << std::setfill('0') << (word >> 8 * i & 0xff);
    return out.str();
}

std::string base64(std::string_view text) {
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < text.size(); i += 3) {
        std::uint32_t group = 0;
        for (std::size_t j = i; j < i + 3; j++) group = group << 8 | (j < text.size() ? static_cast<unsigned char>(text[j]) : 0);
        for (std::size_t j = 0; j < 4; j++) out += i + j > text.size() ? '=' : alphabet[group >> (18 - 6 * j) & 63];
    }
    return out;
}

int main() {
    static_assert(crc32("123456789") == 0xcbf43926);
    const std::string fox = "The quick brown fox jumps over the lazy dog";
    std::cout << std::hex << crc32(fox) << ' ' << fnv1a("foobar") << std::dec << '\n' << md5("") << '\n' << md5("abc") << '\n' << md5(fox) << '\n';
    for (auto text : {"f", "fo", "foo", "foobar"}) std::cout << base64(text) << ' ';
    std::cout << '\n' << std::bitset<16>(0xbeef) << ' ' << std::bitset<32>(0xdeadbeef).count() << '\n';
}
