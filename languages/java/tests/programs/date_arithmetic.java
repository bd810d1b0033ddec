// java.time in UTC: parsing, periods, adjusters, ISO weeks, offsets, formatting.
import java.time.DateTimeException;
import java.time.DayOfWeek;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.Month;
import java.time.OffsetDateTime;
import java.time.Period;
import java.time.Year;
import java.time.YearMonth;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.time.temporal.IsoFields;
import java.time.temporal.TemporalAdjusters;
import java.util.Locale;
import java.util.stream.IntStream;
import java.util.stream.Stream;

public class DateArithmetic {
    public static void main(String[] args) {
        System.out.println(Instant.ofEpochSecond(1_000_000_000));
        System.out.println(Instant.ofEpochSecond(1L << 31));

        LocalDate leapDay = LocalDate.of(2024, Month.FEBRUARY, 29);
        System.out.println("days: " + ChronoUnit.DAYS.between(LocalDate.of(2000, 1, 1), leapDay));
        System.out.println("period: " + Period.between(LocalDate.of(1999, 12, 31), leapDay));
        System.out.println("next year: " + leapDay.plusYears(1) + ", month end: " + YearMonth.of(2025, 2).atEndOfMonth());
        System.out.println("first monday: " + leapDay.with(TemporalAdjusters.firstInMonth(DayOfWeek.MONDAY)));

        LocalDate sunday = LocalDate.parse("2021-01-03");
        System.out.println("week: " + sunday.get(IsoFields.WEEK_BASED_YEAR) + "-W" + sunday.get(IsoFields.WEEK_OF_WEEK_BASED_YEAR));
        System.out.println("leap years: " + IntStream.rangeClosed(1900, 2000).filter(Year::isLeap).count());

        long sundays = Stream.iterate(LocalDate.of(1901, 1, 1), d -> d.getYear() <= 2000, d -> d.plusMonths(1))
            .filter(d -> d.getDayOfWeek() == DayOfWeek.SUNDAY).count();
        System.out.println("sundays: " + sundays);
        System.out.println("friday 13ths: " + Stream.of(Month.values())
            .filter(m -> LocalDate.of(2026, m, 13).getDayOfWeek() == DayOfWeek.FRIDAY).toList());

        DateTimeFormatter format = DateTimeFormatter.ofPattern("d MMM uuuu HH:mm xx", Locale.ENGLISH);
        OffsetDateTime parsed = OffsetDateTime.parse("29 Feb 2024 23:30 +0530", format);
        System.out.println("in UTC: " + parsed.withOffsetSameInstant(ZoneOffset.UTC));
        System.out.println("in New York: " + parsed.atZoneSameInstant(ZoneId.of("America/New_York")).toLocalDateTime());
        System.out.println(DateTimeFormatter.RFC_1123_DATE_TIME.format(parsed.withOffsetSameInstant(ZoneOffset.UTC)));

        Duration span = Duration.parse("PT1H15M30.918S");
        System.out.println(span.toMillis() + " " + span.toMinutesPart() + " " + span.multipliedBy(2));
        try {
            LocalDate.of(2023, 2, 29);
        } catch (DateTimeException e) {
            System.out.println(e.getMessage());
        }
    }
}
