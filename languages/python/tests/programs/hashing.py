# Hashing, encoding and compression with published test vectors.
import base64
import binascii
import hashlib
import hmac
import zlib

FOX = b"The quick brown fox jumps over the lazy dog"


def crc32(data):
    """Bitwise CRC-32, to compare with zlib's."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


print(f"crc32   {crc32(b'123456789'):08x} {zlib.crc32(b'123456789'):08x}")
print(f"adler32 {zlib.adler32(b'Wikipedia'):08x}")
print("md5     " + hashlib.md5(FOX).hexdigest())
print("sha1    " + hashlib.sha1(b"abc").hexdigest())
print("sha256  " + hashlib.sha256(b"abc").hexdigest())
print("hmac    " + hmac.new(b"key", FOX, hashlib.sha256).hexdigest())
print("pbkdf2  " + hashlib.pbkdf2_hmac("sha1", b"password", b"salt", 2).hex())

for text in (b"f", b"fo", b"foo", b"foobar"):
    print(text.decode(), base64.b64encode(text).decode(), base64.b32encode(text).decode())
print("hex     " + binascii.hexlify(b"\x00\xff~").decode())
print("urlsafe " + base64.urlsafe_b64encode(b"\xfb\xef\xff").decode())

packed = zlib.compress(FOX * 1000, 9)
print("smaller:", len(packed) < 1000, "intact:", zlib.decompress(packed) == FOX * 1000)
