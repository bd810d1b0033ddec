# Hashing and encoding: CRC-32, Adler-32 and base64 in pure shell, SHA-256 and base64 by command.
set -euo pipefail
export LC_ALL=C

crc_table=()
for ((n = 0; n < 256; n++)); do
    crc=$n
    for ((bit = 0; bit < 8; bit++)); do
        ((crc = crc & 1 ? (crc >> 1) ^ 0xEDB88320 : crc >> 1)) || true
    done
    crc_table[n]=$crc
done

ordinal() { printf -v code '%d' "'$1"; }

crc32() {
    local text=$1 crc=$((0xFFFFFFFF)) i
    for ((i = 0; i < ${#text}; i++)); do
        ordinal "${text:i:1}"
        crc=$(((crc >> 8) ^ crc_table[(crc ^ code) & 0xFF]))
    done
    printf '%08x' $((crc ^ 0xFFFFFFFF))
}

adler32() {
    local text=$1 a=1 b=0 i
    for ((i = 0; i < ${#text}; i++)); do
        ordinal "${text:i:1}"
        a=$(((a + code) % 65521))
        b=$(((b + a) % 65521))
    done
    printf '%08x' $((b << 16 | a))
}

base64_encode() {
    local text=$1 out= i j group
    local alphabet=ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/
    for ((i = 0; i < ${#text}; i += 3)); do
        group=0
        for ((j = i; j < i + 3; j++)); do
            code=0
            ((j >= ${#text})) || ordinal "${text:j:1}"
            group=$((group << 8 | code))
        done
        for ((j = 0; j < 4; j++)); do
            if ((i + j > ${#text})); then out+='='; else out+=${alphabet:group >> (18 - 6 * j) & 63:1}; fi
        done
    done
    echo "$out"
}

rot13() { tr 'A-Za-z' 'N-ZA-Mn-za-m' <<< "$1"; }

fox='The quick brown fox jumps over the lazy dog'
echo "crc32   $(crc32 123456789) $(crc32 "$fox")"
echo "adler32 $(adler32 Wikipedia)"
for text in f fo foo foobar; do
    encoded=$(base64_encode "$text")
    echo "$text $encoded $(printf %s "$text" | base64) $(base64 -d <<< "$encoded")"
done
printf %s abc | sha256sum | cut -d ' ' -f 1
printf %s "$fox" | md5sum | cut -d ' ' -f 1
printf 'A\n~' | od -An -tx1
echo "$(rot13 'Hello, World!') $(rot13 "$(rot13 Zebra)")"
