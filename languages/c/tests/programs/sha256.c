// Hashing from scratch: SHA-256 and CRC-32, checked against known vectors.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

// The first 32 bits of the fraction of the square (2) or cube (3) root of a small prime.
static uint32_t root_bits(unsigned prime, int power) {
    unsigned __int128 target = (unsigned __int128)prime << (32 * power), root = 0;
    for (int bit = 39; bit >= 0; bit--) {
        unsigned __int128 trial = root | (unsigned __int128)1 << bit;
        unsigned __int128 raised = power == 3 ? trial * trial * trial : trial * trial;
        if (raised <= target) root = trial;
    }
    return (uint32_t)root;
}

static void block(uint32_t state[8], const uint32_t k[64], const uint8_t *data) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++, data += 4)
        w[i] = (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

static void sha256(const char *message) {
    uint32_t state[8], k[64];
    for (int n = 2, found = 0; found < 64; n++) {
        int d = 2;
        while (d * d <= n && n % d) d++;
        if (d * d <= n) continue;
        if (found < 8) state[found] = root_bits((unsigned)n, 2);
        k[found++] = root_bits((unsigned)n, 3);
    }
    size_t length = strlen(message), padded = (length + 9 + 63) / 64 * 64;
    uint8_t data[padded];
    memset(data, 0, padded);
    memcpy(data, message, length);
    data[length] = 0x80;
    for (int i = 0; i < 8; i++) data[padded - 1 - i] = (uint8_t)(length * 8 >> 8 * i);
    for (size_t at = 0; at < padded; at += 64) block(state, k, data + at);
    for (int i = 0; i < 8; i++) printf("%08x", state[i]);
    printf("\n");
}

static uint32_t crc32(const char *s) {
    uint32_t crc = 0xffffffff;
    for (; *s; s++) {
        crc ^= (uint8_t)*s;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

int main(void) {
    sha256("");
    sha256("abc");
    sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
    printf("%08x %08x\n", crc32("123456789"), crc32("The quick brown fox jumps over the lazy dog"));
    return 0;
}
