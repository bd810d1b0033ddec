// Dates and durations: chrono arithmetic, civil dates as a value type, put_time and get_time in UTC.
#include <chrono>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <ratio>
#include <sstream>
#include <string>

using namespace std::chrono_literals;
using Days = std::chrono::duration<int, std::ratio<86400>>;
using Clock = std::chrono::system_clock;

struct Date {
    int year, month, day;

    // Days since 1970-01-01; years run from March so that the leap day comes last.
    constexpr Days sinceEpoch() const {
        int y = month <= 2 ? year - 1 : year;
        int era = (y >= 0 ? y : y - 399) / 400;
        int yearOfEra = y - era * 400;
        int dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        return Days(era * 146097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719468);
    }

    constexpr int weekday() const { return ((sinceEpoch().count() + 4) % 7 + 7) % 7; }
    friend constexpr Days operator-(Date a, Date b) { return a.sinceEpoch() - b.sinceEpoch(); }
};

std::string utc(Clock::time_point when, const char* format) {
    std::time_t seconds = Clock::to_time_t(when);
    std::ostringstream out;
    out << std::put_time(std::gmtime(&seconds), format);
    return out.str();
}

std::string clockTime(std::chrono::milliseconds span) {
    auto hours = std::chrono::duration_cast<std::chrono::hours>(span);
    auto minutes = std::chrono::duration_cast<std::chrono::minutes>(span - hours);
    auto seconds = std::chrono::duration<double>(span - hours - minutes);
    std::ostringstream out;
    out << hours.count() << ':' << std::setfill('0') << std::setw(2) << minutes.count() << ':' << std::fixed << std::setprecision(3)
        << std::setw(6) << seconds.count();
    return out.str();
}

int main() {
    static_assert((Date{2024, 2, 29} - Date{2000, 1, 1}).count() == 8825);
    static_assert(Date{1969, 7, 20}.sinceEpoch().count() == -165);

    Clock::time_point epoch;
    std::cout << utc(epoch + 1000000000s, "%Y-%m-%dT%H:%M:%SZ") << '\n';
    std::cout << utc(epoch + Date{2024, 2, 29}.sinceEpoch() + 18h, "%A %d %B %Y, %I %p") << '\n';
    std::cout << utc(epoch + Date{2021, 1, 3}.sinceEpoch(), "%G-W%V-%u") << '\n';

    int sundays = 0;
    for (int year = 1901; year <= 2000; year++)
        for (int month = 1; month <= 12; month++) sundays += Date{year, month, 1}.weekday() == 0;
    std::cout << "sundays: " << sundays << '\n';

    std::tm parsed{};
    std::istringstream("29/02/2024 23:30") >> std::get_time(&parsed, "%d/%m/%Y %H:%M");
    Date date{parsed.tm_year + 1900, parsed.tm_mon + 1, parsed.tm_mday};
    auto local = epoch + date.sinceEpoch() + std::chrono::hours(parsed.tm_hour) + std::chrono::minutes(parsed.tm_min);
    std::cout << "in UTC: " << utc(local - 5h - 30min, "%F %R") << '\n';

    std::cout << clockTime(1h + 15min + 30918ms) << ' ' << clockTime(90s) << '\n';
    std::cout << std::chrono::duration_cast<Days>(1000h).count() << " days, " << std::chrono::microseconds(2s).count() << " us\n";
    auto before = std::chrono::steady_clock::now();
    std::cout << "monotonic: " << (std::chrono::steady_clock::now() >= before) << '\n';
}
