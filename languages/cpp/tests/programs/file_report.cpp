// Files: fstream and filesystem in a temporary folder, text and binary records, error codes.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace fs = std::filesystem;

struct Statistics {
    int count = 0, sum = 0, low = INT32_MAX, high = INT32_MIN;

    void add(int value) {
        count++;
        sum += value;
        low = std::min(low, value);
        high = std::max(high, value);
    }
};

std::map<std::string, Statistics> parse(const fs::path& path) {
    std::ifstream in(path);
    in.exceptions(std::ios::badbit);
    std::map<std::string, Statistics> cities;
    for (std::string line; std::getline(in, line);) {
        std::istringstream fields(line);
        std::string city;
        int celsius;
        if (line[0] != '#' && std::getline(fields, city, ';') && fields >> celsius) cities[city].add(celsius);
    }
    return cities;
}

int main() {
    fs::path folder = fs::temp_directory_path() / ("report-" + std::to_string(getpid()));
    fs::create_directories(folder / "a" / "b");
    fs::path text = folder / "cities.txt", binary = folder / "a" / "b" / "cities.bin";
    std::ofstream(text) << "# city;celsius\nOslo;-3\nCairo;31\nLima;19\nOslo;5\nCairo;27\n\nbad\nLima;20\n";
    std::ofstream(text, std::ios::app) << "Oslo;1\n";
    std::cout << text.filename() << ' ' << fs::file_size(text) << " bytes\n";

    auto cities = parse(text);
    std::ofstream out(binary, std::ios::binary);
    std::cout << std::fixed << std::setprecision(1);
    for (const auto& [name, s] : cities) {
        std::cout << std::left << std::setw(6) << name << std::right << std::setw(2) << s.count << std::setw(4) << s.low
                  << std::setw(4) << s.high << std::setw(6) << static_cast<double>(s.sum) / s.count << '\n';
        out.write(reinterpret_cast<const char*>(&s), sizeof s);
    }
    out.close();

    std::ifstream in(binary, std::ios::binary);
    Statistics second;
    in.seekg(sizeof second);
    in.read(reinterpret_cast<char*>(&second), sizeof second);
    std::cout << "second: " << second.low << ' ' << second.high << ", good: " << in.good() << '\n';

    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        names.push_back(fs::relative(entry.path(), folder).generic_string() + (entry.is_directory() ? "/" : ""));
    std::sort(names.begin(), names.end());
    for (const auto& name : names) std::cout << name << ' ';
    std::cout << "\nremoved " << fs::remove_all(folder) << '\n';
    std::error_code error;
    bool found = fs::file_size(text, error) != static_cast<std::uintmax_t>(-1);
    std::cout << "found: " << found << ", gone: " << (error == std::errc::no_such_file_or_directory) << '\n';
}
