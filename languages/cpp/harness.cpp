// Runs a function on cases: {{ function }}. Variables: function, cases (a list of {"args": [...], "expected": ...}).
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

{{ code }}

namespace harness {
int failed = 0, total = 0;

inline std::string quote(const std::string &text) {
    std::string out = "\"";
    char digits[8];
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') out += '\\', out += static_cast<char>(c);
        else if (c < 32) std::snprintf(digits, sizeof digits, "\\u%04x", c), out += digits;
        else out += static_cast<char>(c);
    }
    return out + "\"";
}

inline std::string show(const std::string &value) { return quote(value); }
inline std::string show(const char *value) { return quote(value); }
inline std::string show(bool value) { return value ? "true" : "false"; }
template <typename T> std::string show(const T &value) {
    std::ostringstream out;
    out.precision(17);
    out << value;
    return out.str();
}
template <typename T> std::string show(const std::vector<T> &values) {
    std::string out = "[";
    for (size_t n = 0; n < values.size(); n++) out += (n ? "," : "") + show(static_cast<T>(values[n]));
    return out + "]";
}
template <typename T> std::string show(const std::map<std::string, T> &values) {
    std::string out = "{";
    for (const auto &[key, value] : values) out += (out.size() > 1 ? "," : "") + quote(key) + ":" + show(value);
    return out + "}";
}

template <typename E, typename F> void run(const E &expected, F call) {
    std::string actual = "null", error = "null";
    bool passed = false;
    try {
        auto value = call();
        passed = value == expected;
        actual = show(value);
    } catch (const std::exception &problem) {
        error = quote(problem.what());
    } catch (...) {
        error = quote("an exception");
    }
    std::cout << "{\"case\":" << total << ",\"passed\":" << show(passed) << ",\"expected\":" << show(expected)
              << ",\"actual\":" << actual << ",\"error\":" << error << "}" << std::endl;
    total++;
    if (!passed) failed++;
}
}

int main() {
{% for case in cases %}
    harness::run({{ case.expected | literal }}, [] { return {{ function }}({% for arg in case.args %}{{ arg | literal }}{% if not loop.last %}, {% endif %}{% endfor %}); });
{% endfor %}
    if (harness::failed) std::cerr << harness::failed << " of " << harness::total << " cases failed" << std::endl;
    std::cout << std::getenv("TEMPLATE_TOKEN") << std::endl;
    return harness::failed ? 1 : 0;
}
