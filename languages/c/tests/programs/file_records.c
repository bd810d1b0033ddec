// Files: a CSV file written and parsed, binary records with seeking, errno, removal.
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct city { char name[16]; int32_t readings, sum, low, high; };

static const char *const LINES[] = {"# city,celsius", "Oslo,-3", "Cairo,31", "Lima,19", "Oslo,5", "Cairo,27", "bad", "Lima,20", "Oslo,1"};

static FILE *open_or_die(const char *name, const char *mode) {
    FILE *file = fopen(name, mode);
    if (!file) {
        perror(name);
        exit(1);
    }
    return file;
}

static int parse(FILE *file, struct city *cities, int *bad) {
    char line[80], name[16];
    int count = 0, celsius;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#') continue;
        if (sscanf(line, "%15[^,],%d", name, &celsius) != 2) {
            ++*bad;
            continue;
        }
        int at = 0;
        while (at < count && strcmp(cities[at].name, name)) at++;
        struct city *city = &cities[at];
        if (at == count) {
            *city = (struct city){.low = celsius, .high = celsius};
            strcpy(city->name, name);
            count++;
        }
        city->readings++;
        city->sum += celsius;
        if (celsius < city->low) city->low = celsius;
        if (celsius > city->high) city->high = celsius;
    }
    return count;
}

int main(void) {
    const char *text = "cities.csv", *binary = "cities.bin";
    FILE *file = open_or_die(text, "w");
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) fprintf(file, "%s\n", LINES[i]);
    printf("wrote %ld bytes\n", ftell(file));
    fclose(file);

    struct city cities[8];
    int bad = 0;
    file = open_or_die(text, "r");
    int count = parse(file, cities, &bad);
    fclose(file);
    printf("%d cities, %d bad line\n", count, bad);
    for (int i = 0; i < count; i++)
        printf("%-6s%2d%4d%4d%6.1f\n", cities[i].name, cities[i].readings, cities[i].low, cities[i].high,
               (double)cities[i].sum / cities[i].readings);

    file = open_or_die(binary, "w+b");
    fwrite(cities, sizeof *cities, (size_t)count, file);
    struct city second;
    fseek(file, sizeof second, SEEK_SET);
    if (fread(&second, sizeof second, 1, file) != 1) return 1;
    fseek(file, 0, SEEK_END);
    printf("second: %s %d, size %ld\n", second.name, second.high, ftell(file));
    fclose(file);

    remove(text);
    remove(binary);
    if (!fopen(text, "r")) printf("gone: %s\n", errno == ENOENT ? strerror(errno) : "no");
    return 0;
}
