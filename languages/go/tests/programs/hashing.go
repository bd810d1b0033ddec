// Hashing and encoding against published vectors: CRC-32, FNV, MD5, SHA, HMAC, base64, hex, AES.
package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/adler32"
	"hash/crc32"
	"hash/fnv"
	"io"
)

const fox = "The quick brown fox jumps over the lazy dog"

func sum(h hash.Hash, text string) string {
	io.WriteString(h, text)
	return hex.EncodeToString(h.Sum(nil))
}

func main() {
	fmt.Printf("crc32   %08x\n", crc32.ChecksumIEEE([]byte("123456789")))
	fmt.Printf("crc32c  %08x\n", crc32.Checksum([]byte("123456789"), crc32.MakeTable(crc32.Castagnoli)))
	fmt.Printf("adler32 %08x\n", adler32.Checksum([]byte("Wikipedia")))
	fmt.Println("fnv1a  ", sum(fnv.New32a(), "foobar"), sum(fnv.New64a(), "foobar"))
	fmt.Println("md5    ", sum(md5.New(), fox))
	fmt.Println("sha1   ", sum(sha1.New(), "abc"))
	fmt.Println("sha256 ", sum(sha256.New(), "abc"))
	fmt.Println("hmac   ", sum(hmac.New(sha256.New, []byte("key")), fox))

	for _, text := range []string{"f", "fo", "foo", "foobar"} {
		fmt.Println(text, base64.StdEncoding.EncodeToString([]byte(text)), base32.StdEncoding.EncodeToString([]byte(text)))
	}
	if _, err := base64.StdEncoding.DecodeString("Zm9v!"); err != nil {
		fmt.Println(err)
	}

	// FIPS 197, appendix C.1.
	key, _ := hex.DecodeString("000102030405060708090a0b0c0d0e0f")
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	plain, _ := hex.DecodeString("00112233445566778899aabbccddeeff")
	out := make([]byte, block.BlockSize())
	block.Encrypt(out, plain)
	fmt.Println("aes    ", hex.EncodeToString(out))

	sealer, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	nonce := make([]byte, sealer.NonceSize())
	sealed := sealer.Seal(nil, nonce, []byte(fox), nil)
	opened, err := sealer.Open(nil, nonce, sealed, nil)
	fmt.Println("opened:", string(opened) == fox, err)
	sealed[0] ^= 1
	_, err = sealer.Open(nil, nonce, sealed, nil)
	fmt.Println("tampered:", err)
}
